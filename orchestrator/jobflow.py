"""What follows when an attempt is over: the next offer, or the job's end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.attempt import Attempt
from orchestrator.oom import second_offer
from orchestrator.plan import NewJob
from orchestrator.policy import ALL_RULES, Rules
from orchestrator.push_state import failures, is_home, missing_targets, open_targets
from orchestrator.states import ENDINGS, Reason, State
from providers.base import Offer

SECONDS_PER_HOUR = 3600
# The machine went, not the training: it goes on elsewhere from its newest checkpoint.
LOST = frozenset({Reason.INSTANCE_LOST, Reason.AGENT_LOST, Reason.SSH_LOST})
USEFUL_S = 60.0  # an attempt that could not last so long is not opened


@dataclass(frozen=True, slots=True)
class Open:
    """Open the next attempt with this offer; its machine must end itself at `deadline_at`."""

    number: int
    offer: Offer
    deadline_at: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the job."""

    reason: Reason
    evidence: str


def next_move(
    new: NewJob,
    attempts: Sequence[Attempt],
    *,
    cancel: Reason | None,
    spent_usd: Decimal,
    now: float,
    rules: Rules = ALL_RULES,
) -> Open | Close | None:
    """Return what to do about the job as a whole; None while an attempt is under way."""
    last = attempts[-1] if attempts else None
    if last is not None and last.state is not State.CLOSED:
        if rules.one_at_a_time or last.state is not State.STOPPING:
            return None
        if any(a.state is not State.CLOSED for a in attempts[:-1]):
            return None
    over = last is not None and not _may_retry(last)
    move: Open | Close
    if last is not None and over:
        if cancel is None and is_home(last) and open_targets(new.pushes, last):
            return None
        move = _over(new, last, cancel)
        again = second_offer(new, attempts) if cancel is None else None
        if again is not None and (opened := _on(new, attempts, again, spent_usd, now)):
            move = opened
    elif cancel is not None:
        move = Close(cancel, "")
    else:
        move = _another(new, attempts, spent_usd, now)
    if isinstance(move, Close) and any(a.state is not State.CLOSED for a in attempts):
        return None
    return move


def _over(new: NewJob, last: Attempt, cancel: Reason | None) -> Close:
    """Return how a job ends whose last attempt no other can mend; its pushes have a say."""
    if not is_home(last) or not missing_targets(new.pushes, last):
        return Close(last.reason or Reason.INTERNAL, last.evidence)
    failed = failures(new.pushes, last)
    if open_targets(new.pushes, last):  # only a wish to end it leads here
        safe = f"the result is safe in {last.folder}, but not pushed everywhere"
        return Close(cancel or Reason.ARTIFACTS_FAILED, failed or safe)
    return Close(Reason.ARTIFACTS_FAILED, failed)


def _may_retry(attempt: Attempt) -> bool:
    return attempt.reason is not None and ENDINGS[attempt.reason].next_offer


def _another(
    new: NewJob, attempts: Sequence[Attempt], spent_usd: Decimal, now: float
) -> Open | Close:
    """Return the next attempt, or the job's end when there is no offer, time or money left."""
    had_machine = [a for a in attempts if a.machines or a.proof in {"suspect", "never came"}]
    offer = _next_offer(new, attempts) if len(had_machine) < new.caps.max_machines else None
    if offer is None:
        if not attempts:
            return Close(Reason.NO_CAPACITY, "no offer fits")
        telling = had_machine[-1] if had_machine else attempts[-1]
        return Close(telling.reason or Reason.INTERNAL, telling.evidence)
    return _on(new, attempts, offer, spent_usd, now) or Close(
        Reason.DEADLINE
        if _ends_at(new, attempts, now) <= _paid_until(new, offer, spent_usd, now)
        else Reason.BUDGET,
        "too little is left for another machine",
    )


def _on(
    new: NewJob, attempts: Sequence[Attempt], offer: Offer, spent_usd: Decimal, now: float
) -> Open | None:
    """Return the next attempt with this offer; None where too little time or money is left."""
    until = min(_ends_at(new, attempts, now), _paid_until(new, offer, spent_usd, now))
    return Open(len(attempts) + 1, offer, until) if until >= now + USEFUL_S else None


def _ends_at(new: NewJob, attempts: Sequence[Attempt], now: float) -> float:
    return (attempts[0].opened_at if attempts else now) + new.caps.max_s


def _next_offer(new: NewJob, attempts: Sequence[Attempt]) -> Offer | None:
    """Return the first offer after the last one tried, of a provider whose limit is not reached.

    An offer whose launch was never answered was not really tried: it is the last resort once more.
    So is one whose machine was lost in the middle of the work: another of its kind may last, best
    first, and not where it was lost if there is a choice.
    """
    full = {a.provider for a in attempts if a.reason is Reason.QUOTA}
    tried = new.offers.index(attempts[-1].offer) + 1 if attempts else 0
    fresh = next((o for o in new.offers[tried:] if o.provider not in full), None)
    if fresh is None and attempts and attempts[-1].reason is Reason.LAUNCH_UNKNOWN:
        return attempts[-1].offer
    if fresh is None and attempts and attempts[-1].reason in LOST:
        again = [o for o in new.offers if o.provider not in full]
        lost = attempts[-1].offer
        elsewhere = [o for o in again if (o.provider, o.region) != (lost.provider, lost.region)]
        return next(iter([*elsewhere, *again]), None)
    return fresh


def _paid_until(new: NewJob, offer: Offer, spent_usd: Decimal, now: float) -> float:
    """Return the moment at which what is left of the budget is used up at this offer's price."""
    if new.caps.budget_usd is None:
        return float("inf")
    rate = offer.price_usd_per_hour + storage_rate(offer, new.launch.disk_gib)
    if rate <= 0:
        return float("inf")
    left = max(Decimal(0), new.caps.budget_usd - spent_usd)
    return now + float(left / rate * SECONDS_PER_HOUR)


def storage_rate(offer: Offer, disk_gib: int) -> Decimal:
    """Return USD per hour for the disk: none where the offer's price includes a fixed one."""
    gib = max(disk_gib, offer.least_disk_gib) if offer.disk_gib is None else 0
    return offer.storage_usd_per_gib_hour * gib
