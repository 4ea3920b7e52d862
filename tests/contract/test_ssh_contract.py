"""`ssh` keeps the contract as far as its traits allow: two real OpenSSH servers as the machines.

It enforces no deadline and proves no absence, and says so; those promises are not asked of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.clock import SystemClock
from providers.base import HostKey, Instance, LaunchRequest, Provider
from providers.ssh import SshProvider
from tests.contract.provider_contract import ProviderContract
from tests.support.rented import CARD
from tests.support.sshd import Sshd


class SshHarness:
    step_s = 0.05
    slack_s = 5.0
    life_s = 4.0

    def __init__(self, folder: Path, servers: list[Sshd]) -> None:
        self.clock = SystemClock()
        self._made: list[SshProvider] = []
        self._home = folder / "home"
        self._file = folder / "machines.yaml"
        self._keys = {server.port: server.host_key for server in servers}
        self._file.write_text(
            json.dumps({"machines": [_machine(s, folder, n) for n, s in enumerate(servers)]})
        )
        self.provider: Provider = self.sibling()

    def sibling(self) -> Provider:
        self._made.append(SshProvider(self._home, self._file, self.clock))
        return self._made[-1]

    def close(self) -> None:
        for provider in self._made:
            provider.close()

    def request(self, label: str, lifetime_s: float = 3600.0) -> LaunchRequest:
        offer = self.provider.offers()[0]
        return LaunchRequest(label, "me", offer, "ssh-ed25519 AAAA", self.clock.now() + lifetime_s)

    def seen_host_key(self, instance: Instance) -> HostKey:
        return self._keys[instance.port or 0]

    def self_destruct(self, instance: Instance) -> None:
        raise AssertionError("it has none")


def _machine(server: Sshd, folder: Path, number: int) -> dict[str, Any]:
    return {
        "name": f"m{number}",
        "host": "127.0.0.1",
        "port": server.port,
        "key": str(server.key.file),
        "host_key": f"{server.host_key.type} {server.host_key.base64}",
        "folder": str(folder / f"far{number}"),
        "price": dict(CARD),
    }


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sshd]]:
    folder = tmp_path_factory.mktemp("machines")
    with Sshd(folder / "one") as one, Sshd(folder / "two") as two:
        yield [one, two, one]


@pytest.mark.e2e
@pytest.mark.prove  # a login shell and a Python on the far side for each of 300 questions
@pytest.mark.system("openssh-server")
class TestSsh(ProviderContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, servers: list[Sshd]) -> Iterator[SshHarness]:
        harness = SshHarness(tmp_path, servers)
        yield harness
        harness.close()
