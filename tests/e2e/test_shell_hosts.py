"""Whom ParamikoShell talks to: host keys, logins, ports that do not answer."""

import socket
import time
from pathlib import Path

import pytest

from orchestrator import ssh_connect
from orchestrator.clock import SystemClock
from orchestrator.host_pin import connect_pinned
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import AuthRefused, HostKeyMismatch, HostKeyUnknown, ShellError
from orchestrator.ssh_keys import job_key
from providers.base import HostKey
from tests.support.sshd import Sshd, new_host_key

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]


def test_another_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    wrong = new_host_key(tmp_path / "other")
    with pytest.raises(HostKeyMismatch, match="SHA256:") as caught:
        server.shell(host_key=wrong)
    assert not isinstance(caught.value, HostKeyUnknown)


def test_a_host_key_of_another_type_is_refused(server: Sshd, tmp_path: Path) -> None:
    with pytest.raises(HostKeyMismatch, match="ecdsa"):
        server.shell(host_key=new_host_key(tmp_path / "other", "ecdsa"))


def test_rsa_and_ecdsa_hosts_are_pinned_too(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd") as server:
        for kind in ("rsa", "ecdsa"):
            server.stop()
            server.host_key = new_host_key(tmp_path / "sshd" / "hostkey", kind)
            server.start()
            shell = server.shell()
            assert shell.run("echo in", timeout_s=20).stdout == b"in\n"
            shell.close()


def test_an_unknown_host_needs_leave(server: Sshd) -> None:
    with pytest.raises(HostKeyUnknown, match="SHA256:"):
        server.shell(host_key=None)
    told: list[HostKey] = []
    shell = ParamikoShell.connect(server.target(host_key=None), on_first_use=told.append)
    assert told == [server.host_key]
    shell.close()


def test_first_use_never_overrides_a_known_key(server: Sshd, tmp_path: Path) -> None:
    told: list[HostKey] = []
    wrong = new_host_key(tmp_path / "other")
    with pytest.raises(HostKeyMismatch):
        ParamikoShell.connect(server.target(host_key=wrong), on_first_use=told.append)
    assert told == []


def test_a_first_use_is_kept_and_held_to(server: Sshd, tmp_path: Path) -> None:
    pin, told = tmp_path / "pin", list[str]()
    unknown = server.target(host_key=None)
    for _ in range(2):
        connect_pinned(unknown, pin, clock=SystemClock(), tell=told.append).close()
    assert len(told) == 1
    assert "first use" in told[0]
    assert pin.stat().st_mode & 0o777 == 0o600
    other = new_host_key(tmp_path / "other")
    pin.write_text(f"{other.type} {other.base64}\n")
    with pytest.raises(HostKeyMismatch):
        connect_pinned(unknown, pin, clock=SystemClock(), tell=told.append)
    connect_pinned(server.target(), pin, clock=SystemClock(), tell=told.append).close()


def test_a_refused_key_is_said_so(server: Sshd, tmp_path: Path) -> None:
    stranger = job_key(tmp_path, "beef02")
    with pytest.raises(AuthRefused, match="user root"):
        server.shell(key_file=stranger.file)


def test_nobody_listens(server: Sshd) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(ShellError, match="refused"):
            server.shell(port=probe.getsockname()[1])


def test_a_port_that_never_speaks_is_given_up(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connect, "HANDSHAKE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begun = time.monotonic()
        with pytest.raises(ShellError):
            server.shell(port=mute.getsockname()[1])
        assert time.monotonic() - begun < 25  # the usual limit is 30
