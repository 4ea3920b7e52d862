"""A real OpenSSH server on loopback, with handles to hurt it: cut, freeze, restart."""

import base64
import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import Target
from orchestrator.ssh_keys import job_key
from providers.base import HostKey

SSHD = "/usr/sbin/sshd"

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/hostkey
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
StrictModes no
UseDNS no
Subsystem sftp internal-sftp
MaxStartups 100
{extra}
"""


class Sshd:
    """One server in a folder. `host_key` and `key` are what a client must know."""

    def __init__(self, folder: Path, *, extra: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = job_key(folder, "cafe01")
        (folder / "authorized_keys").write_text(self.key.public_line + "\n")
        self.host_key = new_host_key(folder / "hostkey")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text(CONFIG.format(port=self.port, folder=self.folder, extra=self._extra))
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)], stderr=log, start_new_session=True
            )
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        if self._process is None:
            return
        self.thaw()
        self.cut()
        self._process.terminate()
        self._process.wait(10)
        self._process = None

    def sessions(self) -> list[psutil.Process]:
        """The server's processes that each carry one connection."""
        assert self._process is not None
        found = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == "sshd":
                    found.append(child)
        return found

    def cut(self) -> int:
        """Kill every connection at once, as a lost network would; returns how many there were."""
        sessions = self.sessions()
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        return len(sessions)

    def freeze(self) -> None:
        for session in self.sessions():
            os.kill(session.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for session in self.sessions():
            os.kill(session.pid, signal.SIGCONT)

    def target(self, **changes: object) -> Target:
        facts: dict[str, object] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "root",
            "key_file": self.key.file,
            "host_key": self.host_key,
        }
        return Target(**(facts | changes))  # type: ignore[arg-type]

    def shell(self, **changes: object) -> ParamikoShell:
        return ParamikoShell.connect(self.target(**changes))


def new_host_key(file: Path, kind: str = "ed25519") -> HostKey:
    file.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(file)], check=True, timeout=30
    )
    kind, body, *_ = file.with_name(file.name + ".pub").read_text().split()
    base64.b64decode(body)
    return HostKey(kind, body)
