"""Processes and clocks of the instance: who descends from whom, who lives, what was killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from typing import Callable, Collection, NamedTuple

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TICK_S = 0.05


class Process(NamedTuple):
    """One line of the process table."""

    parent: int
    group: int
    zombie: bool


def steady_s() -> float:
    """Return seconds that no clock step touches and that count while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def prctl(option: int, value: int) -> bool:
    """Ask the Linux kernel for something; False elsewhere and on refusal."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def process_table() -> dict[int, Process]:
    """Return all processes that can be seen: from /proc, elsewhere from `ps`."""
    if os.path.isdir("/proc/self"):
        return _table_of_proc()
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE, check=False, timeout=10
    ).stdout
    table = {}
    for line in listing.decode("ascii", "replace").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            zombie = fields[3].startswith("Z")
            table[int(fields[0])] = Process(int(fields[1]), int(fields[2]), zombie)
    return table


def _table_of_proc() -> dict[int, Process]:
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields:
                zombie = fields[0] in ("Z", "X")
                table[int(name)] = Process(int(fields[1]), int(fields[2]), zombie)
    return table


def stat_fields(pid: int) -> list[str] | None:
    """Return /proc/PID/stat from the state on: the name before it may hold spaces and brackets."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (OSError, ValueError):
        return None


def descendants(root: int, table: dict[int, Process]) -> set[int]:
    """Return the living descendants of `root`, itself excluded."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return {pid for pid in found if not table[pid].zombie}


def identity(pid: int) -> str:
    """Return what tells this process from a later one with the same number; "" if there is none."""
    fields = stat_fields(pid)
    if fields:
        if fields[0] in ("Z", "X"):
            return ""
        boot = ""
        with contextlib.suppress(OSError), open(BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
        return "%s:%s" % (boot, fields[19])  # field 22 of proc(5): start time in ticks
    if os.path.isdir("/proc/self"):
        return ""
    asked = subprocess.run(
        ["ps", "-o", "lstart=,stat=", "-p", str(pid)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=10,
    )
    words = asked.stdout.decode("ascii", "replace").split()
    return "" if not words or words[-1].startswith("Z") else " ".join(words[:-1])


def is_alive(pid: object, known_identity: object) -> bool:
    """Return whether the process that was `pid` is still there."""
    return isinstance(pid, int) and pid > 0 and identity(pid) == known_identity != ""


def send(pids: Collection[int], signum: int) -> None:
    """Send a signal to each; those already gone are no matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def end_tree(
    root: int, *, grace_s: float, spare: Collection[int], reap: Callable[[], None], group: int = 0
) -> set[int]:
    """End all descendants of `root` but `spare`: TERM, grace, KILL. Returns what survived.

    Where orphans do not come to us (no Linux), the members of the process group `group` as well.

    KILL is repeated for 10 s against trees that fork while they are being killed; what is left
    then is stuck in the kernel.
    """
    kill_at = steady_s() + grace_s
    give_up_at = kill_at + 10
    termed: set[int] = set()
    while True:
        reap()
        table = process_table()
        living = descendants(root, table) - set(spare)
        if group and not sys.platform.startswith("linux"):
            living |= {pid for pid, one in table.items() if one.group == group and not one.zombie}
        now = steady_s()
        if not living or now >= give_up_at:
            return living
        if now >= kill_at:
            send(living, signal.SIGKILL)
        else:
            send(living - termed, signal.SIGTERM)
            termed |= living
        time.sleep(TICK_S)


def oom_kills() -> int | None:
    """Return how many processes the kernel killed for want of memory, as near to us as can be told.

    The control group's own counter where there is one, else the whole machine's; None if neither.
    """
    places = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            for line in file:
                number, controllers, path = line.rstrip("\n").split(":", 2)
                if number == "0":
                    places.append("/sys/fs/cgroup%s/memory.events" % path.rstrip("/"))
                elif "memory" in controllers.split(","):
                    places.append("/sys/fs/cgroup/memory%s/memory.oom_control" % path.rstrip("/"))
    except (OSError, ValueError):
        pass
    places += ["/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"]
    for place in places:
        try:
            with open(place, encoding="utf-8") as file:
                found = re.search(r"^oom_kill (\d+)$", file.read(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return int(found.group(1))
    return None
