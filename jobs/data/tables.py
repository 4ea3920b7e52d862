"""Tables and plain text as chunks of rows: CSV, Parquet (pyarrow, an extra), paragraphs."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from .chunks import CHUNK_BYTES, CHUNK_ROWS, MAX_LINE_BYTES, Chunk, Issue
from .encodings import guess


def csv_rows(file: str, stream: Any, *, tab: bool) -> Iterator[Chunk]:
    """Yield chunks of a CSV file's rows as dicts; the separator is read off the header."""
    csv.field_size_limit(MAX_LINE_BYTES)
    chunk = Chunk(file, 1, 0, kind="csv")
    text = _Lines(stream)
    line = 1
    try:
        first = next(text, "")
        if first.endswith("\r\n"):
            chunk.issues.append(Issue(1, "crlf", "lines end with CR LF"))
        separator = "\t" if tab else max(",;\t|", key=first.count)
        header = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
        repeated = {name for name in header if header.count(name) > 1}
        if repeated:
            chunk.issues.append(
                Issue(1, "duplicate_key", f"the header names {', '.join(sorted(repeated))} twice")
            )
        reader = csv.reader(text, delimiter=separator, strict=True)
        line = 2
        held = 0
        for row in reader:
            held += sum(map(len, row))
            if len(row) == len(header):
                chunk.rows.append((line, dict(zip(header, row, strict=True))))
            elif any(cell.strip() for cell in row):
                chunk.issues.append(
                    Issue(line, "csv_columns", f"{len(row)} cells, the header has {len(header)}")
                )
            line = reader.line_num + 2
            if len(chunk.rows) >= CHUNK_ROWS or held > CHUNK_BYTES:
                yield chunk
                chunk, held = Chunk(file, line, 0, kind="csv"), 0
        if not chunk.rows and chunk.first_line == 1 and not chunk.issues:
            chunk.issues.append(Issue(0, "empty_file", "there is a header and no row"))
    except UnicodeDecodeError as error:
        chunk.issues.append(_not_utf8(error, text.line))
    except csv.Error as error:
        code = "truncated_last_line" if "unexpected end" in str(error) else "csv_columns"
        chunk.issues.append(Issue(line, code, f"the table breaks here: {error}"))
    chunk.last = True
    yield chunk


class _Lines:
    """The lines of a byte stream as text, their ends kept; `line` is the last one begun."""

    def __init__(self, stream: Any) -> None:
        self.source = iter(io.BufferedReader(stream))
        self.line = 0
        self.ready: list[str] = []  # of a file whose lines end with CR alone

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if not self.ready:
            raw = next(self.source)
            self.line += 1
            text = raw.decode()
            if "\r" not in text.rstrip("\r\n"):
                return text
            self.ready = text.splitlines(keepends=True) if '"' not in text else [text]
        return self.ready.pop(0)


def _not_utf8(error: UnicodeDecodeError, line: int) -> Issue:
    name = guess(error.object)
    return Issue(
        line,
        "encoding",
        f"not UTF-8 at byte {error.start} of the line; it looks like {name}: --encoding {name}",
        error.start + 1,
    )


def parquet(file: str, disk: Any) -> Iterator[Chunk]:
    """Yield chunks of a Parquet file's rows; the row number counts as the line."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        issue = Issue(0, "unsupported_file", "reading Parquet needs: pip install pyarrow")
        yield Chunk(file, 0, 0, issues=[issue], last=True)
        return
    from pyarrow import ArrowException

    line = 1
    try:
        for batch in pq.ParquetFile(disk).iter_batches(batch_size=CHUNK_ROWS // 8):
            rows = list(enumerate(batch.to_pylist(), line))
            yield Chunk(file, line, 0, rows=[(n, r) for n, r in rows], kind="parquet")
            line += len(rows)
        issues = [] if line > 1 else [Issue(0, "empty_file", "there is no row in this file")]
    except (ArrowException, OSError, ValueError) as error:
        issues = [Issue(line, "truncated_file", f"Parquet cannot be read: {str(error)[:200]}")]
    yield Chunk(file, line, 0, issues=issues, kind="parquet", last=True)


def paragraphs(file: str, stream: Any) -> Iterator[Chunk]:
    """Yield chunks of {"text": ...} rows: plain text split at blank lines."""
    chunk = Chunk(file, 1, 0, kind="text")
    block: list[str] = []
    start = line = size = held = 0
    crlf = False
    try:
        for line, raw in enumerate(io.BufferedReader(stream), 1):
            text = raw.decode()
            crlf = crlf or text.endswith("\r\n")
            if text.strip() and size < MAX_LINE_BYTES:
                start = start or line
                block.append(text.rstrip("\r\n"))
                size += len(text)
                continue
            if block:
                chunk.rows.append((start, {"text": "\n".join(block)}))
                held += size
                block, start, size = [], 0, 0
            if len(chunk.rows) >= CHUNK_ROWS or held > CHUNK_BYTES:
                yield chunk
                chunk, held = Chunk(file, line, 0, kind="text"), 0
    except UnicodeDecodeError as error:
        chunk.issues.append(_not_utf8(error, line))
    if block:
        chunk.rows.append((start, {"text": "\n".join(block)}))
    if crlf:
        chunk.issues.append(Issue(1, "crlf", "lines end with CR LF"))
    chunk.last = True
    yield chunk
