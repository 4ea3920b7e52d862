"""Logs as bytes: pulled from the instance by offset, followed on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.remote import RemoteFailed, Shell, ShellError

PULL_BYTES = 1 << 26  # a call at most: with 100 MB/s some 0.6 s, so that the runner stays awake
WRITE_BYTES = 1 << 20
FOLLOW_BYTES = 1 << 18
FOLLOW_EVERY_S = 0.2  # a person does not see less


def pull(
    shell: Shell, remote: str, local: Path, offset: int, *, max_bytes: int = PULL_BYTES
) -> int:
    """Append to `local` what `remote` has from `offset` on, fsync, and return the new offset.

    `local` is first cut back to `offset`, the one committed last: bytes beyond it were written by a
    process that died before it could commit them. If `local` is shorter (a person removed it), the
    missing part is fetched again. A connection that dies keeps what came before it; ShellError is
    raised only if nothing came. RemoteFailed("changed") if the remote file became shorter.
    """
    local.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(local, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=WRITE_BYTES) as file:
        offset = min(offset, os.fstat(descriptor).st_size)
        file.truncate(offset)
        file.seek(offset)
        came = 0
        try:
            for data in shell.read_from(remote, offset, max_bytes=max_bytes):
                file.write(data)
                came += len(data)
        except ShellError as error:
            if isinstance(error, RemoteFailed) or not came:
                raise
        if came:
            file.flush()
            os.fsync(descriptor)
        return offset + came


def follow(
    path: Path, clock: Clock, *, over: Callable[[], bool], offset: int = 0
) -> Iterator[bytes]:
    """Yield the bytes of a local file from `offset` as it grows, until `over` and its end.

    The file may not be there yet, and may be cut back a little while it is read (a pull begun
    anew): the bytes that come again are the same ones, so reading goes on where it was.
    """
    while True:
        last = over()  # before the read: what was written before the end is still read
        size = path.stat().st_size if path.exists() else 0
        if size > offset:
            with path.open("rb") as file:
                file.seek(offset)
                while data := file.read(FOLLOW_BYTES):
                    offset += len(data)
                    yield data
        elif last:
            return
        else:
            clock.sleep(FOLLOW_EVERY_S)


def offset_of_last_lines(path: Path, lines: int) -> int:
    """Return where the last `lines` lines of a file start; reads backwards, no more than needed."""
    with path.open("rb") as file:
        start = size = os.fstat(file.fileno()).st_size
        left = lines + 1
        while start > 0:
            step = min(1 << 16, start)
            start -= step
            file.seek(start)
            block = file.read(step)
            if start + step == size and not block.endswith(b"\n"):
                left -= 1  # the last line has no end yet
            place = len(block)
            while left and (place := block.rfind(b"\n", 0, place)) >= 0:
                left -= 1
                if not left:
                    return start + place + 1
        return 0
