"""`local` keeps the contract: real processes, real SSH, real time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.base import HostKey, Instance, LaunchRequest, Provider
from tests.contract.provider_contract import ProviderContract
from tests.support.local_machine import LocalMachine, seen_host_key


class LocalHarness:
    step_s = 0.03
    slack_s = 5.0
    life_s = 4.0

    def __init__(self, machine: LocalMachine) -> None:
        self.machine = machine
        self.provider: Provider = machine.provider
        self.clock = machine.clock

    def sibling(self) -> Provider:
        return self.machine.another()

    def request(self, label: str, lifetime_s: float = 3600.0) -> LaunchRequest:
        return self.machine.request(label, lifetime_s)

    def seen_host_key(self, instance: Instance) -> HostKey:
        return seen_host_key(instance)

    def self_destruct(self, instance: Instance) -> None:
        self.machine.run(instance, self.provider.traits.self_destruct or "")


@pytest.mark.e2e
class TestLocal(ProviderContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[LocalHarness]:
        machine = LocalMachine(tmp_path)
        yield LocalHarness(machine)
        machine.close()
