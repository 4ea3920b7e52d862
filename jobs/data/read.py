"""Files as chunks: JSON Lines, arrays, CSV, Parquet, text, also compressed; folders of them.

Nothing here holds more than a few megabytes of any file.
"""

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from . import arrays, tables
from .chunks import CHUNK_BYTES, MAX_LINE_BYTES, Chunk, Issue
from .encodings import BOMS, Recoder, guess

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".jsonlines": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
    ".text": "text",
}
COMPRESSED = (".gz", ".zst", ".zstd")
_PEEK_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"
_WRAPPED = re.compile(r'\{\s*"(?:' + "|".join(arrays.WRAPPERS) + r')"\s*:\s*\[\s*\{')


class ReadError(Exception):
    """A file that cannot be read at all; carries the code of its finding."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the finding's code and what to say."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read and how."""

    path: Path
    kind: str
    compression: str = ""

    @property
    def name(self) -> str:
        """Return the path as the user gave it."""
        return str(self.path)


def expand(path: Path) -> list[Source]:
    """Return the sources of a file or of a folder (sorted, files of unknown kinds left out).

    Raises ReadError: missing_file, unsupported_file, empty_file (a folder with nothing to read).
    """
    if path.is_dir():
        found = [
            s for p in sorted(path.rglob("*")) if p.is_file() and (s := _source(p)) is not None
        ]
        if not found:
            raise ReadError("empty_file", f"{path}: no data file in this folder")
        return found
    if not path.exists():
        raise ReadError("missing_file", f"{path}: no such file")
    source = _source(path)
    if source is None:
        raise ReadError(
            "unsupported_file", f"{path}: unknown kind of file {path.suffix or '(no suffix)'}"
        )
    return [source]


def _source(path: Path) -> Source | None:
    suffixes = [s.lower() for s in path.suffixes]
    compression = ""
    if suffixes and suffixes[-1] in COMPRESSED:
        compression = "gz" if suffixes.pop() == ".gz" else "zst"
    kind = SUFFIXES.get(suffixes[-1] if suffixes else "")
    if kind is None or path.name.startswith((".", "README", "LICENSE")):
        return None
    return Source(path, kind, compression)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as stored."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def chunks(
    source: Source, encoding: str = "utf-8", on_bytes: Callable[[int], None] | None = None
) -> Iterator[Chunk]:
    """Yield the chunks of a file, always cut at the same places.

    `on_bytes` hears the bytes read from disk so far. Problems come as issues in the chunks;
    OSError, ReadError (a reader that is not installed) and UnicodeError (--encoding) pass.
    """
    with source.path.open("rb") as disk:
        counted = _Counted(disk, on_bytes)
        if source.kind == "parquet":
            yield from tables.parquet(source.name, disk)
            return
        try:
            yield from _decompressed(source, counted, encoding)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            issue = Issue(
                0,
                "truncated_file",
                f"the {source.compression} stream ends or breaks early: {error}",
            )
            yield Chunk(source.name, 0, 0, issues=[issue], last=True)


def _decompressed(source: Source, counted: "_Counted", encoding: str) -> Iterator[Chunk]:
    stream: IO[bytes] = cast("IO[bytes]", counted)
    if source.compression == "gz":
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    elif source.compression == "zst":
        stream = _zstd(stream)
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        stream = cast("IO[bytes]", Recoder(stream, encoding))
    head = stream.read(_PEEK_BYTES)
    wide = next((name for mark, name in BOMS if head.startswith(mark)), None)
    if wide:
        issue = Issue(
            1,
            "encoding",
            f"the file is {wide}, not UTF-8 (byte order mark at byte 0); try --encoding {wide}",
        )
        yield Chunk(source.name, 1, 0, issues=[issue], last=True)
        return
    issues = (
        [Issue(1, "bom", "the file begins with a byte order mark")] if head.startswith(_BOM) else []
    )
    head = head.removeprefix(_BOM)
    if not head.strip():
        rest = stream.read(1)
        if not rest:
            issues.append(Issue(0, "empty_file", "there is no record in this file"))
            yield Chunk(source.name, 1, 0, issues=issues, last=True)
            return
        head += rest
    kind = source.kind if source.kind != "jsonl" else _shape(head)
    if issues:
        yield Chunk(source.name, 1, 0, issues=issues)
    joined = _Joined(head, stream)
    if kind == "csv":
        yield from tables.csv_rows(source.name, joined, tab=".tsv" in source.path.name.lower())
    elif kind == "text":
        yield from tables.paragraphs(source.name, joined)
    elif kind == "jsonl":
        yield from lines(source.name, joined)
    else:
        plain_json = (
            source.path.name.lower().removesuffix(".gz").removesuffix(".zst").endswith(".json")
        )
        yield from arrays.values(source.name, joined, kind, told=not plain_json)


