"""All finds of a text, without overlaps, in the offsets of the text as given."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import codes, emails, names, numbers, phones, secrets
from .spans import Span
from .text import key, plain

PLACEHOLDER = re.compile(r"<(?:EMAIL|PHONE|CARD|IBAN|ID|IP|SECRET|TERM|NAME)_[0-9]+>")
_TWO_DIGITS = re.compile(r"[0-9][0-9 .\-()/]?[0-9]")
# Where finds overlap the earlier type wins; a longer find of a strong type beats a weak one.
_RANK = {
    "SECRET": 0,
    "TERM": 1,
    "EMAIL": 2,
    "IBAN": 3,
    "CARD": 4,
    "ID": 5,
    "PHONE": 6,
    "IP": 7,
    "NAME": 8,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What to look for: phone regions (ISO codes), the user's own terms, and whether names too."""

    regions: tuple[str, ...] = phones.DEFAULT_REGIONS
    terms: re.Pattern[str] | None = field(default=None)
    with_names: bool = True
    skip_types: frozenset[str] = frozenset()


def terms_pattern(lines: Iterable[str]) -> re.Pattern[str] | None:
    """Return one pattern for a user's own list of terms (one a line), None for an empty list.

    Longest first, whole words, any case; an Arabic term also matches behind a one-letter prefix.
    """
    words = {" ".join(line.split()) for line in lines if line.strip() and not line.startswith("#")}
    if not words:
        return None
    parts = sorted(
        (re.escape(key(word)).replace(r"\ ", r"\s+") for word in words), key=len, reverse=True
    )
    return re.compile(r"(?<!\w)[وبلفك]?(" + "|".join(parts) + r")(?=\W|\Z|'|’|[يهنك]{1,2}\b)")


def scan(text: str, settings: Settings) -> list[Span]:
    """Return the finds in a text, sorted, non-overlapping; linear in its length."""
    if "<" in text and PLACEHOLDER.search(text):
        text = PLACEHOLDER.sub(lambda m: "\x01" * len(m[0]), text)
    form = plain(text)
    body = form.text
    low = body.lower()
    found = list(emails.find(body, low))
    if _TWO_DIGITS.search(body):
        found += numbers.find(body, settings.regions)
        found += codes.find(body, low)
    found += secrets.find(body, low)
    if settings.with_names:
        found += names.find(body)
    if form.back is not None:
        found = [
            s._replace(start=h[0], end=h[1]) for s in found for h in (form.home(s.start, s.end),)
        ]
    if settings.terms is not None:
        found += _terms(text, settings.terms)
    if settings.skip_types:
        found = [s for s in found if s.type not in settings.skip_types]
    return _resolve(found) if len(found) > 1 else found


def _resolve(found: list[Span]) -> list[Span]:
    """Keep the strongest of overlapping finds."""
    kept: list[Span] = []
    for span in sorted(found, key=lambda s: (s.weak, _RANK[s.type], s.start - s.end)):
        if all(span.end <= k.start or span.start >= k.end for k in kept):
            kept.append(span)
    return sorted(kept)


def _terms(text: str, pattern: re.Pattern[str]) -> Iterable[Span]:
    folded = "".join([(key(c) or "\u0000")[:1] for c in text])  # one to one, so that offsets hold
    for hit in pattern.finditer(folded):
        yield Span(hit.start(1), hit.end(1), "TERM", "list")
