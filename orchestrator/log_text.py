"""A trainer's log as harmless text: what a terminal leaves standing, and nothing that acts on it.

The bytes are opaque and untrusted: progress bars, colours, NUL, broken UTF-8, escape sequences that
retitle a window, right-to-left overrides, lines of a megabyte.
"""

from __future__ import annotations

import codecs
import re

LINE_BYTES = 4000  # shown of one line; a config dump or a loss line has some 500

_SPLIT = re.compile(rb"([\r\n])")
# Complete sequences say nothing once they can't act: CSI (colours, cursor), OSC (titles, links).
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
# What is left of controls, and what hides or reorders text, is shown as an escape. Not in it: tab,
# and the joiners U+200C and U+200D, which Persian and emoji need.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_CLEAR = "\r\x1b[2K"  # the only escape that this module ever prints


def clean(line: bytes, more_bytes: int = 0) -> str:
    """Return one line as harmless text; `more_bytes` were left out at its end, and it says so."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = _SEQUENCE.sub("", decoder.decode(line, final=not more_bytes))
    text = _UNSAFE.sub(_escaped, text)
    return f"{text} ... [{more_bytes:,} bytes more]" if more_bytes else text


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class LogText:
    """Bytes in, text out. However the stream is split, the texts together are the same.

    Without a TTY a line that was overwritten (ended by a bare carriage return) is dropped, as a
    terminal drops it, and blank lines in a row become one. With a TTY it is shown until the next
    replaces it, cut to `width` columns.
    """

    def __init__(self, *, tty: bool = False, width: int = 80) -> None:
        self._tty = tty
        self._width = width
        self._line = bytearray()
        self._more = 0  # bytes of the current line beyond LINE_BYTES
        self._held: str | None = None  # a line that ended with a bare carriage return
        self._blank = True  # whether the last line was

    def feed(self, data: bytes) -> str:
        """Return the text that these bytes complete."""
        parts = _SPLIT.split(data)
        said: list[str] = []
        for place in range(0, len(parts) - 1, 2):
            self._extend(parts[place])
            said.append(self._ended(parts[place + 1]))
        self._extend(parts[-1])
        return "".join(said)

    def end(self) -> str:
        """Return what is left at the end of the stream: a line without an end, a last bar."""
        return self._ended(b"\n") if self._line or self._held is not None else ""

    def _extend(self, data: bytes) -> None:
        room = LINE_BYTES - len(self._line)
        self._line += data[:room]
        self._more += max(0, len(data) - room)

    def _ended(self, terminator: bytes) -> str:
        line = clean(bytes(self._line), self._more)
        empty, self._line, self._more = not self._line, bytearray(), 0
        if terminator == b"\r":
            if empty:
                return ""
            self._held = line
            return f"{_CLEAR}{line[: self._width - 1]}" if self._tty else ""
        if empty and self._held is not None:  # "\r\n", or a bar left standing
            line = self._held
        clear = _CLEAR if self._tty and self._held is not None else ""
        self._held = None
        blank = not line.strip()
        if blank and self._blank:
            return clear
        self._blank = blank
        return f"{clear}{line.rstrip()}\n"
