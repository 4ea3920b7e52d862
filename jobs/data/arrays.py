"""JSON that is not one record a line: an array, a wrapped array, or pretty-printed values."""

import codecs
import json
from collections.abc import Iterator
from typing import Any

from .chunks import CHUNK_BYTES, CHUNK_ROWS, MAX_LINE_BYTES, Chunk, Issue
from .encodings import guess
from .parse import DuplicateKeyError, decoder, explain

_BLOCK = 1 << 18
#: Keys under which exporters wrap the array of records.
WRAPPERS = ("data", "train", "records", "rows", "examples", "samples", "items", "dataset")


def values(file: str, stream: Any, kind: str, *, told: bool) -> Iterator[Chunk]:
    """Yield chunks of the records of an array or of values that reach over several lines.

    `told`: say that the file is not JSON Lines. Memory: the longest record, once.
    """
    chunk = Chunk(file, 1, 0, kind=kind)
    if told and kind == "array":
        chunk.issues.append(
            Issue(1, "array_in_jsonl", "the file is one JSON array, not one record a line")
        )
    walk = _Walk(stream, array=kind == "array")
    start = 0
    for item in walk:
        if isinstance(item, Issue):
            chunk.issues.append(item)
            continue
        line, value = item
        inner = _unwrap(value) if kind == "stream" else None
        chunk.rows.extend((line, row) for row in inner) if inner else chunk.rows.append(
            (line, value)
        )
        if len(chunk.rows) >= CHUNK_ROWS or walk.read_bytes - start > CHUNK_BYTES:
            start = walk.read_bytes
            yield chunk
            chunk = Chunk(file, line, 0, kind=kind)
    chunk.last = True
    if walk.crlf:
        chunk.issues.append(Issue(1, "crlf", "lines end with CR LF"))
    if kind == "stream" and told:
        chunk.issues.append(Issue(1, "pretty_printed_json", "records reach over several lines"))
    yield chunk


def _unwrap(value: object) -> list[Any] | None:
    """Return the records of {"data": [...]}, None for an ordinary record."""
    if isinstance(value, dict):
        for key in WRAPPERS:
            rows = value.get(key)
            if (
                isinstance(rows, list)
                and rows
                and isinstance(rows[0], dict)
                and "role" not in rows[0]
            ):
                return rows
    return None


class _Walk:
    """Decode values one after the other out of a growing text, counting lines."""

    def __init__(self, stream: Any, *, array: bool) -> None:
        self.stream = stream
        self.array = array
        self.text = ""
        self.at = 0
        self.line = 1
        self.done = False
        self.decode = codecs.getincrementaldecoder("utf-8")()
        self.read_bytes = 0
        self.crlf = False

    def __iter__(self) -> Iterator[Issue | tuple[int, object]]:
        try:
            yield from self._items()
        except UnicodeDecodeError as error:
            place = self.read_bytes + error.start
            name = guess(error.object)
            said = f"not UTF-8 at byte {place}; it looks like {name}: --encoding {name}"
            yield Issue(self.line, "encoding", said)

    def _items(self) -> Iterator[Issue | tuple[int, object]]:
        if self.array:
            self._skip()
            self.at += 1  # the opening bracket
        first = True
        while True:
            self._skip()
            if self.at >= len(self.text):
                if self.array:
                    yield Issue(
                        self.line,
                        "truncated_last_line",
                        "the array is not closed: the file looks cut off",
                    )
                return
            char = self.text[self.at]
            if self.array and char == "]":
                self.at += 1
                self._skip()
                if self.at < len(self.text):
                    yield Issue(
                        self.line, "json_syntax", "there is text after the end of the array"
                    )
                return
            if self.array and not first:
                if char != ",":
                    yield Issue(self.line, "json_syntax", "a comma is missing between two records")
                    return
                self.at += 1
                self._skip()
            first = False
            item = self._value()
            yield item
            if isinstance(item, Issue) and item.code != "duplicate_key":
                return

    def _value(self) -> Issue | tuple[int, object]:
        line = self.line
        twice: str | None = None
        reader: json.JSONDecoder = decoder
        while True:
            try:
                value, end = reader.raw_decode(self.text, self.at)
            except DuplicateKeyError as error:
                # Step over the record, without the check: its rest may be broken, or not read yet.
                twice, reader = error.key, json.JSONDecoder()
                continue
            except json.JSONDecodeError as error:
                unsure = error.pos >= len(self.text) - 8 or error.msg.startswith("Unterminated")
                if unsure and not self.done and len(self.text) - self.at < MAX_LINE_BYTES:
                    self._fill(max(_BLOCK, len(self.text) - self.at))
                    continue
                where = line + self.text.count("\n", self.at, error.pos)
                column = error.pos - self.text.rfind("\n", 0, error.pos)
                if self.done and unsure:
                    return Issue(
                        where,
                        "truncated_last_line",
                        "the last record is not closed: the file looks cut off",
                    )
                return Issue(
                    where, "json_syntax", f"{explain(self.text, error)} (column {column})", column
                )
            except RecursionError:
                return Issue(line, "json_syntax", "nested deeper than any record should be")
            if end >= len(self.text) and not self.done:
                self._fill(_BLOCK)  # a number at the very end may go on
                continue
            self._advance(end)
            if twice is not None:
                return Issue(line, "duplicate_key", f"key {twice!r} stands twice in one object")
            return line, value

    def _advance(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def _skip(self) -> None:
        """Go to the next character that is not blank."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n\ufeff":
                self.line += self.text[self.at] == "\n"
                self.at += 1
            if self.at < len(self.text) or self.done:
                return
            self._fill(_BLOCK)

    def _fill(self, size: int) -> None:
        block = self.stream.read(size)
        self.done = not block
        self.crlf = self.crlf or b"\r\n" in block
        self.text = self.text[self.at :] + self.decode.decode(block, final=self.done)
        self.read_bytes += len(block)
        self.at = 0
