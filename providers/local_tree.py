"""Processes of a `local` instance: found by parentage and by mark, ended without hitting another.

By parentage: guard and server are child subreapers (Linux), so whatever their descendants do (new
sessions, double forks) they stay descendants. By mark: every process inherits GPUJOB_INSTANCE, so
even when guard and server were both killed, what they left is found in the environments that the
kernel shows. A process id is never believed alone: a signal goes through a pidfd, after the start
time was compared. On macOS there is no subreaper, no pidfd and no /proc: `ps` shows parents and
environments, and a process that leaves its parent *and* clears its environment is not found.

Standard library only, and little of it: the guard must start fast and stay small.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Collection, Iterable
from typing import NamedTuple

from providers.local_state import MARK_VARIABLE, mark

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
DEAD = frozenset("ZX")  # zombie, dead: run no more, hold nothing but a number
HAS_PROC = sys.platform.startswith("linux")


class Proc(NamedTuple):
    """One process. `started` tells it from a later one of the same id."""

    pid: int
    ppid: int
    state: str
    started: str


def become_subreaper() -> bool:
    """Make orphans below us our children; False where the system cannot."""
    if not HAS_PROC:
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def boot_id() -> str:
    """Return what changes at each boot of the machine ("" where the system does not say)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def identity(pid: int) -> dict[str, str | int]:
    """Return what `same` needs to recognise this process later, fit for JSON."""
    proc = look(pid)
    return {"pid": pid, "started": proc.started if proc else "", "boot": boot_id()}


def same(record: object) -> Proc | None:
    """Return the living process that an `identity` was taken of, None if it is no more."""
    if not isinstance(record, dict) or record.get("boot") != boot_id():
        return None
    pid = record.get("pid")
    proc = look(pid) if isinstance(pid, int) and pid > 1 else None
    if proc is None or proc.started != record.get("started") or proc.state in DEAD:
        return None
    return proc


def look(pid: int) -> Proc | None:
    """Return one process, None if there is none."""
    return _proc_stat(pid) if HAS_PROC else ps_table().get(pid)


def table() -> dict[int, Proc]:
    """Return every process by id."""
    if not HAS_PROC:
        return ps_table()
    found = (_proc_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {proc.pid: proc for proc in found if proc}


def marked(instances: str) -> dict[str, list[int]]:
    """Return label -> ids of the processes that carry it, for instances of this folder."""
    home = mark(os.path.join(instances, ""))
    found: dict[str, list[int]] = {}
    for pid, word in _proc_marks() if HAS_PROC else ps_marks():
        if word.endswith(home):
            found.setdefault(word.removesuffix(home), []).append(pid)
    return found


def children(pid: int) -> list[Proc]:
    """Return the living children; on Linux one read, so that none has time to hide."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            found = [look(int(word)) for word in file.read().split()]
    except OSError:
        found = [p for p in table().values() if p.ppid == pid]
    return [p for p in found if p is not None and p.state not in DEAD]


def kill_once(folder: str, roots: Iterable[int], spare: Collection[int]) -> int:
    """Kill all below `roots`, the roots, and all that carry `folder`; return how many were living.

    One pass: what was forked meanwhile is met by the next. The caller repeats until two passes in a
    row return 0.
    """
    everyone = table()
    instances, label = os.path.split(folder)
    victims = _below(everyone, roots) | set(marked(instances).get(label, ()))
    living = 0
    for pid in victims - set(spare) - {os.getpid()}:
        proc = everyone.get(pid) or look(pid)
        if proc is not None and proc.state not in DEAD:
            living += 1
            send(proc, signal.SIGKILL)
    return living


def send(proc: Proc, number: int) -> bool:
    """Signal exactly this process, never a later one of its id; False if it is gone or not ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            now = look(proc.pid)
            if now is not None and now.started == proc.started:
                os.kill(proc.pid, number)
                return True
            return False
        fd = os.pidfd_open(proc.pid)
        try:
            # From here the descriptor pins the process: is it still the one that was seen?
            now = look(proc.pid)
            if now is not None and now.started == proc.started:
                signal.pidfd_send_signal(fd, number)
                return True
        finally:
            os.close(fd)
    return False


def wait_for_end(proc: Proc, timeout_s: float) -> bool | None:
    """Return whether the process ended in time; None at once where the system cannot wait so."""
    try:
        fd = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):
        return None
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        now = look(proc.pid)
        return now is None or now.started != proc.started or bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(fd)


def _below(everyone: dict[int, Proc], roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for proc in everyone.values():
        children.setdefault(proc.ppid, []).append(proc.pid)
    found: set[int] = set()
    todo = [pid for pid in roots if pid in everyone]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, ())
    return found


# -------------------------------------------------------------------- Linux


def _proc_stat(pid: int) -> Proc | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # proc(5): "pid (comm) state ppid ... starttime(22) ..."; comm may hold spaces and brackets.
    fields = text[text.rindex(b")") + 2 :].split()
    return Proc(pid, int(fields[1]), fields[0].decode(), fields[19].decode())


def _proc_marks() -> Iterable[tuple[int, str]]:
    variable = MARK_VARIABLE.encode() + b"="
    for name in os.listdir("/proc"):
        if name.isdigit():
            # OSError: gone, a zombie, or not ours to read, and so not ours.
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                text = file.read()
                if variable in text:
                    for entry in text.split(b"\0"):
                        if entry.startswith(variable):
                            yield int(name), os.fsdecode(entry[len(variable) :])


# -------------------------------------------------------------------- any other Unix


def ps_table() -> dict[int, Proc]:
    """Return every process by id, as `ps` tells it."""
    found = {}
    for line in _ps("-A", "-o", "pid=,ppid=,stat=,lstart="):
        fields = line.split(None, 3)
        if len(fields) == 4:
            pid = int(fields[0])
            found[pid] = Proc(pid, int(fields[1]), fields[2][:1], fields[3].strip())
    return found


def ps_marks() -> Iterable[tuple[int, str]]:
    """Yield (pid, mark) of the marked processes, as `ps` tells it."""
    variable = f"{MARK_VARIABLE}="
    for line in _ps("axeww", "-o", "pid=,command="):
        for word in line.split()[1:]:
            if word.startswith(variable):
                yield int(line.split(None, 1)[0]), word[len(variable) :]


def _ps(*arguments: str) -> list[str]:
    import subprocess

    command = ["ps", *arguments]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=20, check=False)
    return os.fsdecode(done.stdout).splitlines()
