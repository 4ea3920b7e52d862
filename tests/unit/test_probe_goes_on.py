"""A probe that goes on: one verdict, after its steps or its caps, by what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.architectures import find
from jobs.sizing import Tokens
from jobs.workload import Workload
from orchestrator import drive
from orchestrator.cli_probe import Probed, _Round
from orchestrator.probe import Measured, Terms
from orchestrator.probe_goes_on import GoOn
from orchestrator.report_live import Live
from orchestrator.sized import Sized
from orchestrator.states import State
from providers.base import Offer, OfferKey
from tests.support.job_views import job

A100 = Offer("fake", OfferKey("a"), "A100-80GB", 1, 80.0, Decimal("1.60"))
H100 = Offer("fake", OfferKey("h"), "H100-80GB", 1, 80.0, Decimal("2.90"))
WORK = Workload(find("Llama-3.1-8B"), micro_batch_size=2, gradient_accumulation_steps=4)
TERMS = Terms(steps=10, minutes=5, usd=Decimal(1))
T0 = 1_000.0


def met(offer: Offer, usd: str | None, step_s: float | None = 2.0) -> Probed:
    cost = None if usd is None else Decimal(usd)
    hours = None if usd is None else 2.0
    found = Measured(10, step_s, 500.0, 20.0)
    return Probed("b00b1e", offer, "RUNNING", found, None, None, hours, cost, Decimal("0.1"))


def live(step: int | None = 10, after_s: float = 60.0, cost: str = "0.05") -> Live:
    attempt = {"step": step, "max_steps": 400, "trainer_started_at": T0}
    return Live(job(attempt, state=State.RUNNING, cost_usd=Decimal(cost)), T0 + after_s)


def judge(here: Probed, *others: Probed, budget: str | None = None) -> GoOn:
    limit = None if budget is None else Decimal(budget)
    return GoOn(TERMS, limit, others, lambda _id: here, lambda found: [f"{len(found)} cards"])


def test_it_waits_for_the_steps_and_for_a_pace():
    one = judge(met(A100, "3.00"))
    assert one(live(step=None)) is None
    assert one(live(step=9)) is None
    assert judge(met(A100, None, step_s=None))(live()) is None
    assert one.went_on == ""


def test_the_cheapest_goes_on_and_says_so():
    one = judge(met(A100, "3.00"), met(H100, "4.00"))
    verdict = one(live())
    assert verdict is not None
    lines, goes_on = verdict
    assert goes_on
    assert lines[0] == "2 cards"
    assert "goes on here" in lines[-1]
    assert one.went_on


@pytest.mark.parametrize(
    ("here", "others", "budget", "seen", "why"),
    [
        (met(H100, "4.00"), (met(A100, "3.00"),), None, live(), "A100-80GB is cheaper"),
        (met(A100, "9.00"), (), "8", live(), "above limits.budget_usd $8"),
        (met(A100, None, step_s=None), (), None, live(2, 301.0), "no step was measured"),
        (met(A100, None, step_s=None), (), None, live(2, cost="1.01"), "no step was measured"),
    ],
)
def test_it_ends_where_going_on_would_be_wrong(here, others, budget, seen, why):
    one = judge(here, *others, budget=budget)
    verdict = one(seen)
    assert verdict is not None
    assert verdict[1] is False
    assert why in verdict[0][-1]
    assert one.went_on == ""


def test_a_made_up_price_breaks_no_budget():
    here = met(replace(A100, price_is_notional=True), "9.00")
    verdict = judge(here, budget="8")(live())
    assert verdict is not None
    assert verdict[1]


@dataclass
class Painted:
    """Keeps what was said."""

    lines: list[str] = field(default_factory=list)

    def keep(self, lines: list[str]) -> None:
        self.lines += lines


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_screen_hears_the_judge_once_and_ends_the_job_where_it_says_so(goes_on):
    asked: list[str] = []
    supervisor = SimpleNamespace(request_cancel=lambda job_id, reason: asked.append(job_id))
    one: Any = SimpleNamespace(
        judge=lambda _live: (["a table"], goes_on), cancelled=False, painter=Painted(),
        driven=SimpleNamespace(supervisor=supervisor), job_id="b00b1e",
    )  # fmt: skip
    drive._hear_judge(one, live())
    drive._hear_judge(one, live())
    assert one.painter.lines[0] == "a table"
    assert one.painter.lines.count("a table") == 1
    assert asked == ([] if goes_on else ["b00b1e"])


def test_the_card_forecast_to_be_the_cheapest_comes_last():
    sized = Sized(WORK, Tokens(50_000_000, 0, 50_000_000, 1000, "x"))

    def turn(offer: Offer, known: Sized | None = sized) -> _Round:
        planned: Any = SimpleNamespace(best=SimpleNamespace(offer=offer))
        return _Round(offer.gpu, planned, known)

    dear = replace(H100, price_usd_per_hour=Decimal(40))
    rounds = [turn(A100), turn(dear), turn(H100, None)]
    rounds.sort(key=_Round.forecast_usd, reverse=True)
    assert [one.planned.best.offer for one in rounds] == [H100, dear, A100]
