"""The watchdog beside the instance, the limits of a job file, and what a heartbeat may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.findings import JobFileError
from jobs.load import load_job
from orchestrator.agent.watchdog import Sample
from orchestrator.states import Reason
from orchestrator.watchdog import (
    UNWATCHED,
    Beside,
    Watch,
    as_order,
    limits_of,
    read_sample,
    words,
)

WATCH = Watch(idle_s=60.0, stall_s=60.0, every_s=1.0)
STILL: list[Any] = list(
    Sample(0.0, phase="train", step=7, cpu_s=4.0, moved_bytes=9, free_bytes=1 << 40)
)


def run(beside: Beside, seconds: int, **changes) -> tuple[int, tuple[Reason, str]] | None:
    for second in range(seconds):
        status: dict[str, Any] = {
            "log_bytes": 10, "heartbeat_age_s": 1.0, "sample": STILL, **changes,
        }  # fmt: skip
        found = beside.look(float(second), **status)
        if found is not None:
            return second, found
    return None


def test_it_ends_what_the_agent_should_have_ended_a_while_later():
    second, (reason, said) = run(Beside(WATCH), 200) or (0, (None, ""))
    assert reason is Reason.STALLED
    assert second >= 60 + 20
    assert "seen from outside: no step" in said


def test_a_growing_log_and_limits_that_are_off_keep_it_quiet():
    beside = Beside(WATCH)
    for second in range(300):
        quiet = beside.look(float(second), log_bytes=second, heartbeat_age_s=1.0, sample=STILL)
        assert quiet is None
    assert run(Beside(UNWATCHED), 300) is None


def test_an_agent_without_a_watchdog_is_not_judged():
    assert run(Beside(WATCH), 300, sample=None) is None
    assert run(Beside(WATCH), 300, sample=[1, 2]) is None


def test_looks_in_quick_succession_count_once():
    beside = Beside(WATCH)
    for _ in range(500):
        assert beside.look(5.0, log_bytes=1, heartbeat_age_s=1.0, sample=STILL) is None


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "now"),
        (0, None),
        (0, -1.0),
        (0, float("nan")),
        (1, "asleep"),
        (2, True),
        (5, 1),
        (9, "x"),
    ],
)
def test_a_heartbeat_is_not_trusted(place, value):
    assert read_sample(STILL) == Sample(*STILL)
    assert read_sample([*STILL[:place], value, *STILL[place + 1 :]]) is None
    assert read_sample(json.loads(json.dumps(STILL))) == Sample(*STILL)


@pytest.mark.parametrize("value", [None, {}, "x" * len(STILL), [*STILL, 1], 7])
def test_what_is_no_sample_is_none(value):
    assert read_sample(value) is None


def test_limits_of_a_job():
    assert limits_of({}) == UNWATCHED
    job = {"limits": {"hours": 8.0, "idle_minutes": 10.0, "stall_minutes": 480.0}}
    assert limits_of(job) == Watch(600.0, None, 15.0)
    assert limits_of(job, speed=10) == Watch(60.0, None, 1.5)
    assert as_order(limits_of(job)) == {"idle_s": 600.0, "stall_s": None, "every_s": 15.0}
    assert words(limits_of(job), hours=8) == "idle 10 min, diverged, disk full, at 8 h"


JOB = """\
name: x
model: owner/name
method: lora
data: {{train: rows.jsonl, format: alpaca}}
limits:
  hours: 2
  {}: {}
"""


@pytest.mark.parametrize("name", ["idle_minutes", "stall_minutes", "boot_minutes"])
def test_a_limit_that_can_never_fire_is_refused_at_its_line(tmp_path: Path, name: str):
    row = {"instruction": "a", "input": "", "output": "b"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(name, 119))
    load_job(path)
    path.write_text(JOB.format(name, 120))
    with pytest.raises(JobFileError) as refused:
        load_job(path)
    (finding,) = refused.value.findings
    assert (finding.line, finding.field) == (7, f"limits.{name}")
    assert "can never fire" in finding.message
    assert "less than 120" in finding.remedy


def test_a_short_job_with_the_default_guards_is_fine(tmp_path: Path):
    row = {"instruction": "a", "input": "", "output": "b"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format("hours", 0.2).replace("  hours: 2\n", ""))
    assert limits_of(load_job(path).spec.model_dump(mode="json")).idle_s is None
