"""The near end of a transfer: files over one remote command's pipes, resumable and checked.

One command carries everything: the far end's source (`ferry.py`, compressed), then requests as
JSON, each followed by its bytes. Compared with SFTP this costs a fifth of the CPU time, resumes by
comparing hashes instead of sizes, and opens remote files with O_NOFOLLOW, which SFTP cannot
express. Compared with a command for each file it saves a shell's and a Python's start, some 0.2 s.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shlex
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from orchestrator.remote import Parcel, Progress, RemoteFailed, ShellError

CHUNK_BYTES = 1 << 18  # per write: small enough for a lively bar, large enough to cost nothing
READ_BYTES = 1 << 21  # all that paramiko's window holds: a smaller read moves the rest in memory
MAX_LINE_BYTES = 1 << 22  # an answer of the far end; a manifest of 2,000 files needs 0.4 MB
MAX_BUSY = 4000  # signs of life in a row, 5 s apart: the hash of a file beyond every bound
LEVEL = 1  # zlib: records shrink to 28 % at 115 MB/s of one core; level 6 to 22 % at 22 MB/s
WORTH_IT = 0.85  # compress where a sample shrinks below this share
SAMPLE_BYTES = 1 << 16

# Images keep python3 in places that a non-interactive login does not search.
_PATHS = "/usr/local/bin:/opt/conda/bin:$HOME/miniconda3/bin"
_BOOT = "import sys,zlib;r=sys.stdin.buffer;exec(zlib.decompress(r.read(int(r.readline()))))"
COMMAND = (
    f'PATH="$PATH:{_PATHS}"; export PATH; command -v python3 >/dev/null || exit 127; '
    f"exec python3 -IS -c {shlex.quote(_BOOT)}"
)


class Pipe(Protocol):
    """One running remote command. Every call is bounded in time and raises only ShellError."""

    def write(self, data: bytes) -> None:
        """Send to its standard input."""
        ...

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes of its standard output; b"" at the end."""
        ...

    def finish(self) -> int:
        """Close its input and return its exit status."""
        ...


@functools.cache
def _source() -> bytes:
    packed = zlib.compress(Path(__file__).with_name("ferry.py").read_bytes(), 9)
    return b"%d\n%s" % (len(packed), packed)


