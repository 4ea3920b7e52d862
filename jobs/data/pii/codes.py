"""Identifiers with letters in them: IBAN, UK, Spanish and Italian ids, passports, licences."""

import re
from collections.abc import Iterator

from . import checksums as check
from . import cues
from .spans import Span
from .text import key

_IBAN = re.compile(r"[A-Za-z] ?[A-Za-z][ \-]?[0-9] ?[0-9](?:[ \-.]{0,2}[A-Za-z0-9]){11,30}")
_GROUPED = re.compile(
    r"[A-Za-z0-9]+$|[A-Z]{2}[0-9]{2,8}(?:[ \-.][0-9A-Z]{2,12})+$"
    r"|[A-Za-z]{2}[ \-]?[0-9]{2}(?:(?:[ \-.][A-Za-z0-9]{4})+(?:[ \-.][A-Za-z0-9]{1,4})?"
    r"|[ \-][A-Za-z0-9]+)$"
)
_ALNUM = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?P<nino>[A-Za-z]{2}[ \-.]?[0-9]{2}[ \-.]?[0-9]{2}[ \-.]?[0-9]{2}[ \-.]?[A-Da-d])"
    r"|(?P<es>(?:[XYZxyz][ -]?[0-9]{7}|[0-9]{2}\.?[0-9]{3}\.?[0-9]{3})[ -]?[A-Za-z])"
    r"|(?P<it>[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z])"
    r")(?![A-Za-z0-9])"
)
_DOCUMENT_GATE = ("passport", "pasaport", "جواز", "ehliyet", "licen", "رخص")
_ALNUM_GATE = re.compile(
    r"[0-9]{2}(?:[ \-.]?[0-9]{2}[ \-.]?[0-9]{2}|\.[0-9]{3}\.|[A-Za-z][0-9]{2}[A-Za-z])"
)
_FOUR_DIGITS = re.compile(r"[0-9]{4}|(?:[0-9][ \-]){6}")  # in every country's IBAN
_DOCUMENT = re.compile(
    r"(?P<cue>pas(?:s|a)port\w*|جواز(?: (?:ال)?سفر\w*)?|ehliyet\w*|driv\w+'?s? licen[cs]e|رخصتي"
    r"|رخصة (?:ال)?قيادة)"
    r"(?:[ :#.\-]+(?:no|nr|num\w*|numara\w*|is|of|رقم\w*|صاحب\w*|holder|belge\w*|olan|ile|:"
    r"|#)){0,3}[ :#.\-]*"
    r"(?P<id>(?:[A-Z]{1,3} ?)?[0-9][A-Z0-9]{5,11}|[A-Z][A-Z0-9]{6,11})(?![A-Za-z0-9])",
    re.IGNORECASE,
)


def find(text: str, low: str) -> Iterator[Span]:
    """Yield IBANs and lettered ids of a text in normal form; `low` is the text in lower case."""
    if _FOUR_DIGITS.search(text):
        for found in _IBAN.finditer(text):
            yield from _iban(text, found)
    if _ALNUM_GATE.search(text):
        for found in _ALNUM.finditer(text):
            span = _alnum(text, found)
            if span:
                yield span
    if any(word in low for word in _DOCUMENT_GATE):
        for found in _DOCUMENT.finditer(text):
            if sum(c.isdigit() for c in found["id"]) >= 5:
                yield Span(found.start("id"), found.end("id"), "ID", "document")


def _iban(text: str, found: re.Match[str]) -> Iterator[Span]:
    start = found.start()
    if (
        start
        and text[start - 1].isascii()
        and (text[start - 1].isalnum() or text[start - 1] == "_")
    ):
        return
    country = text[start : start + 3].replace(" ", "")[:2].upper()
    length = check.iban_length(country)
    if length is None:
        return
    code, end = "", start
    for i in range(start, found.end()):
        if text[i].isalnum():
            code += text[i]
            end = i + 1
            if len(code) == length:
                break
    if len(code) != length or (end < len(text) and text[end].isascii() and text[end].isalnum()):
        return
    told = cues.has("iban", _left(text, start))
    if not told and not _GROUPED.match(text[start:end]):
        return  # words and numbers that happen to add up
    if check.iban(code.upper()):
        yield Span(start, end, "IBAN", "mod97")
    elif told and code[4:8].isdigit():
        yield Span(start, end, "IBAN", "cue", weak=True)


def _alnum(text: str, found: re.Match[str]) -> Span | None:
    kind = found.lastgroup or ""
    code = re.sub(r"[ .\-]", "", found[0]).upper()
    cue = cues.nearest(_left(text, found.start()), "")
    cued = cue.kind in ("id", "passport")
    if kind == "nino" and (check.nino(code) or cued) and cue.kind != "no":
        return Span(found.start(), found.end(), "ID", "nino", not cued)
    if kind == "es" and check.spanish(code) and cue.kind != "no":
        return Span(found.start(), found.end(), "ID", "spanish", not cued)
    if kind == "it" and check.italian(code):
        return Span(found.start(), found.end(), "ID", "italian")
    return None


def _left(text: str, start: int) -> str:
    return key(text[max(0, start - cues.LEFT_WINDOW) : start])
