"""Pushing to a second folder: copied beside it, read back, put in place by one rename."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from orchestrator.artifacts.push import (
    CHUNK,
    File,
    Order,
    PushFault,
    Tell,
    sha256_of,
    with_manifest,
)

NAMES = 100  # out, out-2, ... out-100
_PASSING = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EHOSTDOWN, errno.EAGAIN})


def push(order: Order, tell: Tell) -> str:
    """Return the folder that has the result, whole; what is in the way is never touched."""
    wished = Path(order.target)
    files = with_manifest(order)
    try:
        for number in range(1, NAMES + 1):
            folder = wished if number == 1 else wished.with_name(f"{wished.name}-{number}")
            if has_all(folder, files):
                return str(folder)
            if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
                _copy(Path(order.folder), folder, files, f".{order.revision}.part", tell)
                return str(folder)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        remedy = "Make room, or mend its permissions"
        raise PushFault(words, remedy, retry=error.errno in _PASSING) from error
    raise PushFault(f"{NAMES} names after it are taken", "Name another folder")


def check(target: str) -> tuple[str, ...]:
    """Write and remove a probe in the nearest folder that is there; raises PushFault."""
    place = Path(target)
    while not place.exists() and place != place.parent:
        place = place.parent
    probe = place / f".gpujob-probe-{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise PushFault(f"{place} can't be written: {words}", "Mend its permissions") from error
    return ()


def has_all(folder: Path, files: tuple[File, ...]) -> bool:
    """Return whether a folder holds all files with their content."""
    return all(
        (folder / name).is_file()
        and not (folder / name).is_symlink()
        and (folder / name).stat().st_size == size
        and sha256_of(folder / name) == sha256
        for name, size, sha256 in files
    )


def _copy(source: Path, folder: Path, files: tuple[File, ...], part: str, tell: Tell) -> None:
    total, done = sum(size for _, size, _ in files), 0
    beside = folder.with_name(folder.name + part)
    if beside.is_symlink():
        raise PushFault(f"{beside} is a symlink", "Take it away")
    beside.mkdir(parents=True, exist_ok=True)
    try:
        for name, size, sha256 in files:
            path = beside / name
            if not (path.is_file() and path.stat().st_size == size and sha256_of(path) == sha256):
                path.unlink(missing_ok=True)
                path.parent.mkdir(exist_ok=True)
                with (source / name).open("rb") as reader, path.open("xb") as writer:
                    shutil.copyfileobj(reader, writer, CHUNK)
                    writer.flush()
                    os.fsync(writer.fileno())
            done += size
            tell(done, total)
        if not has_all(beside, files):
            raise PushFault("what was written reads back otherwise", "Look at its disk", retry=True)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            shutil.rmtree(beside, ignore_errors=True)  # a full disk is not left fuller
        raise
    if folder.exists():
        folder.rmdir()
    beside.rename(folder)
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
