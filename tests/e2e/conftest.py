"""A real OpenSSH server for a module's tests, and a shell on it."""

from collections.abc import Iterator

import pytest

from orchestrator.paramiko_shell import ParamikoShell
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
