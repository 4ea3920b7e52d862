"""What follows an attempt: the next offer, or the job's end."""

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.attempt import Attempt
from orchestrator.fold import fold
from orchestrator.jobflow import Close, Open, next_move
from orchestrator.policy import ALL_RULES
from orchestrator.states import Reason, State
from tests.support.core import M1, T0, launched, new_job, offer, opened

A, B, C = offer("a", "1.80"), offer("b", "3.60"), replace(offer("c"), provider="other")
LATER = T0 + 100.0


def over(reason, at=A, number=1, *, machine=False, state=State.CLOSED) -> Attempt:
    """Return an attempt that ended so."""
    attempt = fold(launched() if machine else [opened()])
    return replace(attempt, number=number, offer=at, provider=at.provider, reason=reason,
                   evidence=f"why {number}", state=state)  # fmt: skip


def move(*attempts, offers=(A, B, C), cancel=None, spent="0", now=LATER, rules=ALL_RULES, **caps):
    return next_move(
        new_job("abc123", *offers, **caps), attempts, cancel=cancel, spent_usd=Decimal(spent),
        now=now, rules=rules,
    )  # fmt: skip


def test_the_first_offer_is_opened_until_the_time_is_up():
    assert move(max_s=3600.0) == Open(1, A, LATER + 3600.0)


def test_what_is_left_of_the_budget_bounds_the_machine():
    assert move(budget_usd=Decimal("0.90")) == Open(1, A, LATER + 1800.0)
    assert move(budget_usd=Decimal("0.90"), spent="0.45") == Open(1, A, LATER + 900.0)


def test_a_free_machine_has_no_money_bound():
    free = offer("free", "0")
    assert move(offers=(free,), budget_usd=Decimal(1), max_s=50_000.0).deadline_at == LATER + 50_000


@pytest.mark.parametrize("state", [s for s in State if s is not State.CLOSED])
def test_nothing_opens_while_one_is_under_way(state):
    assert move(over(Reason.BOOT_TIMEOUT, state=state)) is None


def test_a_fault_of_the_machine_leads_to_the_next_offer():
    assert move(over(Reason.NO_CAPACITY)) == Open(2, B, T0 + 86_400.0)
    assert move(over(Reason.BOOT_TIMEOUT, B, 2, machine=True)).offer == C


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.OUT_OF_MEMORY, Reason.AUTH])
def test_any_other_end_is_the_jobs(reason):
    assert move(over(reason)) == Close(reason, "why 1")


def test_a_provider_at_its_limit_is_not_asked_again():
    assert move(over(Reason.QUOTA)).offer == C
    assert move(over(Reason.QUOTA), offers=(A, B)) == Close(Reason.QUOTA, "why 1")


def test_with_no_offer_left_the_most_telling_reason_is_the_jobs():
    first = over(Reason.BOOT_TIMEOUT, A, 1, machine=True)
    last = over(Reason.NO_CAPACITY, B, 2)
    assert move(first, last, offers=(A, B)) == Close(Reason.BOOT_TIMEOUT, "why 1")


def test_an_offer_that_never_answered_is_the_last_resort_once_more():
    unknown = replace(over(Reason.LAUNCH_UNKNOWN, A), proof="suspect")
    assert move(unknown, offers=(A, B)).offer == B
    assert move(unknown, offers=(A,)).offer == A
    thrice = [replace(unknown, number=n) for n in (1, 2, 3)]
    assert move(*thrice, offers=(A,)) == Close(Reason.LAUNCH_UNKNOWN, "why 1")


@pytest.mark.parametrize("reason", [Reason.INSTANCE_LOST, Reason.AGENT_LOST, Reason.SSH_LOST])
def test_a_lost_machine_is_followed_by_another_even_of_its_own_kind(reason):
    here, there = replace(A, region="here"), replace(B, region="there")
    lost = over(reason, there, 2, machine=True)
    assert move(over(reason, here, machine=True), offers=(here, there)).offer == there
    assert move(lost, offers=(here, there)).offer == here, "the place that lost it is cooled down"
    assert move(over(reason, machine=True), offers=(A,)).offer == A
    thrice = [over(reason, A, n, machine=True) for n in (1, 2, 3)]
    assert move(*thrice, offers=(A,)) == Close(reason, "why 3"), "attempts are bounded"
    broke = move(over(reason, machine=True), offers=(A,), budget_usd=Decimal("0.5"), spent="0.49")
    assert broke.reason is Reason.BUDGET


def test_too_little_time_or_money_opens_nothing():
    late = move(over(Reason.NO_CAPACITY), max_s=120.0)
    assert (late.reason, late.evidence) == (
        Reason.DEADLINE, "too little is left for another machine",
    )  # fmt: skip
    poor = move(over(Reason.BOOT_TIMEOUT, machine=True), budget_usd=Decimal("0.5"), spent="0.49")
    assert poor.reason is Reason.BUDGET


def test_a_cancel_ends_what_would_go_on_but_not_what_is_decided():
    assert move(cancel=Reason.CANCELLED) == Close(Reason.CANCELLED, "")
    assert move(over(Reason.NO_CAPACITY), cancel=Reason.CANCELLED).reason is Reason.CANCELLED
    assert move(over(Reason.SUCCEEDED), cancel=Reason.CANCELLED).reason is Reason.SUCCEEDED


def test_a_job_is_not_closed_while_an_earlier_machine_is_back():
    back = over(Reason.LAUNCH_UNKNOWN, A, 1, machine=True, state=State.STOPPING)
    assert move(back, over(Reason.SUCCEEDED, B, 2)) is None
    assert M1 in {m.id for m in back.living}
