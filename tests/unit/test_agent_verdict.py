"""The verdict: exit status 0 is one condition of many, and a cut log never passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.agent.logs import LogFacts, read_log
from orchestrator.agent.metrics import MetricsFacts
from orchestrator.agent.verdict import Case, Stopped, judge, stamp_of
from orchestrator.agent.weights import Weights

LOGS = Path(__file__).parents[1] / "cases" / "axolotl_logs"
SUCCESSES = {
    "success_0.21": 20,
    "success_with_plugin_0.21": 20,
    "qlora_cpu": 20,
    "killed_then_resumed": 300,
}
GOOD_WEIGHTS = Weights(28, finite=True, zero_b=False)
NO_METRICS = MetricsFacts(False, False, None, None, 0, None, False, False)


def metrics(steps, **changes):
    facts = MetricsFacts(
        begun=True,
        ended=True,
        last_step=steps,
        max_steps=steps,
        logged=steps,
        bad_step=None,
        recovered=False,
        all_zero=False,
    )
    return facts._replace(**changes)


def case(log: LogFacts, **changes):
    good = Case(
        rc=0,
        stopped=None,
        log=log,
        metrics=NO_METRICS,
        weights=GOOD_WEIGHTS,
        weights_error="",
        fresh=True,
        out_of_memory_kill=False,
    )
    return good._replace(**changes)


@pytest.fixture
def good():
    return case(read_log(str(LOGS / "success_0.21.log")), metrics=metrics(20))


@pytest.mark.parametrize("name", SUCCESSES)
@pytest.mark.parametrize("with_metrics", [True, False])
def test_success(name, with_metrics):
    facts = metrics(SUCCESSES[name]) if with_metrics else NO_METRICS
    log = read_log(str(LOGS / f"{name}.log"))
    assert (log.last_step, log.max_steps) == (SUCCESSES[name],) * 2
    assert judge(case(log, metrics=facts)).reason == "SUCCEEDED"


@pytest.mark.parametrize("name", SUCCESSES)
def test_a_log_cut_at_any_line_never_succeeds(name, tmp_path):
    """Everything else speaks for success: status 0, good weights, good metrics or none at all."""
    whole = (LOGS / f"{name}.log").read_bytes()
    cuts = [found.end() for found in re.finditer(rb"[\r\n]", whole)]
    assert cuts[-1] == len(whole)
    part = tmp_path / "train.log"
    for cut in [0, *cuts[:-1], *range(len(whole) - 40, len(whole))]:
        part.write_bytes(whole[:cut])
        log = read_log(str(part))
        for facts in (metrics(SUCCESSES[name]), NO_METRICS):
            verdict = judge(case(log, metrics=facts))
            assert verdict.verdict == "failed", cut
            assert verdict.reason == "INCOMPLETE"


@pytest.mark.parametrize("name", ["diverged_nan_rc0", "sigint_partial_rc0"])
@pytest.mark.parametrize("with_weights", [True, False])
def test_the_traps_that_exit_with_0(name, with_weights):
    weights = GOOD_WEIGHTS if with_weights else None
    verdict = judge(case(read_log(str(LOGS / f"{name}.log")), weights=weights))
    assert verdict.verdict == "failed"
    assert verdict.reason == ("DIVERGED" if "nan" in name else "INCOMPLETE")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": metrics(20, bad_step=2)}, "DIVERGED"),
        ({"metrics": metrics(20, last_step=19)}, "INCOMPLETE"),
        ({"metrics": metrics(20, last_step=21)}, "INCOMPLETE"),
        ({"metrics": metrics(20, last_step=None)}, "INCOMPLETE"),
        ({"metrics": metrics(20, ended=False)}, "INCOMPLETE"),
        ({"metrics": metrics(0, logged=20)}, "INCOMPLETE"),
        ({"metrics": metrics(20, all_zero=True)}, "NOTHING_LEARNED"),
        ({"weights": Weights(28, finite=False, zero_b=False)}, "DIVERGED"),
        ({"weights": Weights(28, finite=True, zero_b=True)}, "NOTHING_LEARNED"),
        ({"weights": None, "weights_error": "absent"}, "INCOMPLETE"),
        ({"fresh": False}, "INCOMPLETE"),
        ({"rc": 1}, "TRAINER_FAILED"),
        ({"rc": None}, "TRAINER_FAILED"),
    ],
)
def test_one_thing_wrong_is_enough(good, changes, reason):
    assert judge(good).reason == "SUCCEEDED"
    verdict = judge(good._replace(**changes))
    assert (verdict.verdict, verdict.reason) == ("failed", reason)


def test_overflow_that_fp16_scaling_skipped_is_no_divergence(good):
    facts = metrics(20, bad_step=1, recovered=True)
    assert judge(good._replace(metrics=facts)).reason == "SUCCEEDED"


def test_an_early_stop_counts_where_the_job_asked_for_one(good):
    early = good._replace(metrics=metrics(20, last_step=12))
    assert judge(early).reason == "INCOMPLETE"
    assert judge(early._replace(may_stop_early=True)).reason == "SUCCEEDED"
    silent = early._replace(may_stop_early=True, metrics=metrics(20, last_step=12, ended=False))
    assert judge(silent).reason == "INCOMPLETE"


def test_a_full_disk_explains_what_nothing_else_does(good):
    full = good._replace(rc=1, free_bytes=4096)
    assert judge(full).reason == "DISK_FULL"
    assert judge(full._replace(rc=0, weights=None, weights_error="torn")).reason == "DISK_FULL"
    assert judge(full._replace(rc=0)).reason == "SUCCEEDED"
    assert judge(full._replace(rc=-9)).reason == "TRAINER_KILLED"
    assert judge(full._replace(free_bytes=1 << 30)).reason == "TRAINER_FAILED"


def test_our_own_stop_is_no_failure_of_the_trainer(good):
    stopped = Stopped("DEADLINE", "the deadline passed")
    verdict = judge(good._replace(rc=-15, stopped=stopped))
    assert verdict == ("stopped", "DEADLINE", "the deadline passed")
    partial = good._replace(stopped=stopped, metrics=metrics(20, last_step=7))
    assert judge(partial).verdict == "stopped"
    # It had finished, and well, before the signal came: the user keeps what was paid for.
    assert judge(good._replace(stopped=stopped)).verdict == "succeeded"


def test_what_an_earlier_run_printed_proves_nothing(tmp_path):
    whole = (LOGS / "success_0.21.log").read_bytes()
    log = tmp_path / "train.log"
    log.write_bytes(whole + whole[: whole.find(b"Training completed!")])
    assert judge(case(read_log(str(log)))).reason == "INCOMPLETE"


def test_the_stamp_changes_with_the_file_not_with_the_clock(tmp_path):
    assert stamp_of(str(tmp_path), adapter=True) is None
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(b"one")
    before = stamp_of(str(tmp_path), adapter=True)
    assert before is not None
    assert stamp_of(str(tmp_path), adapter=False) is None
    replacement = tmp_path / "new"
    replacement.write_bytes(b"two")
    replacement.replace(weights)
    assert stamp_of(str(tmp_path), adapter=True) != before
