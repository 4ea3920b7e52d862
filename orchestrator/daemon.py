"""The daemon beside the user, seen from outside: whether `gpujob supervise` runs, and starting it.

One for each home, held by a file lock that the kernel drops with the process, so that no stale pid file
can ever stand in the way.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.states import Teardown

if TYPE_CHECKING:
    from orchestrator.opened import Opened
    from orchestrator.views import JobView

LOCK_NAME = "supervise.lock"
LOG_NAME = "supervise.log"


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
    """Start `gpujob supervise --until-idle` in a session of its own, and return its pid.

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
            [sys.executable, "-P", "-m", "orchestrator", "supervise", "--until-idle"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environ,
        )
    return process.pid


def ensure(home: Path) -> tuple[int, bool]:
    """Return the daemon's pid, and whether it was started by this call."""
    pid = running(home)
    return (pid, False) if pid is not None else (start(home), True)


def undriven(job: JobView) -> bool:
    """Return whether a job needs somebody and has nobody: open, or its machine not proven gone."""
    if job.supervised_by is not None and holder_lives(job.supervised_by):
        return False
    unproven = job.teardown in (Teardown.STILL_BILLING, Teardown.STOPPING, Teardown.SUSPECT)
    return job.closed_at is None or unproven


def holder_lives(holder: str) -> bool:
    """Return False only for a process of this machine that is certainly dead. `holder`: host:pid:..."""
    import socket

    host, _, rest = holder.partition(":")
    pid = rest.split(":")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def see_that_jobs_are_driven(state: Opened, jobs: Iterable[JobView]) -> None:
    """Start the daemon where an open job lost its driver (a crash, a reboot); says so on stderr.

    GPUJOB_SWEEP=off forbids it.
    """
    from orchestrator.opened import err

    lost = [job for job in jobs if undriven(job)]
    if not lost or not state.sweep or running(state.home.root) is not None:
        return
    pid = start(state.home.root)
    names = ", ".join(f"#{job.id}" for job in lost[:3]) + (" ..." if len(lost) > 3 else "")
    err(f"nobody was driving {names}: started gpujob supervise (process {pid})")
