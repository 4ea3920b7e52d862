"""What a team may spend in a UTC day, over all jobs of one database. Pure, Decimal only.

An attempt is only opened when every day that it may reach still has room for it: what was spent,
what the open attempts may yet spend until their deadlines, and its own worst case. The check runs
in the transaction that writes the intent (store_journal.py), so no two can take the same room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from orchestrator import ledger
from orchestrator.attempt import Attempt, label_prefix
from orchestrator.jobflow import storage_rate
from orchestrator.states import State
from orchestrator.store_journal import Admit

# After its deadline a machine is ended and proven gone: this much is set aside for it.
TEARDOWN_S = 120.0


@dataclass(frozen=True, slots=True)
class TeamBudget:
    """USD a UTC day; None: no such bound. per_owner: of the machines of one owner stamp."""

    per_day_usd: Decimal | None = None
    per_owner_usd: Decimal | None = None

    @property
    def bounded(self) -> bool:
        """Return whether there is anything to check."""
        return self.per_day_usd is not None or self.per_owner_usd is not None


UNBOUNDED = TeamBudget()


class TeamBudgetReached(Exception):  # noqa: N818 - the noun is the condition
    """A day has no room for another machine; `str()` says which, and how much is left."""


def admission(team: TeamBudget, new: Attempt, *, owner8: str, now: float) -> Admit | None:
    """Return the check that goes into the intent's transaction; None where nothing is bounded."""
    if not team.bounded:
        return None
    today = now // ledger.DAY_S * ledger.DAY_S
    return Admit(today, lambda others: check(team, others, new, owner8=owner8, now=now))


def check(
    team: TeamBudget, others: Iterable[Attempt], new: Attempt, *, owner8: str, now: float
) -> None:
    """Raise TeamBudgetReached where a day that `new` may reach has no room for it."""
    wanted = by_day(new, now)
    everyone: defaultdict[str, Decimal] = defaultdict(Decimal)
    owners: defaultdict[str, Decimal] = defaultdict(Decimal)
    for attempt in others:
        for day, usd in by_day(attempt, now).items():
            everyone[day] += usd
            if attempt.label.startswith(label_prefix(owner8)):
                owners[day] += usd
    bounds = (
        (team.per_day_usd, everyone, "GPUJOB_BUDGET_USD_PER_DAY"),
        (team.per_owner_usd, owners, "GPUJOB_OWNER_BUDGET_USD_PER_DAY"),
    )
    for bound, taken, name in bounds:
        if bound is None:
            continue
        for day, usd in sorted(wanted.items()):
            if usd > 0 and taken[day] + usd > bound:
                left = max(Decimal(0), bound - taken[day])
                raise TeamBudgetReached(
                    f"{name} {bound}: on {day} (UTC) {left:.4f} USD are left, "
                    f"and this machine may need {usd:.4f}"
                )


def by_day(attempt: Attempt, now: float) -> dict[str, Decimal]:
    """Return USD by UTC day: what it cost once it is closed, else the most that it can."""
    if attempt.offer.price_is_notional:
        return {}
    days: defaultdict[str, Decimal] = defaultdict(Decimal)
    if attempt.state is State.CLOSED:
        for line in ledger.lines([attempt], now):
            for day, usd in ledger.by_day(line):
                days[day] += usd
            days[ledger.day_of(line.start)] += line.upper_bound_usd
        return dict(days)
    rates = [
        attempt.offer.price_usd_per_hour,
        *(m.rates[-1][1] for m in attempt.machines if m.rates),
    ]
    rate = max(rates) + storage_rate(attempt.offer, attempt.disk_gib)
    machines = max(1, len(attempt.machines))
    start = attempt.launch_first_at or attempt.opened_at
    end = max(attempt.deadline_at, now) + TEARDOWN_S
    for day, lasted_s in split(start, end):
        days[day] += machines * rate * ledger.seconds(lasted_s) / ledger.HOUR_S
    return dict(days)


def split(start: float, end: float) -> Iterator[tuple[str, float]]:
    """Yield (UTC day, seconds) of [start, end)."""
    while start < end:
        midnight = (start // ledger.DAY_S + 1) * ledger.DAY_S
        until = min(midnight, end)
        yield ledger.day_of(start), until - start
        start = until
