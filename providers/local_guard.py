"""The guard of a `local` instance: the process that owns everything else, and ends it in time.

It starts the SSH server, adopts every orphan of the instance, and ends the whole tree when the
deadline passes, when it is asked to, when the server dies, or when the folder is removed. If the
guard itself is killed, the server notices at once and does the same. Started as

    python -S -P -m providers.local_guard FOLDER LOCK_FD

with the folder's lock open in LOCK_FD. It detaches, and the command returns once it runs.
Standard library only, and little of it: it must run before anything else does, and stay small.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from typing import NoReturn

from providers import local_state as state
from providers import local_tree as tree

TICK_S = 1.0  # how late the wall clock's jump, a wish on disk or a removed folder is noticed
QUIET_PASSES = 2  # as many passes in a row without a process, living or fresh dead, prove the end
SWATS = 1000


def main(arguments: list[str]) -> None:
    """Detach, then guard until the end."""
    folder, lock = arguments[0], int(arguments[1])
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    try:
        _guard(folder, lock)
    except BaseException:  # noqa: BLE001 - whatever it is, the instance must not outlive its guard
        traceback.print_exc()
        finish(folder, "its guard failed")


def finish(folder: str, why: str) -> NoReturn:
    """End every process of the instance but this one, remove the folder, exit. Never gives up."""
    log(f"ending: {why}")
    quiet, pause_s = 0, 0.005
    while quiet < QUIET_PASSES:
        seen = tree.kill_once(folder, [os.getpid()], [os.getpid()]) + _swat() + len(reap())
        quiet = 0 if seen else quiet + 1
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 1.0)
    state.bury(folder, why, time.time())
    os._exit(0)


def log(line: str) -> None:
    """Write one line to the instance's log; a full disk must not stop the end."""
    with contextlib.suppress(OSError):
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}\n".encode())


def reap() -> dict[int, int]:
    """Collect dead children; returns pid -> wait status."""
    dead: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if pid == 0:
            return dead
        dead[pid] = status


def _swat() -> int:
    """Kill our own children as fast as they come; return how many were met.

    A process that forks and exits without end has a new number in each look at the whole table; but
    each of its generations is our child, and is dead among those that `reap` counts.
    """
    met = 0
    for _ in range(SWATS):
        children = tree.children(os.getpid())
        met += sum(tree.send(child, signal.SIGKILL) for child in children)
        if not children:
            break
    return met


class Deadline:
    """A moment by two clocks, the earlier of which wins: a clock that is set back gains no time."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._monotonic = time.monotonic() + (at - time.time())

    def left_s(self) -> float:
        """Return seconds to go, negative once it has passed."""
        return min(self._at - time.time(), self._monotonic - time.monotonic())


def _guard(folder: str, lock: int) -> None:
    tree.become_subreaper()
    wake = _wake_on_signals()
    facts = state.read_json(os.path.join(folder, state.LAUNCH))
    if facts is None:
        finish(folder, "its folder was removed")
    deadline = Deadline(float(facts["deadline_at"]))
    record = {"schema": 1, **tree.identity(os.getpid())}
    state.write_json(os.path.join(folder, state.GUARD), record)
    why = state.must_end(folder)
    server = 0 if why or deadline.left_s() <= 0 else _start_server(folder, lock)
    while not why:
        left_s = deadline.left_s()
        if left_s <= 0:
            why = "its deadline passed"
            break
        ready, _, _ = select.select([wake], [], [], min(TICK_S, left_s))
        if ready and signal.SIGTERM in os.read(wake, 4096):
            why = "asked to"
        status = reap().get(server)
        if status is not None:
            why = why or f"its server ended ({os.waitstatus_to_exitcode(status)})"
        why = why or state.must_end(folder)
    finish(folder, why)


def _wake_on_signals() -> int:
    """Return a descriptor on which the numbers of SIGTERM and SIGCHLD arrive."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return reading


def _start_server(folder: str, lock: int) -> int:
    """Start the SSH server; its standard input ends when this process does. Returns its pid."""
    reading, writing = os.pipe()  # `writing` is never closed: the kernel closes it at our death
    os.set_inheritable(lock, True)  # noqa: FBT003 - takes no keywords
    command = [sys.executable, "-P", "-m", "providers.local_server", folder, str(lock)]
    return os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_CLOSE, writing)],
        setsigmask=[],
        setsigdef=[signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
