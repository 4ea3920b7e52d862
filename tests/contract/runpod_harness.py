"""The contract's harness for `runpod`: the real adapter, real pods of the simulator, real time."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.clock import SystemClock
from orchestrator.ssh_keys import job_key
from providers.base import HostKey, Instance, LaunchRequest, Provider, Tier, Wish
from providers.runpod import RunPodProvider
from tests.support.cloud import Cloud

LAX = ("-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR")


class RunPodHarness:
    """Several adapters over one simulated account."""

    step_s = 0.1
    slack_s = 5.0  # a loaded machine
    life_s = 8.0

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self.clock = SystemClock()
        self.key = job_key(folder, "cafe01")
        self.provider: Provider = self.sibling()

    def sibling(self) -> Provider:
        return RunPodProvider(
            self.cloud.key, self.cloud.url, self.clock, list_lag_s=0.2, boot_timeout_s=60.0
        )

    def request(self, label: str, lifetime_s: float = 3600.0) -> LaunchRequest:
        wish = Wish(tiers=(Tier.SECURE,))
        offers = RunPodProvider(self.cloud.key, self.cloud.url, self.clock).offers_for(wish)
        offer = min(offers, key=lambda o: o.price_usd_per_hour)
        deadline_at = self.clock.now() + lifetime_s
        return LaunchRequest(label, "me", offer, self.key.public_line, deadline_at)

    def seen_host_key(self, instance: Instance) -> HostKey:
        asked = ["ssh-keyscan", "-T", "20", "-t", "ed25519", "-p", str(instance.port)]
        command = [*asked, str(instance.host)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        kind, body = done.stdout.split()[-2:]
        return HostKey(kind, body)

    def self_destruct(self, instance: Instance) -> None:
        login = ["ssh", "-i", str(self.key.file), "-p", str(instance.port), *LAX]
        line = self.provider.traits.self_destruct
        assert line is not None
        command = [*login, f"{instance.user}@{instance.host}", f"timeout 20 {line}"]
        subprocess.run(command, capture_output=True)
