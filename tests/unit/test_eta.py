"""The time that is left converges from the plan to the job's own steps, and its band closes."""

from __future__ import annotations

import math
import random

import pytest

from jobs.spec import JobSpec
from orchestrator.eta import Planned, left_of, planned_of
from orchestrator.report_live import Curve, Live, cost_words, progress_words
from tests.support.job_views import ATTEMPT, NOW, job

PLANNED = Planned(2.0, "few points")


def points(count: int, step_s: float, noise: float = 0.0) -> list[tuple[float, int]]:
    rng = random.Random(7)
    at, found = 0.0, [(0.0, 0)]
    for step in range(1, count):
        at += step_s * math.exp(rng.gauss(0, noise))
        found.append((at, step))
    return found


def test_before_the_first_pace_only_the_plan_is_known():
    found = left_of([], 0, 100, PLANNED)
    assert found is not None
    assert found.seconds == pytest.approx(200.0)
    assert found.low_s < 180
    assert found.high_s > 220
    assert left_of([], 0, 100, None) is None


def test_it_converges_to_the_steps_and_the_band_closes():
    widths = []
    for count in (3, 6, 20):
        found = left_of(points(count, 3.0, noise=0.05), 40, 100, PLANNED)
        assert found is not None
        widths.append((found.high_s - found.low_s) / found.seconds)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.05
    assert found is not None
    assert found.seconds == pytest.approx(60 * 3.0, rel=0.05)  # the plan had said 2.0 s


def test_without_a_plan_the_steps_alone_count():
    found = left_of(points(5, 3.0), 50, 100, None)
    assert found is not None
    assert found.seconds == pytest.approx(150.0)
    assert found.low_s < 150.0 < found.high_s
    over = left_of(points(5, 3.0), 100, 100, None)
    assert over is not None
    assert over.seconds == 0.0


def test_the_plan_of_a_step_needs_no_data():
    body = {"name": "x", "model": "meta-llama/Llama-3.1-8B", "method": "qlora"}
    spec = JobSpec.model_validate(body).model_dump(mode="json")
    one = planned_of(spec, "A100-80GB", 1, 80.0)
    assert one is not None
    assert 2 < one.step_s < 12  # 16,384 tokens at some thousands a second
    assert planned_of(spec, "CPU", 0, 0.0) is None
    assert planned_of({**spec, "model": "acme/base"}, "A100-80GB", 1, 80.0) is None
    assert planned_of({"name": "old"}, "A100-80GB", 1, 80.0) is None


def test_eta_and_cost_are_shown_with_their_band():
    curve = Curve(points=tuple((NOW - 100 + at, 462 + step) for at, step in points(20, 2.0, 0.2)))
    live = Live(job(), NOW, curve, planned=PLANNED)
    assert ATTEMPT.max_steps == 902
    words = progress_words(live)
    assert "  ETA 1" in words
    assert " - " in words.split("ETA", 1)[1]
    cost = cost_words(live)
    assert "about $" in cost
    assert " - $" in cost
    assert cost.count("at the end") == 1
