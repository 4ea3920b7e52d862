"""The agent's answers are not trusted: what is malformed is unknown, and never a success."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent_answers import read_exit, read_status
from orchestrator.site import SiteRefused
from orchestrator.states import Reason

EXIT = {
    "schema": 1,
    "token": "t",
    "trainer_starts": 1,
    "rc": 0,
    "signal": None,
    "started_at": 100.0,
    "ended_at": 200.5,
    "verdict": "succeeded",
    "reason": "SUCCEEDED",
    "evidence": "Model successfully saved to /w/out",
    "last_step": 20,
    "max_steps": 20,
}
STATUS = {
    "phase": "training",
    "alive": True,
    "heartbeat_age_s": 1.5,
    "log_bytes": 10,
    "metrics_bytes": 20,
    "exit": None,
    "claim": {"token": "t"},
}


def test_a_proper_status_and_verdict() -> None:
    status = read_status(STATUS | {"phase": "done", "exit": EXIT}, "t")
    assert (status.phase, status.alive, status.heartbeat_age_s) == ("done", True, 1.5)
    assert (status.log_bytes, status.metrics_bytes) == (10, 20)
    report = status.exit
    assert report is not None
    assert (report.verdict, report.reason, report.rc) == ("succeeded", Reason.SUCCEEDED, 0)
    assert (report.started_at, report.ended_at) == (100.0, 200.5)
    assert (report.last_step, report.max_steps, report.trainer_starts) == (20, 20, 1)


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({"verdict": "failed", "reason": "OUT_OF_MEMORY", "rc": 1}, "failed", Reason.OUT_OF_MEMORY),
        ({"verdict": "stopped", "reason": "DEADLINE"}, "stopped", Reason.DEADLINE),
        ({"verdict": "stopped", "reason": "INTERRUPTED"}, "stopped", Reason.INSTANCE_LOST),
        ({"verdict": "succeeded", "reason": "DIVERGED"}, "failed", Reason.DIVERGED),
        ({"verdict": "failed", "reason": "SUCCEEDED"}, "failed", Reason.INCOMPLETE),
        ({"rc": 1}, "failed", Reason.INCOMPLETE),
        ({"rc": None}, "failed", Reason.INCOMPLETE),
        ({"rc": False}, "failed", Reason.INCOMPLETE),
        ({"verdict": "great"}, "failed", Reason.INCOMPLETE),
        ({"verdict": ["succeeded"]}, "failed", Reason.INCOMPLETE),
        ({"verdict": "failed", "reason": "NEW_WORD"}, "failed", Reason.TRAINER_FAILED),
        ({"verdict": "failed", "reason": {"a": 1}}, "failed", Reason.TRAINER_FAILED),
    ],
)
def test_only_a_proper_success_is_one(change: dict[str, Any], verdict: str, reason: Reason) -> None:
    report = read_exit(EXIT | change)
    assert (report.verdict, report.reason) == (verdict, reason)


def test_another_attempts_answer_is_refused() -> None:
    for answer in (STATUS | {"claim": {"token": "x"}}, STATUS | {"exit": EXIT | {"token": "x"}}):
        with pytest.raises(SiteRefused, match="another attempt") as caught:
            read_status(answer, "t")
        assert caught.value.reason is Reason.INTERNAL


def test_evidence_is_one_harmless_line() -> None:
    report = read_exit(EXIT | {"evidence": "a\x1b[31mb\nc\u202e" + "d" * 1000 + "\ud800"})
    assert report.evidence.startswith("ab\\nc\\u202ed")
    assert len(report.evidence) < 600
    assert read_exit(EXIT | {"evidence": 5}).evidence == ""


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(deadline=None)
@given(
    status=st.fixed_dictionaries({}, optional=dict.fromkeys(STATUS, junk)),
    ended=st.fixed_dictionaries({}, optional=dict.fromkeys(EXIT, junk)),
)
def test_garbage_never_raises_and_never_succeeds(
    status: dict[str, Any], ended: dict[str, Any]
) -> None:
    claim = {"claim": None} if isinstance(status.get("claim"), dict) else {}
    answer = read_status(status | claim | {"exit": ended | {"token": "t"}}, "t")
    assert answer.exit is not None
    assert answer.exit.verdict != "succeeded" or ended.get("reason") == "SUCCEEDED"
    assert answer.log_bytes >= 0
