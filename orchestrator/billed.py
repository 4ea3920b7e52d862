"""What was billed, beside what we reckon: per machine, and summed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from orchestrator.attempt import Attempt, Machine

TELL_SHARE = Decimal("0.05")  # a bill that differs by more from our estimate is pointed at,
TELL_USD = Decimal("0.01")  # unless it is a matter of less than a cent: steps are rounded up


class Bill(StrEnum):
    """What is known of a bill."""

    NONE = "none"  # nobody will tell: a provider without bills, a made-up price
    WHOLE = "billed"
    PENDING = "pending"  # the meter runs, or the hours are not settled
    UNANSWERED = "not_answered"


@dataclass(frozen=True, slots=True)
class Billed:
    """usd, and our own estimate of the very machines that it is for."""

    state: Bill = Bill.NONE
    usd: Decimal = Decimal(0)
    estimate_usd: Decimal = Decimal(0)

    @property
    def differs(self) -> bool:
        """Return whether bill and estimate are further apart than they may be."""
        apart = abs(self.usd - self.estimate_usd)
        return apart > TELL_USD and apart > TELL_SHARE * self.estimate_usd

    def __add__(self, other: Billed) -> Billed:
        state = next(s for s in _WORST_FIRST if s in {self.state, other.state})
        return Billed(state, self.usd + other.usd, self.estimate_usd + other.estimate_usd)

    @property
    def known(self) -> Decimal | None:
        """Return USD; None where no bill was told."""
        return self.usd if self.estimate_usd > 0 or self.usd > 0 else None


_WORST_FIRST = (Bill.UNANSWERED, Bill.PENDING, Bill.WHOLE, Bill.NONE)


def bill_of(attempt: Attempt, machine: Machine) -> Bill:
    """Return what is known of one machine's bill."""
    if not attempt.bills or attempt.offer.price_is_notional or attempt.proof == "yours":
        return Bill.NONE
    if machine.bill_whole:
        return Bill.WHOLE
    return Bill.UNANSWERED if machine.bill_error else Bill.PENDING


def total(parts: Iterable[Billed]) -> Billed:
    """Return the sum; its state is the one that is furthest from known."""
    return sum(parts, Billed())
