"""A real OpenSSH server for a module's tests and a shell on it; gpujob on a home of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.paramiko_shell import ParamikoShell
from tests.support.gpujob_process import Gpujob
from tests.support.sshd import Sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def shell(server: Sshd) -> Iterator[ParamikoShell]:
    shell = server.shell()
    yield shell
    shell.close()


@pytest.fixture
def gpujob(tmp_path: Path) -> Iterator[Gpujob]:
    """gpujob with a notional price of 0.001 USD a second, so that each second shows in the cost."""
    tool = Gpujob(tmp_path, GPUJOB_LOCAL_PRICE_USD_PER_HOUR="3.6")
    yield tool
    tool.end_all()
