"""A machine rented by hand, for tests: a real OpenSSH server, a stub Axolotl, a machines.yaml."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from providers import ssh_helper
from tests.support.gpujob_process import Gpujob
from tests.support.sshd import Sshd

# A remote machine is looked at every few seconds; a test's is next door.
FAST = {
    "GPUJOB_POLL_REMOTE_S": "0.3",
    "GPUJOB_WATCH_REMOTE_S": "2",
    "GPUJOB_SITE_REMOTE_S": "0.3",
    "GPUJOB_SITE_RETRY_S": "0.5",
    "GPUJOB_TERMINATE_FIRST_S": "0.3",
    "GPUJOB_TERMINATE_MAX_S": "1",
    "GPUJOB_REQUESTS_PER_MINUTE": "60000",
}
CARD = {
    "gpu": "CPU",
    "price_per_hour": 3.0,
    "currency": "USD",
    "vat_rate": 0.2,
    "billing_step_s": 1,
    "region": "TR",
    "source": "the test",
    "date": "2026-11-30",
}


class Rented:
    """One machine, its owner's gpujob, and the files of both."""

    def __init__(self, folder: Path, server: Sshd, *, user: str = "root", **settings: str) -> None:
        self.server = server
        self.far = folder / "far"
        self.machines = folder / "machines.yaml"
        self.tool = Gpujob(
            folder / "near", GPUJOB_MACHINES=str(self.machines), **{**FAST, **settings}
        )
        self.tool.folder.mkdir(parents=True, exist_ok=True)
        self.facts: dict[str, Any] = {
            "name": "yellow",
            "host": "127.0.0.1",
            "port": server.port,
            "user": user,
            "key": str(server.key.file),
            "host_key": f"{server.host_key.type} {server.host_key.base64}",
            "folder": str(self.far),
            "axolotl_env": str(self.tool.stub),
            "price": dict(CARD),
        }
        self.write()

    def write(self, **changes: Any) -> None:
        """Write machines.yaml (JSON is YAML), a None leaving the key out."""
        self.facts |= changes
        facts = {key: value for key, value in self.facts.items() if value is not None}
        self.machines.write_text(json.dumps({"machines": [facts]}))

    def job(self, **switches: Any) -> str:
        """Return the path of a job file for this machine."""
        path = self.tool.write_job(**switches)
        path.write_text(path.read_text().replace("[local]", "[ssh]"))
        stranger = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
        if stranger is not None and self.facts["user"] != "root":  # ours may lie where only we look
            axolotl = self.tool.stub / "bin" / "axolotl"
            text = axolotl.read_text().partition("\n")[2]
            axolotl.write_text(f"#!{stranger}\n{text}")
            (self.tool.stub / "bin" / "python").unlink()
            (self.tool.stub / "bin" / "python").symlink_to(stranger)
        return str(path)

    def end_all(self) -> None:
        """End what a test left, here and there, by process ids."""
        self.tool.end_all()
        ssh_helper.kill([str(self.far)])

    def left(self) -> list[str]:
        """Return what lies in the machine's folder of ours, and what runs from there."""
        files = [str(path) for path in self.far.rglob("*")] if self.far.exists() else []
        return files + [line for line in processes() if str(self.far) in line]


@contextmanager
def small_disk(place: Path, size: str = "1m") -> Iterator[Path]:
    """Lend a disk of so little room; skips where none may be mounted."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "gpujob-test", str(place)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def processes() -> list[str]:
    """Return the command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


@contextmanager
def ordinary_user(name: str) -> Iterator[pwd.struct_passwd]:
    """Lend an account that is not root's: one made for the test, or our own where we are none."""
    if os.geteuid() != 0:
        yield pwd.getpwuid(os.geteuid())
        return
    # A password of "*" fits nothing; without one the account counts as locked, and sshd refuses it.
    how = ["--create-home", "--shell", "/bin/sh", "--password", "*"]
    subprocess.run(["useradd", *how, name], check=True, capture_output=True)
    try:
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", "--remove", "--force", name], check=False, capture_output=True)
