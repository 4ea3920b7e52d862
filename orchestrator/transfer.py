"""The near end of a transfer: files over one remote command's pipes, resumable and checked.

One command carries everything: the far end's source (`ferry.py`, compressed), a request as JSON,
then the bytes. Compared with SFTP this costs a fifth of the CPU time, resumes by comparing hashes
instead of sizes, and opens remote files with O_NOFOLLOW, which SFTP cannot express.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shlex
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from orchestrator.remote import Progress, RemoteFailed, Shell, ShellError

CHUNK_BYTES = 1 << 18  # per write: small enough for a lively bar, large enough to cost nothing
MAX_LINE_BYTES = 1 << 20  # an answer of the far end; a survey of 2,000 files needs 0.2 MB
LEVEL = 4  # zlib: JSON Lines shrink about 4:1 at some 60 MB/s of one core
WORTH_IT = 0.85  # compress where a sample shrinks below this share

# Images keep python3 in places that a non-interactive login does not search.
_PATHS = "/usr/local/bin:/opt/conda/bin:/root/miniconda3/bin"
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


def prelude(request: Mapping[str, Any]) -> bytes:
    """Return what precedes the data on the far end's standard input."""
    return _source() + _line(request)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


class Answers:
    """The far end's standard output: JSON lines first, raw bytes after."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._buffer = b""

    def next(self) -> dict[str, Any]:
        """Return the next answer; raises RemoteFailed for a failure, ShellError at an early end."""
        while True:
            while b"\n" not in self._buffer:
                data = self._read(1 << 15)
                if not data:
                    raise ShellError("the far end of the transfer went away")
                self._buffer += data
                if len(self._buffer) > MAX_LINE_BYTES:
                    raise RemoteFailed("an answer without end", code="noisy")
            line, _, self._buffer = self._buffer.partition(b"\n")
            document = _parsed(line)
            if "error" in document:
                raise RemoteFailed(str(document["error"])[:500], code=str(document.get("code")))
            if "busy" not in document:
                return document

    def raw(self, size: int) -> bytes:
        """Return at most `size` bytes of what follows the last answer; b"" at the end."""
        if self._buffer:
            data, self._buffer = self._buffer[:size], self._buffer[size:]
            return data
        return self._read(size)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RemoteFailed(f"an answer that is not JSON: {line[:80]!r}", code="noisy") from error
    if not isinstance(document, dict):
        raise RemoteFailed(f"an answer of the wrong shape: {line[:80]!r}", code="noisy")
    return document


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


def shrinks(file: IO[bytes], total: int) -> bool:
    """Return whether samples from the start and the middle compress well."""
    sample = b""
    for place in (0, total // 2):
        file.seek(place)
        sample += file.read(1 << 16)
    return total > 512 and len(zlib.compress(sample, 1)) < WORTH_IT * len(sample)


def send_file(
    pipe: Pipe,
    local: Path,
    remote: str,
    *,
    progress: Progress | None = None,
    compress: bool | None = None,
    mode: int = 0o600,
) -> str:
    """Send one file through a pipe that runs COMMAND; returns its sha256 in hex."""
    answers = Answers(pipe.read)
    with local.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        pipe.write(prelude({"do": "receive", "path": remote, "bytes": total, "mode": mode}))
        offer = answers.next()
        if offer.get("whole"):
            mine = _hashed(file, total)
            if mine is not None and mine.hexdigest() == offer["whole"]:
                pipe.write(_line({"from": -1}))
                answers.next()
                _tell(progress, total, total)
                return mine.hexdigest()
        have = _number(offer, "have", total)
        hasher = _hashed(file, have)
        if hasher is None or hasher.hexdigest() != offer.get("sha256"):
            have, hasher = 0, hashlib.sha256()
        packed = shrinks(file, total) if compress is None else compress
        try:
            pipe.write(_line({"from": have, "packed": packed}))
            _pour(pipe, file, have, total, hasher, packed=packed, progress=progress)
        except ShellError:
            _reason(answers)
            raise
        answers.next()
        return hasher.hexdigest()


def _reason(answers: Answers) -> None:
    """Raise RemoteFailed if the far end could say why it stopped listening."""
    try:
        answers.next()
    except RemoteFailed:
        raise
    except ShellError:
        pass


def _pour(
    pipe: Pipe,
    file: IO[bytes],
    start: int,
    total: int,
    hasher: hashlib._Hash,
    *,
    packed: bool,
    progress: Progress | None,
) -> None:
    """Send the file from `start` as length-prefixed blocks, an empty one, and the sha256 of all."""
    deflate = zlib.compressobj(LEVEL)
    done = start
    file.seek(start)
    while done < total:
        data = file.read(min(CHUNK_BYTES, total - done))
        if not data:
            raise RemoteFailed("the local file became shorter while it was sent", code="changed")
        hasher.update(data)
        done += len(data)
        _block(pipe, deflate.compress(data) if packed else data)
        _tell(progress, done, total)
    if packed:
        _block(pipe, deflate.flush())
    pipe.write(struct.pack(">I", 0) + _line({"sha256": hasher.hexdigest()}))


def _block(pipe: Pipe, data: bytes) -> None:
    if data:
        pipe.write(struct.pack(">I", len(data)) + data)


def fetch_file(
    pipe: Pipe, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
) -> str:
    """Fetch one file through a pipe that runs COMMAND; returns its sha256 in hex.

    Nothing the far end says is trusted: its size is bounded, and no byte beyond that size is read.
    """
    part = local.with_name(local.name + ".part")
    answers = Answers(pipe.read)
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        have = os.fstat(descriptor).st_size
        pipe.write(prelude({"do": "send", "path": remote, "have": have, "max_bytes": max_bytes}))
        head = answers.next()
        total = _number(head, "bytes", max_bytes)
        start = min(_number(head, "have", have), total)
        hasher = _hashed(file, start)
        if hasher is None or hasher.hexdigest() != head.get("sha256"):
            start, hasher = 0, hashlib.sha256()
        file.truncate(start)
        file.seek(start)
        pipe.write(_line({"from": start}))
        while start < total:
            data = answers.raw(min(1 << 15, total - start))
            if not data:
                file.flush()
                raise ShellError(f"the transfer ended after {start:,} of {total:,} bytes")
            file.write(data)
            hasher.update(data)
            start += len(data)
            _tell(progress, start, total)
        file.flush()
        os.fsync(descriptor)
    part.replace(local)
    return hasher.hexdigest()


def _number(document: Mapping[str, Any], key: str, limit: int) -> int:
    value = document.get(key)
    if type(value) is not int or not 0 <= value <= limit:
        raise RemoteFailed(f"an impossible {key}: {str(value)[:40]}", code="too_big")
    return value


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A small file to write: path relative to a folder, content, mode."""

    path: str
    data: bytes
    mode: int = 0o600


