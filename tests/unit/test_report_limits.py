"""The plan says what ends a job, whatever happens."""

from __future__ import annotations

from decimal import Decimal

import pytest

from jobs.spec import JobSpec
from orchestrator.match import Requirement, match
from orchestrator.report_limits import limit_document, limit_words
from orchestrator.report_plan import plan_lines
from orchestrator.report_text import Screen
from orchestrator.submit import Plan
from tests.support.filled_store import OFFER

USUAL = "stalled 30 min, diverged, disk full"


def planned(boot_s: float | None = 600.0, **limits: object) -> Plan:
    spec = JobSpec.model_validate({
        "name": "tone", "model": "acme/base", "method": "lora", "limits": limits,
    })  # fmt: skip
    return Plan(spec, match(Requirement(), [OFFER]), {}, boot_s=boot_s)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {},
            f"idle 30 min, {USUAL}, at 24 h, no login in 10 min, no budget set",
        ),
        (
            {"idle_minutes": 10, "boot_minutes": 4, "budget_usd": Decimal(8), "hours": 2},
            f"idle 10 min, {USUAL}, at 2 h, no login in 4 min, $8.00 spent",
        ),
        # Half an hour of silence can't come before the end of a quarter: not told as a guard.
        (
            {"hours": 0.25},
            "diverged, disk full, at 0.25 h, no login in 10 min, no budget set",
        ),
    ],
)
def test_every_limit_in_force_is_told(limits, words):
    assert limit_words(planned(**limits)) == words
    text = " ".join(" ".join(plan_lines(planned(**limits), Screen(width=200))).split())
    assert f"ends early when {words}" in text


def test_the_document_has_the_same():
    assert limit_document(planned(None, budget_usd=Decimal(8), hours=0.25)) == {
        "idle_minutes": None,
        "stall_minutes": None,
        "hours": 0.25,
        "boot_minutes": None,
        "budget_usd": "8.000000",
    }
