"""The attempt's folder: names, limits, and small files that survive a crash and a full disk."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Dict

ORDER = "order.json"
CLAIM = "claim"
STARTS = "starts"  # one byte is appended and synced before every start of a trainer
STOP = "stop.json"
LOG = "train.log"
METRICS = "metrics.jsonl"
HEARTBEAT = "heartbeat.json"
EXIT = "exit.json"
EXIT_PART = "exit.json.part"  # room for the verdict, taken while there is still disk

SCHEMA = 1
RESERVED_BYTES = 4096  # one block of every common file system; a verdict is under 2 KB
SMALL_FILE_BYTES = 1 << 20  # no order, claim or verdict is larger
EVIDENCE_CHARS = 500

Document = Dict[str, Any]


def read_document(path: str) -> Document | None:
    """Return the JSON object in a small file; None where it is absent, torn, or no object."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(SMALL_FILE_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; raises OSError where the disk takes only some of them."""
    if os.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_durably(path: str, data: bytes) -> None:
    """Write a small file atomically and synced; raises OSError."""
    part = "%s.%d.part" % (path, os.getpid())
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(part, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Make the folder's entries durable, where the file system can."""
    try:
        fd = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def claim_once(path: str, data: bytes) -> bool:
    """Make `path` with its whole content in one step; False where it is there already.

    A hard link does both at once. O_EXCL, the way where links are not to be had, may leave an empty
    claim if the machine dies in between: it then counts as foreign, which is safe.
    """
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.unlink(part)
    sync_folder(os.path.dirname(path))
    return True


def count_start(folder: str) -> int:
    """Return how many trainers were started here, this one included; durable before it returns."""
    fd = os.open(os.path.join(folder, STARTS), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        write_all(fd, b"+")
        os.fsync(fd)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    sync_folder(folder)
    return size


def size_of(path: str) -> int:
    """Return a file's size in bytes, 0 where it is absent."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def free_bytes(folder: str) -> int | None:
    """Return what the folder's disk has left for us, None where it does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def reserve_exit(folder: str) -> None:
    """Take the disk blocks of the verdict now, so that a full disk can't keep it back."""
    write_durably(os.path.join(folder, EXIT_PART), b" " * RESERVED_BYTES)


def publish_exit(folder: str, document: Document) -> bool:
    """Write the verdict, once, last; False where one is there already. Raises OSError.

    It goes into the reserved blocks, is synced, and then gets its name.
    """
    document = dict(document, evidence=str(document.get("evidence", ""))[:EVIDENCE_CHARS])
    data = json.dumps(document).encode()
    data += b" " * (RESERVED_BYTES - 1 - len(data)) + b"\n"
    part = os.path.join(folder, EXIT_PART)
    final = os.path.join(folder, EXIT)
    if os.path.exists(final):
        return False
    fd = os.open(part, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(part, final)
    sync_folder(folder)
    return True


def write_heartbeat(folder: str, document: Document) -> None:
    """Replace the heartbeat atomically; on a full disk overwrite it where it stands."""
    path = os.path.join(folder, HEARTBEAT)
    data = json.dumps(document).encode()
    data += b" " * (1023 - len(data)) + b"\n"
    part = path + ".part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except OSError:
        try:
            with open(path, "r+b") as file:
                file.write(data)
        except OSError:
            pass


def append_line(path: str, document: Document) -> None:
    """Append one JSON line with one write, so that it never mixes with another writer's."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        write_all(fd, json.dumps(document, allow_nan=False).encode() + b"\n")
    finally:
        os.close(fd)
