"""What a day has room for: spent, spoken for, and not one cent more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator import events as ev
from orchestrator.fold import fold
from orchestrator.states import Reason
from orchestrator.team_budget import (
    TEARDOWN_S,
    TeamBudget,
    TeamBudgetReached,
    admission,
    by_day,
    check,
    split,
)
from tests.support.core import M1, T0, launched, offer, opened

HOUR = 3600.0
PRICE = offer().price_usd_per_hour  # 1.80
DAY = "2027-01-15"  # of T0


def attempt(hours: float = 1.0, label: str | None = None):
    made = fold([replace(opened(), deadline_at=T0 + hours * HOUR)])
    return made if label is None else replace(made, label=label)


def worst(hours: float) -> Decimal:
    return PRICE * Decimal(str(hours * HOUR + TEARDOWN_S)) / 3600


def owner_of_label() -> str:
    return str(attempt().label.split("-")[1])


def allowed(team: TeamBudget, others, new) -> bool:
    try:
        check(team, others, new, owner8=owner_of_label(), now=T0)
    except TeamBudgetReached:
        return False
    return True


def test_an_open_attempt_takes_all_that_it_could_cost():
    assert sum(by_day(attempt(2.0), T0).values()) == worst(2.0)


def test_room_is_given_to_the_cent_and_no_further():
    two = worst(1.0) * 2
    assert allowed(TeamBudget(two), [attempt()], attempt())
    assert not allowed(TeamBudget(two - Decimal("0.000001")), [attempt()], attempt())
    assert not allowed(TeamBudget(two), [attempt(), attempt()], attempt())


def test_what_is_closed_counts_as_spent_and_frees_the_rest():
    over = fold([
        *launched(), ev.Aborted(T0 + 60, Reason.CANCELLED, ""),
        ev.MachineGone(T0 + 90, M1), ev.InstanceGone(T0 + 90, "reads"),
    ])  # fmt: skip
    spent = sum(by_day(over, T0 + 100).values())
    assert Decimal(0) < spent < Decimal("0.05")
    assert allowed(TeamBudget(worst(1.0) + spent), [over], attempt())
    assert not allowed(TeamBudget(worst(1.0)), [over], attempt())


def test_a_bound_per_owner_leaves_the_others_alone():
    team = TeamBudget(per_owner_usd=worst(1.0))
    foreign = attempt(label="gpujob-ffffffff-abc123-1-000000")
    assert allowed(team, [foreign, foreign], attempt())
    assert not allowed(team, [attempt()], attempt())


def test_the_next_day_needs_room_too():
    long = attempt(30.0)
    days = by_day(long, T0)
    assert len(days) >= 2
    first, second = sorted(days)[:2]
    other = replace(long, label="gpujob-ffffffff-abc123-2-000000")
    team = TeamBudget(days[first] + days[second])  # plenty on the first day for one
    assert allowed(TeamBudget(max(days.values())), [], long)
    assert not allowed(TeamBudget(max(days.values())), [other], long)
    assert team.bounded


def test_days_are_cut_at_midnight_and_lose_nothing():
    parts = list(split(T0, T0 + 50 * HOUR))
    assert abs(sum(s for _, s in parts) - 50 * HOUR) < 1e-6
    assert len({day for day, _ in parts}) == len(parts) >= 3


def test_made_up_prices_are_nobodys_money():
    free = attempt()
    free = replace(free, offer=replace(free.offer, price_is_notional=True))
    assert allowed(TeamBudget(Decimal("0.01")), [], free)


def test_without_a_bound_there_is_no_check():
    assert admission(TeamBudget(), attempt(), owner8="x", now=T0) is None


def test_the_words_name_the_setting_the_day_and_what_is_left():
    with pytest.raises(TeamBudgetReached, match=r"GPUJOB_BUDGET_USD_PER_DAY 1: on \d{4}-.*left"):
        check(TeamBudget(Decimal(1)), [], attempt(), owner8="x", now=T0)
