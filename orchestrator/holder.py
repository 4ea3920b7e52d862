"""Who holds a lease: one process, named so that another on the same machine can tell it is dead.

A lease ends by itself, but that takes a minute. When the holder provably does not exist any more
(same boot, same process namespace, no such process or a younger one), its jobs are taken at once.
Anything that cannot be proven counts as alive.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path


def new_holder() -> str:
    """Return the name of this process as a holder, `<machine>|<pid>|<start>|<random>`."""
    pid = os.getpid()
    return f"{_machine()}|{pid}|{_started(pid) or '?'}|{secrets.token_hex(4)}"


def is_dead(holder: str) -> bool:
    """Return True only where the holder's process provably does not exist any more."""
    parts = holder.split("|")
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdigit() or parts[2] == "?":
        return False
    pid = int(parts[1])
    if Path("/proc/self/stat").exists():
        return _started(pid) != parts[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def for_people(holder: str | None) -> str | None:
    """Return a holder as a person reads it: `process 4711 on myhost`; None for a dead one."""
    if holder is None or is_dead(holder):
        return None
    parts = holder.split("|")
    if len(parts) != 4:
        return holder
    return f"process {parts[1]} on {parts[0].split('/')[0]}"


def _machine() -> str:
    """Return host name, boot and process namespace: within them a pid means one process."""
    boot = _read("/proc/sys/kernel/random/boot_id")[:8] or "?"
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        namespace = "?"
    return f"{socket.gethostname()}/{boot}/{namespace}".replace("|", "_")


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None where there is no such process."""
    text = _read(f"/proc/{pid}/stat")
    # The second field is the program's name in brackets and may hold anything, brackets too.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in {"Z", "X"}:
        return None
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