def write_files(shell: Shell, folder: str, parcels: Iterable[Parcel], *, timeout_s: float) -> None:
    """Write small files in one round trip, compressed together, each atomically and checked."""
    parcels = tuple(parcels)
    entries = [
        (parcel.path, len(parcel.data), hashlib.sha256(parcel.data).hexdigest(), parcel.mode)
        for parcel in parcels
    ]
    block = zlib.compress(b"".join(parcel.data for parcel in parcels), 9)
    request = {"do": "write", "folder": folder, "files": entries, "packed": len(block)}
    ask(shell, request, block, timeout_s=timeout_s)


def ask(
    shell: Shell, request: Mapping[str, Any], data: bytes = b"", *, timeout_s: float
) -> dict[str, Any]:
    """Run one request of the far end to its end and return its answer."""
    end = shell.run(COMMAND, stdin=prelude(request) + data, timeout_s=timeout_s)
    if end.rc == 127:
        raise RemoteFailed("there is no python3 on the instance", code="no_python")
    output = iter((end.stdout, b""))
    try:
        return Answers(lambda _: next(output)).next()
    except RemoteFailed:
        raise
    except ShellError:
        said = end.stderr.decode("utf-8", "replace").strip()[-300:]
        raise RemoteFailed(
            f"the transfer's far end ended with {end.rc}: {said}", code="os"
        ) from None
