"""Text that is not UTF-8: say where, guess what it is, and recode only when told to."""

import codecs
import itertools
from typing import Any

BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# The letters that tell Windows code pages apart: Turkish ones in 1254, where 1252 has Icelandic.
_TURKISH = frozenset(b"\xfd\xdd\xfe\xde\xf0\xd0")
_TURKISH_COMMON = frozenset(b"\xfc\xdc\xf6\xd6\xe7\xc7") | _TURKISH
_ARABIC_LETTERS = frozenset(range(0xC0, 0x100))
_MOJIBAKE = (
    "Ã¼",
    "Ã¶",
    "Ã§",
    "Ä±",
    "ÅŸ",
    "ÄŸ",
    "Ä°",
    "Ã‡",
    "Ã–",
    "Ãœ",
    "Ã©",
    "Ã¨",
    "â€™",
    "â€œ",
    "Ø§",
    "Ù„",
    "ï»¿",
)


def guess(data: bytes) -> str:
    """Return the likely encoding of bytes that are not UTF-8: cp1254, cp1256 or cp1252.

    Arabic text is mostly high bytes; Turkish letters stand alone among ASCII ones.
    """
    high = [b for b in data if b >= 0x80]
    letters = sum(chr(b).isalpha() for b in data if b < 0x80)
    runs = sum(1 for a, b in itertools.pairwise(data) if a >= 0x80 and b >= 0x80)
    if (
        high
        and runs >= len(high) * 0.4
        and all(b in _ARABIC_LETTERS or b in b"\xa1\xba\xbf\x8d\x8e\x90\x81" for b in high)
    ):
        return "cp1256"
    if high and len(high) > letters and runs:
        return "cp1256"
    if any(b in _TURKISH for b in high) and sum(b in _TURKISH_COMMON for b in high) * 2 > len(high):
        return "cp1254"
    return "cp1252"


def garbled(text: str) -> bool:
    """Return whether a text looks like UTF-8 once read as Latin: two telling pairs in it."""
    return sum(text.count(pair) for pair in _MOJIBAKE) >= 2


class Recoder:
    """A byte stream in another encoding, read as UTF-8; UnicodeDecodeError where it is not."""

    def __init__(self, stream: Any, encoding: str) -> None:
        """Start at the stream's current place; LookupError for an unknown encoding."""
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.ready = b""
        self.done = False

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes of UTF-8; all of them for a negative size."""
        while not self.done and (size < 0 or len(self.ready) < size):
            block = self.stream.read(1 << 16)
            self.done = not block
            self.ready += self.decoder.decode(block, final=self.done).encode()
        if size < 0:
            size = len(self.ready)
        out, self.ready = self.ready[:size], self.ready[size:]
        return out
