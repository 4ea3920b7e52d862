"""`status` of a running job: when it will be done and at what cost, from the job's own steps."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from jobs.spec import JobSpec
from orchestrator import finish
from orchestrator.__main__ import run
from orchestrator.eta import planned_of
from orchestrator.home import open_home
from orchestrator.store_quick import open_quick
from tests.support.filled_store import T0, fill

NOW = T0 + 2_000.0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    _, store, ids = fill(folder)
    store.close()
    return folder, ids


def metrics(step_s: float, steps: int = 25) -> list[bytes]:
    rows = [{"event": "train_begin", "at": 0.0, "step": 0, "max_steps": 400}]
    rows += [
        {"event": "log", "at": step * step_s, "step": step, "loss": 1.0}
        for step in range(1, steps + 1)
    ]
    return [json.dumps(row).encode() for row in rows] + [b'{"event": "log", "at": 9', b"[]", b"7"]


def running(home):
    folder, ids = home
    quick = open_quick(open_home(folder).database_url)
    assert quick is not None
    job = quick.job(ids["running"], now=NOW)
    quick.close()
    return job


def test_time_and_cost_come_from_the_jobs_own_steps(home):
    job = running(home)  # at step 88 of 400, $0.74 an hour
    found = finish.finish_of(job, finish.points_in(metrics(3.0)), None)
    assert found is not None
    assert found.left.seconds == pytest.approx(312 * 3.0, rel=0.01)
    assert found.left.low_s <= found.left.seconds <= found.left.high_s
    assert found.usd - job.cost_usd == pytest.approx(
        Decimal("0.74") * 936 / 3600, rel=Decimal("0.01")
    )
    assert found.low_usd <= found.usd <= found.high_usd
    assert found.steps == 25


def test_before_the_first_step_the_plan_speaks_and_its_band_is_wide(home):
    spec = JobSpec.model_validate(
        {"name": "x", "model": "meta-llama/Llama-3.1-8B", "method": "qlora"}
    ).model_dump(mode="json")
    planned = planned_of(spec, "RTX 4090", 1, 24.0)
    assert planned is not None
    early = finish.finish_of(running(home), (), planned)
    late = finish.finish_of(running(home), finish.points_in(metrics(3.0)), planned)
    assert early is not None
    assert late is not None
    assert early.left.seconds == pytest.approx(312 * planned.step_s, rel=0.01)
    assert late.left.seconds == pytest.approx(936, rel=0.05)
    wide, narrow = ((x.left.high_s - x.left.low_s) / x.left.seconds for x in (early, late))
    assert narrow < wide / 3


def test_only_a_running_job_has_a_finish(home):
    job = running(home)
    assert finish.finish_of(replace(job, attempts=()), (), None) is None
    first = job.attempts[0]
    assert finish.finish_of(replace(job, attempts=(replace(first, step=None),)), (), None) is None
    assert finish.finish_of(job, (), None) is None


def test_status_tells_it_in_words_and_as_json(home, monkeypatch, capsys):
    folder, ids = home
    monkeypatch.setenv("GPUJOB_HOME", str(folder))
    monkeypatch.setenv("GPUJOB_SWEEP", "off")
    path = open_home(folder).log_path(ids["running"], 1, "metrics.jsonl")
    path.write_bytes(b"\n".join(metrics(3.0)) + b"\n")

    def answer(*words: str) -> str:
        assert run(["status", ids["running"], *words]) == 0
        return str(capsys.readouterr().out)

    said = json.loads(answer("--json"))["job"]["remaining"]
    assert said["training_s"] == pytest.approx(936, rel=0.01)
    assert said["low_s"] < said["training_s"] < said["high_s"]
    assert said["steps_seen"] == 25
    assert Decimal(said["low_usd"]) <= Decimal(said["cost_at_end_usd"]) <= Decimal(said["high_usd"])
    words = answer()
    assert "ETA" in words
    assert "left" in words
    assert "at the end" in words
