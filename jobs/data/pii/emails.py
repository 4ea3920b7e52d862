"""E-mail addresses, written as they are or spelled out ("ayse nokta k et gmail nokta com")."""

import re
from collections.abc import Iterator

from .spans import Span
from .text import is_arabic

_LOCAL = re.compile(r"[^\s@<>()\[\]{}\"',;:|\\/=،؛*`]+(?:'[^\s@<>()\[\]{}\"',;:|\\/=،؛*`]+)?$")
_DOMAIN = re.compile(
    r"(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.)+(?:xn--[a-z0-9]{2,20}|[^\W\d_]{2,24})", re.IGNORECASE
)
_TLDS = (
    r"(?:com|net|org|edu|gov|io|co|dev|ai|app|info|biz|me|tr|uk|de|fr|nl|sa|ae|eg|jo|kw|qa|om|bh"
    r"|lb|iq|"
    r"us|ca|eu|example|test|كوم|نت)"
)
_HOSTS = (
    r"(?:gmail|hotmail|outlook|yahoo|icloud|proton(?:mail)?|yandex|mail|live|msn|aol|gmx|"
    r"جيميل|هوتميل|ياهو)"
)
_BRACKET_AT = r"\s*[(\[{<]\s*(?:at|et|@|عند|آت)\s*[)\]}>]\s*"
_WORD_AT = r"\s+(?:at|et|kuyruklu\s*a|عند|آت|ات|أت|@)\s+"
_BRACKET_DOT = r"\s*[(\[{<]\s*(?:dot|nokta|نقطة|نقطه|\.)\s*[)\]}>]\s*"
_WORD_DOT = r"\s+(?:dot|nokta|نقطة|نقطه|دوت|nkt)\s+"
_SPELLED = re.compile(
    rf"(?<![\w.])(?P<local>[\w+-]+(?:(?:[._]|{_BRACKET_DOT}|{_WORD_DOT})[\w+-]+){{0,4}})"
    rf"(?P<at>{_BRACKET_AT}|{_WORD_AT})"
    rf"(?P<host>[\w-]+)(?P<rest>(?:(?:\.|{_BRACKET_DOT}|{_WORD_DOT})[\w-]+){{1,4}})",
    re.IGNORECASE,
)
_LAST_TLD = re.compile(rf"(?:\.|\s|[)\]}}>]){_TLDS}$", re.IGNORECASE)
_HOST = re.compile(rf"{_HOSTS}$", re.IGNORECASE)
_MAIL_CUE = re.compile(
    r"e-?\s?mail|e-?\s?posta|\bmail|adres|بريد|ايميل|إيميل|راسل|write|reach|contact|yaz|اكتب",
    re.IGNORECASE,
)
_SPELLED_GATE = re.compile(
    r"\b(?:dot|nokta|نقط[ةه]|دوت)\b|[(\[{<]\s*(?:at|et|@)\s*[)\]}>]"
    r"|\b(?:at|et)\s+(?:gmail|hotmail|outlook|yahoo|icloud)\.",
    re.IGNORECASE,
)
_SPELLED_WORDS = (
    "dot",
    "nokta",
    "نقط",
    "دوت",
    "(at",
    "[at",
    "{at",
    "<at",
    " @ ",
    "(et)",
    "[et]",
    "(@)",
    "[@]",
    *(
        f" {at} {host}"
        for at in ("at", "et")
        for host in ("gmail", "hotmail", "outlook", "yahoo", "icloud")
    ),
)
_WEB_SUFFIX = re.compile(r"\.(?:png|jpe?g|gif|svg|css|js|py|json|md|txt|html?)$", re.IGNORECASE)


def find(text: str, low: str) -> Iterator[Span]:
    """Yield e-mail addresses of a text in normal form; `low`: in lower case. Linear."""
    at = text.find("@")
    while at != -1:
        span = _around(text, at)
        if span:
            yield span
        at = text.find("@", (span.end if span else at + 1))
    if any(word in low for word in _SPELLED_WORDS):
        yield from _spelled(text)


def _around(text: str, at: int) -> Span | None:
    local = _LOCAL.search(text, max(0, at - 64), at)
    domain = _DOMAIN.match(text, at + 1, at + 255)
    if not local or not domain:
        return None
    start, end = local.start(), domain.end()
    while start < at and text[start] in ".-+'!?#$%&~^«»“”‘":
        start += 1
    latin = domain[0].isascii()
    for i in range(at - 1, start - 1, -1):
        if latin and is_arabic(text[i]):  # an Arabic preposition written together with the address
            start = i + 1
            break
    if start >= at or text[at - 1] == "." or _WEB_SUFFIX.search(domain[0]):
        return None
    if text[end : end + 1] in ":/" and text[start:at] == "git":
        return None  # an SSH remote, not a person
    if not any(c.isalnum() for c in text[start:at]) or text[start - 3 : start] == "://":
        return None
    return Span(start, end, "EMAIL", "address")


def _spelled(text: str) -> Iterator[Span]:
    if not _SPELLED_GATE.search(text) and " @ " not in text:
        return
    for found in _SPELLED.finditer(text):
        start, end = found.start(), found.end()
        whole = found[0]
        if not _LAST_TLD.search(whole):  # drop words read as labels after the last real one
            cut = None
            for last in re.finditer(rf"(?:\.|\s|[)\]}}>]){_TLDS}\b", whole, re.IGNORECASE):
                cut = last.end()
            if cut is None or cut <= found.end("at") - start:
                continue
            end = start + cut
        bracketed = found["at"].strip()[0] in "([{<@"
        told = "." not in found["rest"].strip()[:1]
        cued = _MAIL_CUE.search(text[max(0, start - 32) : start])
        if bracketed or _HOST.match(found["host"]) or (told and cued) or (told and "@" in whole):
            yield Span(start, end, "EMAIL", "spelled")
        elif told and re.search(
            r"\s(?:dot|nokta|نقطة|نقطه|دوت)\s", whole[found.end("at") - start - 1 :]
        ):
            yield Span(start, end, "EMAIL", "spelled", weak=True)
