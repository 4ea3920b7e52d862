"""The one shape every detector returns."""

from typing import NamedTuple

#: Types whose members carry a checksum or a fixed form; precision and recall are promised for these.
STRUCTURED = ("EMAIL", "PHONE", "CARD", "IBAN", "ID")
TYPES = (*STRUCTURED, "IP", "SECRET", "TERM", "NAME")


class Span(NamedTuple):
    """A find: half-open character range, type, the rule that fired, and whether it is a weak find."""

    start: int
    end: int
    type: str
    rule: str
    weak: bool = False
