"""The contract's harness for `fake`, on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable

from providers.base import HostKey, Instance, LaunchRequest, Provider
from providers.fake import FakeCloud, FakeProvider, FakeSettings
from tests.support.clocks import VirtualClock


class FakeHarness:
    """Many providers over one cloud; `wrap` lets a test plant a bug between them and the suite."""

    step_s = 1.0
    slack_s = 0.0
    life_s = 600.0

    def __init__(
        self, settings: FakeSettings, wrap: Callable[[FakeProvider], Provider] = lambda fake: fake
    ) -> None:
        self.clock = VirtualClock()
        self.cloud = FakeCloud(self.clock, random.Random(1), settings)
        self._wrap = wrap
        self.provider = self.sibling()

    def sibling(self) -> Provider:
        return self._wrap(FakeProvider(self.cloud))

    def request(self, label: str, lifetime_s: float = 3600.0) -> LaunchRequest:
        offer = min(self.cloud.offers, key=lambda o: o.price_usd_per_hour)
        return LaunchRequest(label, "me", offer, "ssh-ed25519 AAAA", self.clock.now() + lifetime_s)

    def seen_host_key(self, instance: Instance) -> HostKey:
        return self.cloud.machines[instance.id].host_key

    def self_destruct(self, instance: Instance) -> None:
        self.cloud.end(instance.id, "self")
