"""The daemon beside the user, seen from outside: whether `gpujob supervise` runs, and starting it.

One for each home, held by a file lock that the kernel drops with the process, so that no stale pid
file can ever stand in the way.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.locate import Located
    from orchestrator.opened import Looked

LOCK_NAME = "supervise.lock"
LOG_NAME = "supervise.log"
SWEPT_NAME = "swept"  # touched when a sweep was started
TAKEN_UP_S = 2.0  # a submit takes its job up within milliseconds of storing it


class AlreadyRunning(Exception):  # noqa: N818 - a state, not a fault
    """Another supervisor holds this home; `pid` is its process, 0 where that is not known."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"gpujob supervise runs already (process {pid})")
        self.pid = pid


@contextmanager
def single(home: Path) -> Iterator[None]:
    """Hold the home's lock for the time of the block; raises AlreadyRunning."""
    handle = os.open(home / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunning(_pid_in(handle)) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def running(home: Path) -> int | None:
    """Return the pid of the home's daemon, None where none runs."""
    try:
        handle = os.open(home / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(handle)
    finally:
        os.close(handle)
    return None


def _pid_in(handle: int) -> int:
    text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else 0


def start(home: Path) -> int:
    """Start `gpujob supervise --until-idle` in a session of its own, and return its pid."""
    return _spawn(home, "supervise", "--until-idle")


def _spawn(home: Path, *words: str) -> int:
    """Start a command beside this one, its words in the home's log; return its pid.

    It keeps this process's environment and folder (a `.env` there is part of the settings).
    """
    import subprocess

    root = Path(__file__).resolve().parent.parent
    environ = dict(os.environ)
    if "site-packages" not in root.parts:  # run from a source tree: the package must be found again
        environ["PYTHONPATH"] = os.pathsep.join(
            [str(root), *filter(None, [environ.get("PYTHONPATH")])]
        )
    with (home / LOG_NAME).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environ,
        )
    return process.pid


def sweep_afterwards(home: Path, located: Located, now: float) -> bool:
    """Start a sweep beside a command that is over; return whether one was.

    At most one a minute, and only where machines are rented elsewhere: it finds what no process
    drives any more, ends what is past its deadline, and reads bills. Costs one look at a file.
    """
    if not located.sweep or not located.rents:
        return False
    stamp = home / SWEPT_NAME
    if stamp.exists() and now - stamp.stat().st_mtime < located.sweep_s:
        return False
    if running(home) is not None:  # the daemon sweeps anyway
        return False
    stamp.touch()
    _spawn(home, "sweep")
    return True


def ensure(home: Path) -> tuple[int, bool]:
    """Return the daemon's pid, and whether it was started by this call."""
    pid = running(home)
    return (pid, False) if pid is not None else (start(home), True)


def see_that_jobs_are_driven(state: Looked) -> None:
    """Start the daemon where an open job lost its driver (a crash, a reboot); says so on stderr.

    Costs one read of the store. GPUJOB_SWEEP=off forbids it.
    """
    from orchestrator.holder import is_dead
    from orchestrator.opened import err

    if not state.sweep:
        return
    lost = state.waiting("a reader", is_dead)
    young_s = max((_young_s(state, job_id) for job_id, holder in lost if not holder), default=0.0)
    if young_s > 0:  # its own submit is about to take it up: look again a moment later
        state.clock.sleep(young_s)
        lost = state.waiting("a reader", is_dead)
    if not lost or running(state.home.root) is not None:
        return
    pid = start(state.home.root)
    names = ", ".join(f"#{job_id}" for job_id, _ in lost[:3]) + (" ..." if len(lost) > 3 else "")
    err(f"nobody was driving {names}: started gpujob supervise (process {pid})")


def _young_s(state: Looked, job_id: str) -> float:
    """Return how long until a job is old enough to be called lost; 0 for an older one."""
    now = state.now()
    age_s = now - state.store.job(job_id, now=now).created_at
    return max(0.0, TAKEN_UP_S - age_s)
