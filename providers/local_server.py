"""The SSH server of a `local` instance: key-only, on loopback, one command or shell a session.

Started by the guard (providers/local_guard.py), which owns it; standard input ends when the guard
dies, and then the server ends the instance in its place. It behaves as OpenSSH's sshd does where a
client can tell: a session of its own for each command, the exit after the last byte of output, no
kill when a client leaves (the command dies at its next write, a terminal's with a hang-up), signals
to the whole group.

    python -P -m providers.local_server FOLDER LOCK_FD
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from functools import partial
from typing import Any

import asyncssh

from providers import local_guard as guard
from providers import local_state as state
from providers import local_tree as tree
from providers.local_session import serve_session

# gcm first: 20-35 % less CPU at both ends than ctr with a separate MAC (measured, paramiko client).
CIPHERS = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr"]
TICK_S = 1.0
GRACE_S = 3.0  # the guard acts at once; the server acts so much later, should the guard be stuck
ORPHANS_EACH = 5  # ticks between two looks for orphans to reap
LOGIN_TIMEOUT_S = 20.0
# The interpreter's own settings, meant for us and not for the instance's programs.
PRIVATE_VARIABLES = ("PYTHONPATH", "PYTHONSAFEPATH")


def main(arguments: list[str]) -> None:
    """Serve until the guard ends the instance, or is itself no more."""
    folder, lock = arguments[0], int(arguments[1])
    os.set_inheritable(lock, False)  # noqa: FBT003 - takes no keywords
    os.umask(0o077)
    tree.become_subreaper()
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    for name in PRIVATE_VARIABLES:
        os.environ.pop(name, None)
    facts = state.read_json(os.path.join(folder, state.LAUNCH))
    if facts is None:
        return  # the guard sees our end, and ends the rest
    os.chdir(os.path.join(folder, state.WORK))
    asyncio.run(_serve(folder, facts))


async def _serve(folder: str, facts: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "server_host_keys": [os.path.join(folder, state.HOST_KEY)],
        "authorized_client_keys": os.path.join(folder, state.AUTHORIZED_KEYS),
        "encryption_algs": CIPHERS,
        "compression_algs": ["none"],
        "server_version": "gpujob-local",
        "login_timeout": LOGIN_TIMEOUT_S,
        "agent_forwarding": False,
        "encoding": None,
    }
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        process_factory=partial(serve_session, os.getcwd()),
        sftp_factory=True,
        **options,
    )
    guarded_by = os.getppid()
    if facts.get("start_script"):
        _run_start_script(folder, str(facts["start_script"]))
    record = {
        "schema": 1,
        "label": facts["label"],
        "owner": facts["owner"],
        "created_at": facts["created_at"],
        "deadline_at": facts["deadline_at"],
        "port": listener.get_port(),
        **tree.identity(os.getpid()),
    }
    state.write_json(os.path.join(folder, state.INSTANCE), record)
    await _watch(folder, guarded_by, guard.Deadline(float(facts["deadline_at"])))


async def _watch(folder: str, guarded_by: int, deadline: guard.Deadline) -> None:
    """Return never: the guard ends us, or we end the instance because there is no guard."""
    orphaned = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, orphaned.set)
    ticks, overdue, zombies = 0, 0, frozenset[int]()
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(orphaned.wait(), TICK_S)
        if orphaned.is_set() or os.getppid() != guarded_by:
            guard.finish(folder, "its guard died")
        why = "its deadline passed" if deadline.left_s() <= 0 else state.must_end(folder)
        overdue = overdue + 1 if why else 0
        if why and overdue * TICK_S > GRACE_S:
            guard.finish(folder, why)
        ticks += 1
        if ticks % ORPHANS_EACH == 0:
            zombies = reap_orphans(zombies)


def reap_orphans(seen: frozenset[int]) -> frozenset[int]:
    """Collect adopted children that were dead at the last look too; return those dead since.

    A session's own child is collected by its session at once, so one that stays dead is an orphan.
    """
    me = os.getpid()
    dead = frozenset(p.pid for p in tree.table().values() if p.ppid == me and p.state in tree.DEAD)
    for pid in dead & seen:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
    return dead - seen


def _run_start_script(folder: str, script: str) -> None:
    log = os.open(
        os.path.join(folder, state.START_LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    os.close(log)


if __name__ == "__main__":
    main(sys.argv[1:])
