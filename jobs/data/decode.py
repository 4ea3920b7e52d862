"""The values of a chunk, line by line, with what is wrong in the bytes and the JSON."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .chunks import MAX_LINE_BYTES, Chunk
from .encodings import garbled, guess
from .parse import DuplicateKeyError, decoder, explain, is_cut

Add = Callable[[int, str, str, int], None]  # line, code, message, column
_CONTROL = re.compile(r"\\u00(?:0[0-8bBcCeEfF]|1[0-9a-fA-F])|[\x00-\x08\x0b\x0c\x0e-\x1f]")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_scan: Callable[[str, int], tuple[Any, int]] = vars(decoder)["scan_once"]  # the C scanner itself


def values(chunk: Chunk, add: Add) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of a chunk; faults go to `add` as (line, code, message, column)."""
    for issue in chunk.issues:
        add(issue.line, issue.code, issue.message, issue.column)
    if chunk.data is None:
        for line, value in chunk.rows:
            if _characters(value, line, add):
                yield line, value
        return
    yield from _lines(chunk, chunk.data, add)


def _lines(chunk: Chunk, data: bytes, add: Add) -> Iterator[tuple[int, Any]]:
    if b"\r" in data:
        if (at := data.find(b"\r\n")) >= 0:
            add(chunk.first_line + data.count(b"\n", 0, at), "crlf", "lines end with CR LF", 0)
        elif b"\n" not in data.rstrip(b"\n"):
            add(chunk.first_line, "crlf", "lines end with CR alone", 0)
            data = data.replace(b"\r", b"\n")
    try:
        rows: Sequence[str | bytes] = data.decode().split("\n")
    except UnicodeDecodeError:
        rows = data.split(b"\n")
    last = _last_filled(rows) if chunk.last else -1
    offset = chunk.offset
    for i, raw in enumerate(rows):
        line = chunk.first_line + i
        if isinstance(raw, bytes):
            text = _decoded(raw, line, offset, add, at_end=i == last and i == len(rows) - 1)
            offset += len(raw) + 1
            if text is None:
                continue
            row = text
        else:
            row = raw
        if len(row) > MAX_LINE_BYTES:
            add(line, "line_too_long", f"a line of over {MAX_LINE_BYTES >> 20} MiB", 0)
            continue
        try:
            value, end = _scan(row, 0)
            if end != len(row) and not row[end:].isspace():
                raise json.JSONDecodeError(  # noqa: TRY301 - one handler for both
                    "Extra data", row, end + len(row[end:]) - len(row[end:].lstrip())
                )
        except StopIteration:
            if not row or row.isspace():
                continue
            value = _second_try(row, line, add, last=i == last)
        except DuplicateKeyError as error:
            add(line, "duplicate_key", f"key {error.key[:60]!r} stands twice in one object", 0)
            continue
        except (json.JSONDecodeError, RecursionError, ValueError) as error:
            _syntax(row, error, line, add, last=i == last)
            continue
        if value is _FAILED:
            continue
        if ("\\u" in row or not row.isascii()) and not _marks(row, value, line, add):
            continue
        yield line, value


_FAILED = object()


def _second_try(row: str, line: int, add: Add, *, last: bool) -> Any:
    """Decode a line that does not start with its value: blanks before it, or no JSON at all."""
    if row.startswith("\ufeff"):  # files joined end to end
        add(line, "bom", "a byte order mark stands before this line", 0)
    try:
        return decoder.decode(row.lstrip("\ufeff \t\r\n"))
    except DuplicateKeyError as error:
        add(line, "duplicate_key", f"key {error.key[:60]!r} stands twice in one object", 0)
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        _syntax(row, error, line, add, last=last)
    return _FAILED


def _syntax(row: str, error: Exception, line: int, add: Add, *, last: bool) -> None:
    if not isinstance(error, json.JSONDecodeError):
        what = (
            "nested deeper than any record should be"
            if isinstance(error, RecursionError)
            else str(error)[:80]
        )
        add(line, "json_syntax", what, 0)
        return
    if last and is_cut(row, error) and "'" not in row[:2]:
        add(
            line,
            "truncated_last_line",
            "the last line is not closed: the file looks cut off",
            len(row),
        )
        return
    add(line, "json_syntax", f"{explain(row, error)} (column {error.pos + 1})", error.pos + 1)


def _decoded(raw: bytes, line: int, offset: int, add: Add, *, at_end: bool) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if at_end and error.reason == "unexpected end of data" and len(raw) - error.start < 4:
            add(
                line,
                "truncated_last_line",
                "the file ends inside a character: it looks cut off",
                error.start + 1,
            )
            return None
        name = guess(raw)
        add(
            line,
            "encoding",
            f"not UTF-8 at byte {offset + error.start} (0x{raw[error.start]:02x}, column "
            f"{error.start + 1} of the line); "
            f"it looks like {name}: --encoding {name}",
            error.start + 1,
        )
        return None


def _last_filled(rows: Sequence[str | bytes]) -> int:
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].strip():
            return i
    return -1


def _marks(row: str, value: Any, line: int, add: Add) -> bool:
    """Note odd characters of a line; return whether the record can be written at all."""
    if "\\u" in row:
        if ("\\ud" in row or "\\uD" in row) and not _encodable(value):
            add(line, "lone_surrogate", "half of a character pair (\\ud800 ... \\udfff)", 0)
            return False
        if "\\u00" in row and _CONTROL.search(row):
            add(line, "control_character", "a NUL or control character in the text", 0)
    if not row.isascii():
        if "\ufffd" in row:
            add(
                line,
                "replacement_character",
                "U+FFFD stands where a letter was lost",
                row.index("\ufffd") + 1,
            )
        if ("Ã" in row or "Ä" in row or "Å" in row or "â€" in row or "Ø" in row) and garbled(row):
            add(line, "mojibake", "garbled letters such as 'Ã¼' or 'ÄŸ'", 0)
    return True


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _characters(value: Any, line: int, add: Add) -> bool:
    """Check the characters of a value that did not come from a line of its own."""
    try:
        row = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return True  # dates, decimals: the record check names them
    except RecursionError:
        add(line, "json_syntax", "nested deeper than any record should be", 0)
        return False
    try:
        row.encode()
    except UnicodeEncodeError:
        add(line, "lone_surrogate", "half of a character pair (\\ud800 ... \\udfff)", 0)
        return False
    return _marks(row, value, line, add)
