"""Text made comparable without losing offsets: digits, dashes, invisible marks, case, Arabic forms.

Every map here is one character to one character, so that a span found in the normal form is the
span in the original. Only invisible marks are taken out, and `Plain.back` maps those spans home.
"""

import re
import unicodedata
from typing import NamedTuple

_DIGIT_BASES = (0x0660, 0x06F0, 0x0966, 0xFF10, 0x09E6)  # Arabic-Indic, Persian, Devanagari, wide
_SPACES = (
    "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
# Zero-width, bidi controls, soft hyphen, tatweel, BOM: they carry no letter and hide numbers.
INVISIBLE = re.compile(
    "[\u00ad\u0640\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)

_TO_PLAIN: dict[int, str] = {
    **{base + n: str(n) for base in _DIGIT_BASES for n in range(10)},
    **dict.fromkeys(map(ord, _SPACES), " "),
    **dict.fromkeys(map(ord, _DASHES), "-"),
    ord("\uff20"): "@",
    ord("\ufe6b"): "@",
    ord("\uff0e"): ".",
    ord("\uff0b"): "+",
    ord("\u066b"): ".",  # Arabic decimal separator
    ord("\u066c"): ",",  # Arabic thousands separator
    ord("\u2019"): "'",
}
_SPECIAL = re.compile(f"[{re.escape(''.join(map(chr, _TO_PLAIN)))}{INVISIBLE.pattern[1:]}")
# Compare keys: Turkish dotted and dotless i are one letter, Arabic hamza carriers are alif.
_TO_KEY: dict[int, str] = {
    ord("I"): "i",
    ord("İ"): "i",
    ord("ı"): "i",
    **{ord(a): "ا" for a in "أإآٱ"},
    ord("ة"): "ه",
    ord("ى"): "ي",
    ord("ؤ"): "و",
    ord("ئ"): "ي",
    **dict.fromkeys(range(0x064B, 0x0653), ""),
    ord("\u0307"): "",
    **{ord(a): b for a, b in zip("çğöşüâîûÇĞÖŞÜ", "cgosuaiucgosu", strict=True)},
}


class Plain(NamedTuple):
    """A text in normal form; `back` is None where offsets are unchanged."""

    text: str
    back: list[int] | None

    def home(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original text for a span in the normal form."""
        if self.back is None:
            return start, end
        return self.back[start], self.back[end - 1] + 1


def plain(text: str) -> Plain:
    """Return the text with digits, dashes and spaces in ASCII and invisible marks taken out."""
    if text.isascii() or _SPECIAL.search(text) is None:
        return Plain(text, None)
    out = text.translate(_TO_PLAIN)
    if INVISIBLE.search(out) is None:
        return Plain(out, None)
    back = [i for i, c in enumerate(out) if INVISIBLE.match(c) is None]
    return Plain("".join([out[i] for i in back]), back)


def key(text: str) -> str:
    """Return the compare key: lower case, no Turkish or Arabic variants. Length may change."""
    if text.isascii():
        return text.lower()
    out = text.translate(_TO_KEY).lower()
    return out if out.isascii() else out.translate(_TO_KEY)


def is_arabic(char: str) -> bool:
    """Return whether a character belongs to the Arabic script."""
    return "\u0600" <= char <= "\u06ff" or "\u0750" <= char <= "\u077f"


def nfc(text: str) -> str:
    """Return the text in Unicode form C; ASCII passes untouched."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