def _shape(head: bytes) -> str:
    """Return what a JSON file is by its first bytes: jsonl, array, or stream (pretty-printed)."""
    text = head.decode("utf-8", "replace").lstrip()
    first, _, rest = text.partition("\n")
    if text.startswith("["):
        try:
            whole = isinstance(json.loads(first), list)
        except ValueError:
            return "array"
        return "jsonl" if whole and rest.strip() else "array"
    if text.startswith("{"):
        if _WRAPPED.match(text):
            try:
                json.loads(first)
            except ValueError:
                return "stream"
            return "jsonl" if rest.strip() else "stream"
        try:
            json.loads(first)
        except ValueError:
            return "stream" if _spans_lines(text) else "jsonl"
    return "jsonl"


def _spans_lines(text: str) -> bool:
    """Return whether one value reaches over several lines, as a pretty printer writes it."""
    lines = text.split("\n", 2)
    if len(lines) < 2 or (
        lines[0].strip() not in ("{", "{}") and not lines[0].rstrip().endswith((",", "{", "["))
    ):
        return False
    try:
        return "\n" in text[: json.JSONDecoder().raw_decode(text)[1]]
    except json.JSONDecodeError as error:
        return error.pos >= len(text) - 2 or "Unterminated" in error.msg


def lines(file: str, stream: Any) -> Iterator[Chunk]:
    """Yield chunks of whole lines from a byte stream, the last one marked."""
    offset, line = 0, 1
    carry = b""
    ready: Chunk | None = None
    while True:
        block = stream.read(CHUNK_BYTES)
        if block and len(carry) > MAX_LINE_BYTES and b"\n" not in block:
            carry = carry[: MAX_LINE_BYTES + 1]  # drop the middle of a monstrous line
            continue
        data = carry + block
        if block:
            cut = data.rfind(b"\n") + 1
            if not cut:
                carry = data
                continue
            carry, data = data[cut:], data[:cut]
        if ready is not None and data.strip():
            yield ready
            ready = None
        elif ready is not None and not block:
            ready.last = True
            yield ready
            return
        elif ready is not None:
            ready.data = (ready.data or b"") + data  # blank lines: the chunk before may be the last
            offset += len(data)
            line += data.count(b"\n")
            continue
        ready = Chunk(file, line, offset, data=data)
        offset += len(data)
        line += data.count(b"\n")
        if not block:
            ready.last = True
            yield ready
            return


def _zstd(stream: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise ReadError("unsupported_file", "reading .zst needs: pip install zstandard") from None
    return cast("IO[bytes]", _Zstd(stream, zstandard))


class _Zstd:
    """Zstandard frames as one byte stream. EOFError for a broken or unfinished frame."""

    def __init__(self, stream: IO[bytes], zstandard: Any) -> None:
        self.stream = stream
        self.zstd = zstandard
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.begun = False
        self.ready = b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self.ready) < size:
            block = self.stream.read(1 << 16)
            if not block:
                if self.begun and not self.frame.eof:
                    raise EOFError("the last frame is not closed")
                break
            try:
                while block:
                    self.begun = True
                    self.ready += self.frame.decompress(block)
                    block = self.frame.unused_data if self.frame.eof else b""
                    if self.frame.eof:
                        self.frame = self.zstd.ZstdDecompressor().decompressobj()
                        self.begun = False
            except self.zstd.ZstdError as error:
                raise EOFError(str(error)) from error
        if size < 0:
            size = len(self.ready)
        out, self.ready = self.ready[:size], self.ready[size:]
        return out


class _Counted:
    """A byte stream that reports how far it was read."""

    def __init__(self, disk: IO[bytes], on_bytes: Callable[[int], None] | None) -> None:
        self.disk = disk
        self.on_bytes = on_bytes
        self.total = 0

    def read(self, size: int = -1) -> bytes:
        block = self.disk.read(size)
        self.total += len(block)
        if self.on_bytes:
            self.on_bytes(self.total)
        return block

    def readable(self) -> bool:
        return True

    closed = False


class _Joined(io.RawIOBase):
    """A stream with some bytes put back in front."""

    def __init__(self, head: bytes, rest: Any) -> None:
        super().__init__()
        self.head = head
        self.rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def read(self, size: int = -1) -> bytes:
        if self.head:
            block, self.head = (
                (self.head, b"") if size < 0 else (self.head[:size], self.head[size:])
            )
            return block + self.rest.read() if size < 0 else block
        return cast("bytes", self.rest.read(size))


__all__ = ["SUFFIXES", "ReadError", "Source", "chunks", "expand", "guess", "lines", "sha256"]
