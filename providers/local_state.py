"""What lies on disk for a `local` instance: its folder, its lock, and what is kept of it after.

    <home>/instances/<label>/           0700, appears whole: staged, then renamed
        launch.json      the request's facts, by the launcher, before anything runs
        lock             held (flock) by the launcher, the guard and the server: held = alive
        guard.json       pid and start time of the guard
        instance.json    pid, start time and port of the server, once it listens
        end              exists: the instance is to end (terminate, or the instance itself)
        host_key, authorized_keys, server.log, start.log
        work/            the SSH sessions' start folder; job folders go here
    <home>/instances/.gone/<label>.json what it was, when and why it ended, its log's last lines

The kernel drops a lock with its last holder, however that died, so no process id has to be
believed for "is it alive?". Standard library only, and little of it: the guard must start fast and
stay small.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any

LAUNCH, GUARD, INSTANCE = "launch.json", "guard.json", "instance.json"
LOCK, END, LOG, START_LOG = "lock", "end", "server.log", "start.log"
HOST_KEY, AUTHORIZED_KEYS, WORK = "host_key", "authorized_keys", "work"
GONE, STAGED, TRASH = ".gone", ".new-", ".trash-"
MARK_VARIABLE, FOLDER_VARIABLE = "GPUJOB_INSTANCE", "GPUJOB_INSTANCE_DIR"

GRAVES_KEPT = 200  # one small file each
LOG_TAIL_BYTES = 4096
STAGED_FOR_S = 120.0  # a launch stages for milliseconds; what is older was left by a killed one


def write_json(path: str, value: dict[str, Any]) -> None:
    """Write atomically, mode 0600."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, path)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the document, None where there is none to be read."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def mark(folder: str) -> str:
    """Return what every process of this instance carries in GPUJOB_INSTANCE: `label@home`.

    No spaces, so that `ps` can show it; the home's checksum keeps equal labels of two homes apart.
    """
    instances, label = os.path.split(folder)
    return f"{label}@{binascii.crc32(os.fsencode(instances)):08x}"


def take_lock(folder: str) -> int:
    """Return a descriptor that holds the new folder's lock while any copy of it is open."""
    import fcntl

    fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def is_alive(folder: str) -> bool:
    """Return whether a launcher, guard or server of this folder lives."""
    import fcntl

    try:
        fd = os.open(os.path.join(folder, LOCK), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two lookers do not take each other for life.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def ask_to_end(folder: str) -> None:
    """Leave the wish on disk, where guard and server look each second."""
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(os.path.join(folder, END), os.O_WRONLY | os.O_CREAT, 0o600))


def must_end(folder: str) -> str | None:
    """Return why the instance has to end although nobody's clock says so, else None."""
    if not os.path.exists(os.path.join(folder, LAUNCH)):
        return "its folder was removed"
    return "asked to" if os.path.exists(os.path.join(folder, END)) else None


def labels(instances: str) -> list[str]:
    """Return the labels that have a folder, sorted."""
    try:
        with os.scandir(instances) as entries:
            return sorted(e.name for e in entries if e.name[0] != "." and e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def bury(folder: str, why: str, now: float) -> None:
    """Remove a folder of which nothing lives, keeping a note. Safe to race: one caller wins.

    Nothing secret stays: the folder goes whole; the note holds the launch's facts (no key, no
    environment) and the last lines of the server's own log, which never sees a command.
    """
    instances, label = os.path.split(folder)
    trash = os.path.join(instances, f"{TRASH}{label}-{os.getpid()}")
    facts = read_json(os.path.join(folder, LAUNCH)) or {}
    tail = _tail(os.path.join(folder, LOG))
    try:
        os.rename(folder, trash)
    except FileNotFoundError:
        return
    graves = os.path.join(instances, GONE)
    kept = ("label", "owner", "created_at", "deadline_at", "price_usd_per_hour")
    note = {k: facts.get(k) for k in kept} | {"ended_at": now, "why": why, "log": tail}
    with contextlib.suppress(OSError):  # a full disk loses the note, never the end
        os.makedirs(graves, mode=0o700, exist_ok=True)
        write_json(grave(instances, label), note)
        _prune(graves)
    _remove(trash)


def grave(instances: str, label: str) -> str:
    """Return the path of the note that is kept of an ended instance."""
    return os.path.join(instances, GONE, f"{label}.json")


def tidy(instances: str, now: float) -> None:
    """Remove what killed launches and killed removals left half done."""
    for path in _hidden(instances, TRASH):
        _remove(path)
    for path in _hidden(instances, STAGED):
        with contextlib.suppress(FileNotFoundError):
            if now - os.stat(path).st_mtime > STAGED_FOR_S and not is_alive(path):
                _remove(path)


def _hidden(instances: str, prefix: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(instances):
            if name.startswith(prefix):
                yield os.path.join(instances, name)


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _prune(graves: str) -> None:
    with contextlib.suppress(OSError):
        paths = [os.path.join(graves, n) for n in os.listdir(graves)]
        paths.sort(key=os.path.getmtime)
        for path in paths[:-GRAVES_KEPT]:
            os.unlink(path)


def _remove(path: str) -> None:
    """Remove a tree; folders that a job made unwritable are made writable first."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