class Ferry:
    """The near end of one running far end; one request at a time. After an error it is useless."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._buffer = b""
        pipe.write(_source())

    def ask(self, request: Mapping[str, Any], data: bytes = b"") -> dict[str, Any]:
        """Make one request and return its answer. Raises RemoteFailed for a failure of the host."""
        self._say(request, data)
        return self._answer()

    def write(self, folder: str, parcels: tuple[Parcel, ...]) -> None:
        """Write small files in one round trip, each atomically and checked. See `Shell.write`."""
        files = [
            (parcel.path, len(parcel.data), hashlib.sha256(parcel.data).hexdigest(), parcel.mode)
            for parcel in parcels
        ]
        block = zlib.compress(b"".join(parcel.data for parcel in parcels), 9)
        self.ask({"do": "write", "folder": folder, "files": files, "packed": len(block)}, block)

    def put(
        self,
        local: Path,
        remote: str,
        *,
        progress: Progress | None = None,
        compress: bool | None = None,
        mode: int = 0o600,
    ) -> str:
        """Send one file; returns its sha256 in hex. See `Shell.put`."""
        with local.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            request = {"do": "receive", "path": remote, "bytes": total, "mode": mode}
            offer = self.ask(request)
            if offer.get("whole"):
                mine = _hashed(file, total)
                if mine is not None and mine.hexdigest() == offer["whole"]:
                    self.ask({"from": -1})
                    _tell(progress, total, total)
                    return mine.hexdigest()
            have = _number(offer, "have", total)
            hasher = _hashed(file, have)
            if hasher is None or hasher.hexdigest() != offer.get("sha256"):
                have, hasher = 0, hashlib.sha256()
            packed = _shrinks(file, total) if compress is None else compress
            try:
                self._say({"from": have, "packed": packed})
                for data in _blocks(file, have, total, hasher, packed=packed, progress=progress):
                    self._pipe.write(struct.pack(">I", len(data)) + data)
                self._say({"sha256": hasher.hexdigest()}, before=struct.pack(">I", 0))
            except RemoteFailed:
                raise
            except ShellError:
                self._reason()
                raise
            self._answer()
            return hasher.hexdigest()

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        """Fetch one file; returns its sha256 in hex. See `Shell.get`.

        Nothing the far end says is trusted: its size is bounded, and no byte beyond it is read.
        """
        part = local.with_name(local.name + ".part")
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            have = os.fstat(descriptor).st_size
            head = self.ask({"do": "send", "path": remote, "have": have, "max_bytes": max_bytes})
            total = _number(head, "bytes", max_bytes)
            start = min(_number(head, "have", have), total)
            hasher = _hashed(file, start)
            if hasher is None or hasher.hexdigest() != head.get("sha256"):
                start, hasher = 0, hashlib.sha256()
            file.truncate(start)
            file.seek(start)
            self._say({"from": start})
            for data in self._raw(total - start):
                file.write(data)
                hasher.update(data)
                start += len(data)
                _tell(progress, start, total)
            file.flush()
            os.fsync(descriptor)
        part.replace(local)
        return hasher.hexdigest()

    def tail(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        """Yield what a growing file has from `offset` on. See `Shell.read_from`."""
        head = self.ask({"do": "tail", "path": remote, "offset": offset, "max_bytes": max_bytes})
        yield from self._raw(_number(head, "bytes", max_bytes))

    def _say(self, document: Mapping[str, Any], data: bytes = b"", before: bytes = b"") -> None:
        self._pipe.write(before + json.dumps(document).encode() + b"\n" + data)

    def _answer(self) -> dict[str, Any]:
        """Return the next answer; raises RemoteFailed for a failure, ShellError at an early end."""
        for _ in range(MAX_BUSY):
            document = _parsed(self._line())
            if "error" in document:
                raise RemoteFailed(str(document["error"])[:500], code=str(document.get("code")))
            if "busy" not in document:
                return document
        raise ShellError("the far end of the transfer is busy without end")

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            data = self._pipe.read(READ_BYTES)
            if not data:
                raise self._gone()
            self._buffer += data
            if len(self._buffer) > MAX_LINE_BYTES:
                raise RemoteFailed("an answer without end", code="noisy")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _raw(self, left: int) -> Iterator[bytes]:
        """Yield exactly that many bytes of what follows the last answer."""
        while left > 0:
            size = min(READ_BYTES, left)
            data, self._buffer = self._buffer[:size], self._buffer[size:]
            data = data or self._pipe.read(size)
            if not data:
                raise self._gone()
            left -= len(data)
            yield data

    def _gone(self) -> ShellError:
        status = self._pipe.finish()
        if status == 127:
            return RemoteFailed("there is no python3 on the instance", code="no_python")
        return ShellError(f"the far end of the transfer ended with {status}")

    def _reason(self) -> None:
        """Raise RemoteFailed if the far end could say why it stopped listening."""
        try:
            self._answer()
        except RemoteFailed:
            raise
        except ShellError:
            pass


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RemoteFailed(f"an answer that is not JSON: {line[:80]!r}", code="noisy") from error
    if not isinstance(document, dict):
        raise RemoteFailed(f"an answer of the wrong shape: {line[:80]!r}", code="noisy")
    return document


def _number(document: Mapping[str, Any], key: str, limit: int) -> int:
    value = document.get(key)
    if type(value) is not int or not 0 <= value <= limit:
        raise RemoteFailed(f"an impossible {key}: {str(value)[:40]}", code="too_big")
    return value


def _hashed(file: IO[bytes], size: int) -> hashlib._Hash | None:
    """Return the hasher of the first `size` bytes; None where there are fewer."""
    file.seek(0)
    hasher = hashlib.sha256()
    while size > 0:
        data = file.read(min(1 << 20, size))
        if not data:
            return None
        hasher.update(data)
        size -= len(data)
    return hasher


def _shrinks(file: IO[bytes], total: int) -> bool:
    """Return whether samples from the start and the middle compress well."""
    sample = b""
    for place in (0, total // 2):
        file.seek(place)
        sample += file.read(SAMPLE_BYTES)
    return total > 512 and len(zlib.compress(sample, 1)) < WORTH_IT * len(sample)


def _blocks(
    file: IO[bytes],
    start: int,
    total: int,
    hasher: hashlib._Hash,
    *,
    packed: bool,
    progress: Progress | None,
) -> Iterator[bytes]:
    """Yield the file from `start` in blocks, none empty; a zlib stream runs through all of them."""
    deflate = zlib.compressobj(LEVEL)
    file.seek(start)
    while start < total:
        data = file.read(min(CHUNK_BYTES, total - start))
        if not data:
            raise RemoteFailed("the local file became shorter while it was sent", code="changed")
        hasher.update(data)
        start += len(data)
        if out := deflate.compress(data) if packed else data:
            yield out
        _tell(progress, start, total)
    if packed:
        yield deflate.flush()


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
