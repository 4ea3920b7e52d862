"""Money before anything is rented: too small a budget, too low a balance, a price that rose."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.exits import Exit, Refused
from orchestrator.match import Matching, Quote
from orchestrator.submit import Plan
from orchestrator.submit_money import (
    as_agreed,
    refuse_low_balance,
    refuse_small_budget,
    reserve_usd,
    smallest_budget,
)
from providers.errors import Unavailable
from providers.fake import FakeCloud, FakeProvider
from tests.support.clocks import VirtualClock
from tests.support.core import offer

OFFER = offer(price="3.60")  # a tenth of a cent a second


def plan(budget: str | None = None, hours: float = 10.0, price: str = "3.60", **more: Any) -> Plan:
    limits = SimpleNamespace(budget_usd=None if budget is None else Decimal(budget), hours=hours)
    quote = Quote(offer(price=price), more.get("expected"))
    spec: Any = SimpleNamespace(limits=limits)
    return Plan(spec, Matching((quote,), ()), {})


def fake(credit: str | None = None) -> FakeProvider:
    cloud = FakeCloud(VirtualClock(), random.Random(1))
    cloud.credit_usd = None if credit is None else Decimal(credit)
    return FakeProvider(cloud)


def test_a_budget_that_ends_before_the_training_is_refused_with_the_smallest_that_works():
    with pytest.raises(Refused) as refused:
        refuse_small_budget(plan("0.47"), {"fake": fake()})
    least = smallest_budget(OFFER, remote=True)
    assert least == Decimal("0.48")
    assert str(least) in refused.value.remedy
    assert "limits.budget_usd 0.47" in str(refused.value)
    refuse_small_budget(plan(str(least)), {"fake": fake()})
    refuse_small_budget(plan(None), {"fake": fake()})
    assert smallest_budget(OFFER, remote=False) < least  # nothing has to boot


def test_the_reserve_is_of_the_budget_and_never_most_of_it():
    assert reserve_usd(OFFER, None) == 0
    assert reserve_usd(OFFER, Decimal(10)) == Decimal("0.18")
    assert reserve_usd(OFFER, Decimal("0.48")) == Decimal("0.12")


def test_an_empty_account_is_refused_and_a_thin_one_is_said():
    with pytest.raises(Refused, match=r"balance of \$0.40 does not cover") as refused:
        refuse_low_balance(plan(), {"fake": fake("0.40")})
    assert refused.value.code is Exit.NO_OFFER
    thin = refuse_low_balance(plan(), {"fake": fake("7.20")})
    assert any("lasts for 2.0 h" in note for note in thin.notes)
    assert refuse_low_balance(plan(), {"fake": fake("100")}).notes == ()


def test_what_is_expected_must_be_there():
    with pytest.raises(Refused, match="needs about"):
        refuse_low_balance(plan(expected=Decimal(9)), {"fake": fake("7.20")})


def test_an_unknown_balance_refuses_nothing(monkeypatch):
    assert refuse_low_balance(plan(), {"fake": fake(None)}).notes == ()
    broken = fake("0")

    def balance() -> None:
        raise Unavailable("balance: 503")

    monkeypatch.setattr(broken, "balance", balance)
    assert any("balance unknown" in n for n in refuse_low_balance(plan(), {"fake": broken}).notes)
    only_verbs: Any = SimpleNamespace(traits=broken.traits)
    assert refuse_low_balance(plan(), {"fake": only_verbs}).notes == ()


def test_a_dearer_price_voids_the_yes_and_a_cheaper_one_does_not():
    asked = plan()
    with pytest.raises(Refused, match=r"rose from \$3.60/h to \$3.61/h") as refused:
        as_agreed(asked, plan(price="3.61"))
    assert refused.value.code is Exit.INTERRUPTED
    fresh = plan(price="3.00")
    asked = replace(asked, keep_on_failure_s=60.0)
    now = as_agreed(asked, fresh)
    assert (now.best, now.keep_on_failure_s) == (fresh.best, 60.0)
    assert as_agreed(asked, replace(asked)) == asked
