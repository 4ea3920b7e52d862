"""`runpod` keeps the contract, against the simulator's pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.provider_contract import ProviderContract
from tests.contract.runpod_harness import RunPodHarness
from tests.support.cloud import Cloud, cloud


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud")) as started:
        yield started


@pytest.mark.e2e
@pytest.mark.system("openssh-server")
class TestRunPod(ProviderContract):
    @pytest.fixture
    def harness(self, running: Cloud, tmp_path: Path) -> Iterator[RunPodHarness]:
        yield RunPodHarness(running, tmp_path)
        for pod in running.pods():
            running.call("DELETE", f"/v2/pods/{pod['id']}")
