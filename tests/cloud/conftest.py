"""One simulator a module, as new before each test: tests run in any order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ssh_keys import JobKey, job_key
from tests.support.cloud import Cloud, cloud


@pytest.fixture(scope="module")
def shared_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def sim(shared_cloud: Cloud) -> Cloud:
    """A simulator as if just started; what a former test set or made is gone."""
    shared_cloud.renew()
    return shared_cloud


@pytest.fixture
def key(tmp_path: Path) -> JobKey:
    return job_key(tmp_path, "cafe01")
