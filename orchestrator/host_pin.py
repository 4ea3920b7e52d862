"""Trust on first use, for a host whose key nobody could vouch for: kept, and held to after."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import Target
from orchestrator.ssh_connect import fingerprint
from providers.base import HostKey


def connect_pinned(
    target: Target, pin: Path, *, clock: Clock, tell: Callable[[str], None]
) -> ParamikoShell:
    """Return a logged-in shell; a host key seen for the first time is written to `pin` and told.

    A key known beforehand wins; then the one in `pin`. Raises what `ParamikoShell.connect` does.
    """
    if target.host_key is None and pin.exists():
        kind, body = pin.read_text(encoding="ascii").split()
        target = replace(target, host_key=HostKey(kind, body))

    def first_use(key: HostKey) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(pin, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{key.type} {key.base64}\n")
            file.flush()
            os.fsync(descriptor)
        name = f"{target.host}:{target.port}"
        tell(f"{name} is trusted on first use: nobody could vouch for its key {fingerprint(key)}")

    return ParamikoShell.connect(target, clock=clock, on_first_use=first_use)
