"""The pushes of a job: told from events alone, driven by the driver, never in the machine's way."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator.artifacts.push import Order, Outcome
from orchestrator.artifacts.push_process import PushKeys, environment_of
from orchestrator.fold import fold
from orchestrator.jobflow import Close, next_move
from orchestrator.plan import JobRecord, NewJob
from orchestrator.policy import Limits
from orchestrator.pushing import Pushing
from orchestrator.states import Reason, State
from tests.support.core import M1, T0, launched, new_job

S3, HUB = "s3://bucket/x", "hf://ada/tone"
FILES = (("adapter_model.safetensors", 3, "ab"),)


def home(*more: ev.AttemptEvent, closed: bool = True):
    """Return an attempt whose result is at home."""
    end = [ev.InstanceGone(T0 + 9, "reads")] if closed else []
    return fold([
        *launched(), ev.SshReady(T0), ev.TrainerStarted(T0),
        ev.TrainerExited(T0, Reason.SUCCEEDED, ""),
        ev.ArtifactsPushed(T0 + 5, FILES, "/home/out"), *end, *more,
    ])  # fmt: skip


def job(*targets: str) -> NewJob:
    return replace(new_job(), pushes=targets or (S3, HUB))


def move(attempt, new=None, cancel=None):
    return next_move(new or job(), [attempt], cancel=cancel, spent_usd=Decimal(0), now=T0 + 60)


DONE = [ev.PushVerified(T0 + 6, S3, "s3://bucket/x/tone"), ev.PushVerified(T0 + 7, HUB, "hf://x@1")]


def test_a_job_is_over_when_every_place_has_it():
    assert move(home(), new_job()) == Close(Reason.SUCCEEDED, "")
    assert move(home()) is None
    assert move(home(DONE[0])) is None
    assert move(home(*DONE)) == Close(Reason.SUCCEEDED, "")


def test_one_place_that_failed_is_artifacts_failed_once_the_others_are_through():
    failed = ev.PushFailed(T0 + 6, S3, "it is full", "Make room")
    assert move(home(failed)) is None
    closing = move(home(failed, DONE[1]))
    assert isinstance(closing, Close)
    assert closing.reason is Reason.ARTIFACTS_FAILED
    assert closing.evidence == f"{S3}: it is full. Make room. The result is safe in /home/out"


def test_a_failure_that_may_pass_keeps_the_job_open():
    assert move(home(ev.PushFailed(T0 + 6, S3, "reset", final=False), DONE[1])) is None


def test_verified_stays_verified():
    late = ev.PushFailed(T0 + 8, S3, "late word of a slower process")
    assert home(*DONE, late).push(S3).where == "s3://bucket/x/tone"


def test_a_wish_to_end_it_ends_the_waiting_but_undoes_nothing():
    closing = move(home(DONE[0]), cancel=Reason.CANCELLED)
    assert isinstance(closing, Close)
    assert closing.reason is Reason.CANCELLED
    assert "/home/out" in closing.evidence
    assert move(home(*DONE), cancel=Reason.CANCELLED) == Close(Reason.SUCCEEDED, "")


class Child:
    """A push under way, as the test wants it."""

    def __init__(self, order: Order) -> None:
        self.order, self.stopped = order, False
        self.outcome: Outcome | None = None

    def poll(self):
        return self.outcome

    def stop(self) -> None:
        self.stopped = True


class Bench:
    """One job's pushes with a clock and children of the test's own."""

    def __init__(self, attempt, new=None) -> None:
        self.at = T0 + 10
        self.children: list[Child] = []
        self.events: list[Any] = []
        self.limits, self.clock, self.attempt = Limits(push_timeout_s=60.0), self, attempt
        self.pushing = Pushing(self, JobRecord(new or job(S3), T0), self._commit, self.start_push)  # type: ignore[arg-type]

    def now(self) -> float:
        return self.at

    def start_push(self, order: Order) -> Child:
        self.children.append(Child(order))
        return self.children[-1]

    def _commit(self, case, event) -> None:
        from orchestrator.fold import apply

        self.events.append(event)
        self.attempt = case.attempt = apply(case.attempt, event)

    def step(self, cancel=None) -> list[float]:
        self.attempt_case = type("Case", (), {"attempt": self.attempt})()
        return self.pushing.step([self.attempt_case], cancel)


@pytest.mark.parametrize("closed", [True, False])
def test_a_push_starts_when_the_result_is_home_whatever_the_machine_does(closed):
    bench = Bench(home(closed=closed))
    assert bench.attempt.state is (State.CLOSED if closed else State.STOPPING)
    assert bench.step()
    (child,) = bench.children
    assert child.order == Order(S3, "abc123", "tone", 1, "/home/out", FILES)
    child.outcome = Outcome(S3, where="s3://bucket/x/tone")
    assert bench.step() == []
    assert bench.attempt.push(S3).where == "s3://bucket/x/tone"
    assert bench.step() == []
    assert len(bench.children) == 1


def test_nothing_is_pushed_of_a_training_that_failed_or_goes_on():
    early = fold(launched())
    assert Bench(early).step() == []
    failed = fold([*launched(), ev.Aborted(T0, Reason.OUT_OF_MEMORY, "x"), ev.MachineGone(T0, M1)])
    assert Bench(failed).step() == []


def test_what_may_pass_is_tried_again_until_the_limit_and_told_once():
    bench = Bench(home())
    for _ in range(100):
        due = bench.step()
        if not due:
            break
        bench.at = max(due[0], bench.at)
        if bench.children[-1].outcome is None:
            bench.children[-1].outcome = Outcome.failed(S3, "reset", retry=True)
    assert 3 <= len(bench.children) <= 6
    assert [event.final for event in bench.events] == [False, True]
    assert bench.attempt.push(S3).failed


def test_a_refusal_is_final_at_once_and_can_be_reopened():
    bench = Bench(home())
    bench.step()
    bench.children[0].outcome = Outcome.failed(S3, "no", "Mend it")
    assert bench.step() == []
    assert bench.step() == []
    assert len(bench.children) == 1
    bench.pushing.reopen([bench.attempt_case])
    assert bench.step()
    bench.children[1].outcome = Outcome(S3, where="s3://there")
    assert bench.step() == []
    assert bench.attempt.push(S3).where == "s3://there"


def test_a_try_that_hangs_is_ended():
    bench = Bench(home())
    bench.step()
    bench.at += bench.limits.push_try_s + 1
    bench.step()
    assert bench.children[0].stopped
    assert "too long" in bench.events[-1].error


def test_a_wish_to_end_it_ends_the_children():
    bench = Bench(home())
    bench.step()
    assert bench.step(Reason.CANCELLED) == []
    assert bench.children[0].stopped


def test_each_push_has_its_own_secrets_and_no_other():
    environ = {
        "PATH": "/bin", "HOME": "/h", "RUNPOD_API_KEY": "rp-secret", "HF_TOKEN": "hf-secret",
        "AWS_SECRET_ACCESS_KEY": "aws-secret", "AWS_ACCESS_KEY_ID": "aws-id", "PWD": "/h",
    }  # fmt: skip
    keys = PushKeys(
        hf_token="hf-secret", aws_secret_access_key="aws-secret", aws_access_key_id="aws-id",
        aws_region="eu-1", hf_endpoint="http://hub", aws_endpoint_url="http://s3",
    )  # fmt: skip
    secrets = {"rp-secret", "hf-secret", "aws-secret", "aws-id"}
    made = environment_of(S3, environ, keys)
    assert secrets & set(made.values()) == {"aws-secret", "aws-id"}
    assert made["AWS_DEFAULT_REGION"] == "eu-1"
    made = environment_of(HUB, environ, keys)
    assert secrets & set(made.values()) == {"hf-secret"}
    assert made["HF_HUB_DISABLE_XET"] == "1"
    made = environment_of("/a/folder", environ, keys)
    assert not secrets & set(made.values())
    assert made["PATH"] == "/bin"
