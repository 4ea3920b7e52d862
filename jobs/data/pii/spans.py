"""The one shape every detector returns."""

from typing import NamedTuple

#: Types with a checksum or a fixed form: precision and recall are promised for these.
STRUCTURED = ("EMAIL", "PHONE", "CARD", "IBAN", "ID")
TYPES = (*STRUCTURED, "IP", "SECRET", "TERM", "NAME")


class Span(NamedTuple):
    """A find: half-open character range, type, the rule that fired, weak or not."""

    start: int
    end: int
    type: str
    rule: str
    weak: bool = False
