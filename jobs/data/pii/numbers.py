"""Cards, national ids, phones and IP addresses among the digit runs of a text.

A candidate is a run of digits with the separators people use. Strong checksums speak for
themselves; a number that also occurs by chance needs the right word beside it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from . import checksums as check
from . import cues, phones
from .spans import Span
from .text import key

_RUN = re.compile(r"[0-9](?:[ \-.()/]{0,3}[0-9]){5,}\)?")
_GROUP = re.compile(r"[0-9]+")
_DATE = re.compile(
    r"(?:19|20)[0-9]{2}([-./])[0-1]?[0-9]\1[0-3]?[0-9](?![0-9])"
    r"|[0-3]?[0-9]([-./])[0-3]?[0-9]\2(?:19|20)[0-9]{2}(?![0-9])"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+$")
_IPV4 = re.compile(
    r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])$"
)
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}){1,6}(?![\w:])")
_IP_CUE = re.compile(
    r"\bip\b|\bipv|server|sunucu|host|address|adres|client|login|الخادم|عنوان|سيرفر|\bping|gateway"
)
_CARD_SHAPE = re.compile(
    r"[0-9]{12,19}$|(?:[0-9][ \-.]{1,2}){11,18}[0-9]$"
    r"|[0-9]{4}(?:[ \-.]+[0-9]{1,6}){2,4}$|[0-9]{1,6}(?:[ \-]+[0-9]{2,7}){1,4}$"
)
_CARD_TOLD = re.compile(r"[0-9]{2,10}(?:[ \-./]{1,2}[0-9]{2,10}){1,5}$")  # beside the word only
_SSN_SHAPE = re.compile(r"[0-9]{3}([- .])[0-9]{2}\1[0-9]{4}$")
_BELGIAN_SHAPE = re.compile(r"[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\.[0-9]{2}$")
_SWEDISH_SHAPE = re.compile(r"(?:19|20)?[0-9]{6}-[0-9]{4}$")
_CPF_SHAPE = re.compile(r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}$")
_IIN = re.compile(
    r"4|5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|3[47]|6011|65|64[4-9]|35(?:2[89]|[3-8])|36|30[0-5]|3[89]"
    r"|62|9792|9682|5078|588845|6362"
)  # ISO/IEC 7812 ranges of the card schemes, with Troy (9792), mada (9682, 588845), Meeza (5078)
_IIN_LENGTHS = {
    "3": (14, 15, 16),
    "4": (13, 16, 19),
    "5": (16,),
    "2": (16,),
    "6": (16, 17, 18, 19),
    "9": (16,),
}


class _Window(NamedTuple):
    start: int
    end: int
    raw: str
    digits: str


def find(text: str, regions: tuple[str, ...]) -> Iterator[Span]:
    """Yield cards, ids, phones and IPv4 addresses of a text in normal form."""
    for run in _RUN.finditer(text):
        yield from _of_run(text, run, regions)
    if text.count(":") > 3:
        for found in _IPV6.finditer(text):
            if found[0].count(":") == 7 or "::" in found[0]:
                yield Span(found.start(), found.end(), "IP", "ipv6")


def _of_run(text: str, run: re.Match[str], regions: tuple[str, ...]) -> Iterator[Span]:
    start, end = _bounds(text, run)
    if _is_code(text, start, end):
        return
    taken = start
    for window in _windows(text, start, end):
        if window.start < taken:
            continue
        left = key(text[max(0, window.start - cues.LEFT_WINDOW) : window.start])
        right = key(text[window.end : window.end + cues.RIGHT_WINDOW])
        found = _classify(window, left, right, regions)
        if found:
            yield Span(window.start, window.end, *found)
            taken = window.end


def _bounds(text: str, run: re.Match[str]) -> tuple[int, int]:
    """Take in a leading "+" or "(" and give back a closing bracket that was never opened."""
    start, end = run.span()
    if text[start - 1 : start] == "+":
        start -= 1
    if text[start - 1 : start] == "(" and ")" in text[start:end]:
        start -= 1
        if text[start - 1 : start] == "+":
            start -= 1
    raw = text[start:end]
    if raw.endswith(")") and raw.count("(") < raw.count(")"):
        end -= 1
    return start, end


def _is_code(text: str, start: int, end: int) -> bool:
    """Return whether the run is part of a longer word, code or decimal number."""
    before, after = text[start - 2 : start], text[end : end + 2]
    last = before[-1:]
    if last and (last == "_" or (last.isascii() and last.isalnum())):
        return True
    if last and last in "-/#=" and before[:1].isascii() and before[:1].isalnum():
        # "seed=1234567" is code, "tckn=..." is a field's name
        told = cues.nearest(key(text[max(0, start - 24) : start - 1]), "") if last == "=" else None
        if told is None or told.distance > 2 or told.kind in ("no", ""):
            return True
    if last == "(" and before[:1].isascii() and before[:1].isalnum():
        return True  # a call: get_user(1234567890)
    if last in ".," and before[:1].isdigit() and len(before) == 2:
        return True
    if last in {"#", "$", "€"}:
        return True
    if after[:1] and (after[0] == "_" or (after[0].isascii() and after[0].isalpha())):
        return True
    return after[:1] == "," and after[1:2].isdigit()


def _windows(text: str, start: int, end: int) -> Iterator[_Window]:
    """Yield the whole run first, then its parts between blanks, longest first from the left."""
    raw = text[start:end]
    yield _Window(start, end, raw, "".join(_GROUP.findall(raw)))
    cuts = [start] + [m.end() + start for m in re.finditer(r"[ /]+", raw)] + [end]
    if len(cuts) == 2:
        return
    for i in range(len(cuts) - 1):
        for j in range(min(len(cuts) - 1, i + 8), i, -1):
            if i == 0 and j == len(cuts) - 1:
                continue
            part = text[cuts[i] : cuts[j]].rstrip(" /-.")
            if part.endswith(")") and "(" not in part:
                part = part[:-1]
            digits = "".join(_GROUP.findall(part))
            if 7 <= len(digits) <= 19:
                yield _Window(cuts[i], cuts[i] + len(part), part, digits)


def _classify(
    w: _Window, left: str, right: str, regions: tuple[str, ...]
) -> tuple[str, str, bool] | None:
    if _IPV4.match(w.raw):
        versioned = cues.nearest(left, "").kind == "no"
        told = _IP_CUE.search(left)
        if not versioned and not _private(w.raw) and (told or _spread(w.raw)):
            return "IP", "ipv4", not told
        return None
    cue = cues.nearest(left, right)
    n = len(w.digits)
    if cue.kind != "no" and 12 <= n <= 19:
        card = _card(w, cue.kind)
        if card:
            return card
    found = _national_id(w, cue.kind, left)
    if found:
        return found
    if (_DATE.search(w.raw) and w.raw[0] != "+") or (
        cue.kind != "phone" and _THOUSANDS.match(w.raw)
    ):
        return None
    if cue.kind == "iban" and n >= 10 and w.digits[0] != "0" and not w.raw.startswith("+"):
        return None
    if 7 <= n <= 16 and "/" not in w.raw and phones.is_phone(w.raw, w.digits, cue.kind, regions):
        return "PHONE", "phone", cue.kind != "phone" and w.raw[0] not in "+("
    if cue.kind == "id" and cue.distance <= 16 and 6 <= n <= 15 and not _THOUSANDS.match(w.raw):
        return "ID", "cue", True
    return None


def _card(w: _Window, cue: str) -> tuple[str, str, bool] | None:
    if not _CARD_SHAPE.match(w.raw) and not (cue == "card" and _CARD_TOLD.match(w.raw)):
        return None
    d = w.digits
    valid = check.luhn(d)
    known = _IIN.match(d) and len(d) in _IIN_LENGTHS.get(d[0], ())
    if valid and (known or cue == "card") and not check.emirates(d):
        return "CARD", "luhn", cue != "card"
    if cue == "card" and known and len(d) in (15, 16):
        return "CARD", "cue", True
    return None


def _national_id(w: _Window, cue: str, left: str) -> tuple[str, str, bool] | None:
    d, raw, cued = w.digits, w.raw, cue in ("id", "card")
    by_id = cue == "id"
    n = len(d)
    if n == 11 and check.tckn(d) and cue not in {"no", "phone"}:
        return "ID", "tckn", not by_id
    if n == 10 and check.saudi(d) and cued:
        return "ID", "saudi", False
    if n == 15 and check.emirates(d):
        return "ID", "emirates", False
    if n == 14 and cue != "no" and check.egypt(d):
        return "ID", "egypt", not by_id
    if n == 15 and cue != "no" and check.french_nir(d):
        return "ID", "nir", not by_id
    if (
        n == 9
        and cue != "no"
        and check.ssn(d)
        and (_SSN_SHAPE.match(raw) or (by_id and "." not in raw))
    ):
        return "ID", "ssn", not by_id
    if cue == "no":
        return None
    if n == 11 and _CPF_SHAPE.match(raw) and check.cpf(d):
        return "ID", "cpf", False
    if n == 11 and (_BELGIAN_SHAPE.match(raw) or by_id) and check.belgian(d):
        return "ID", "belgian", False
    if n in (10, 12) and (_SWEDISH_SHAPE.match(raw) or by_id) and check.swedish(d):
        return "ID", "swedish", not by_id
    if not by_id or cues.has("phone", left[-24:]):
        return None
    for rule, size, test in _CUED:
        if n == size and test(d):
            return "ID", rule, False
    return None


_CUED = (
    ("nhs", 10, check.nhs),
    ("german_tax", 11, check.german_tax),
    ("pesel", 11, check.pesel),
    ("cpf", 11, check.cpf),
    ("dutch", 9, check.dutch),
    ("kuwaiti", 12, check.kuwaiti),
)  # too likely by chance to count without the word


def _private(address: str) -> bool:
    a, b, *_ = (int(part) for part in address.split("."))
    return a in (0, 10, 127) or (a == 192 and b == 168) or (a == 172 and 16 <= b <= 31) or a >= 224


def _spread(address: str) -> bool:
    """Return whether it looks like an address rather than a version: three long parts."""
    return sum(len(part) > 1 for part in address.split(".")) >= 3
