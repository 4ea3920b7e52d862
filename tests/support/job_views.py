"""Views of jobs for tests of what is shown: one place that knows all their fields."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.views import AttemptView, JobView

NOW = 1_796_000_000.0

ATTEMPT = AttemptView(
    number=1,
    label="gpujob-ab12cd34-support-tone-1-x9k2m4",
    state=State.RUNNING,
    reason=None,
    evidence="",
    provider="runpod",
    gpu="RTX 4090",
    gpu_count=1,
    region="EU-RO-1",
    price_usd_per_hour=Decimal("0.74"),
    price_is_notional=False,
    instance_id="9k2x7",
    host="10.0.0.7",
    port=22022,
    intent_at=NOW - 1000,
    launched_at=NOW - 998,
    ssh_ready_at=NOW - 837,
    trainer_started_at=NOW - 830,
    trainer_exited_at=None,
    terminate_first_asked_at=None,
    terminate_calls=0,
    terminate_error="",
    gone_at=None,
    absence_reads=0,
    deadline_at=NOW + 80_000,
    suspect_until=None,
    prepare_step="",
    kept_step=None,
    step=512,
    max_steps=902,
    loss=1.284,
    eval_loss=1.311,
    tokens_per_s=2531.0,
    teardown=Teardown.LIVING,
    cost_usd=Decimal("0.205555"),
)

JOB = JobView(
    id="3f2a91",
    name="support-tone",
    created_at=NOW - 1001,
    spec={"name": "support-tone", "model": "acme/base", "method": "qlora"},
    budget_usd=Decimal(8),
    expected_usd=None,
    output_folder="/home/ada/out",
    attempts=(ATTEMPT,),
    state=State.RUNNING,
    outcome=Outcome.RUNNING,
    reason=None,
    evidence="",
    teardown=Teardown.LIVING,
    cancel_asked_at=None,
    closed_at=None,
    exit_code=None,
    cost_usd=Decimal("0.205555"),
    supervised_by="somehost:4242",
)


def job(attempt: dict[str, Any] | None = None, **changes: Any) -> JobView:
    """Return a running job; `attempt` changes its one attempt, the rest the job."""
    one = replace(ATTEMPT, **(attempt or {}))
    return replace(JOB, **{"attempts": (one,), **changes})


def succeeded() -> JobView:
    """Return a job that went well, its machine proven gone."""
    return job(
        {
            "state": State.CLOSED,
            "reason": Reason.SUCCEEDED,
            "trainer_exited_at": NOW - 60,
            "terminate_first_asked_at": NOW - 55,
            "terminate_calls": 1,
            "gone_at": NOW - 40,
            "absence_reads": 2,
            "step": 902,
            "teardown": Teardown.GONE,
        },
        state=State.CLOSED,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.SUCCEEDED,
        teardown=Teardown.GONE,
        closed_at=NOW - 40,
        exit_code=0,
        supervised_by=None,
    )


def failed() -> JobView:
    """Return a job whose training ran out of memory."""
    return job(
        {
            "state": State.CLOSED,
            "reason": Reason.OUT_OF_MEMORY,
            "trainer_exited_at": NOW - 60,
            "gone_at": NOW - 40,
            "absence_reads": 2,
            "teardown": Teardown.GONE,
        },
        state=State.CLOSED,
        outcome=Outcome.FAILED,
        reason=Reason.OUT_OF_MEMORY,
        evidence="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB.",
        teardown=Teardown.GONE,
        closed_at=NOW - 40,
        exit_code=4,
        supervised_by=None,
    )


def billing() -> JobView:
    """Return a job whose machine is past its end and not proven gone."""
    return job(
        {
            "state": State.STOPPING,
            "reason": Reason.SUCCEEDED,
            "terminate_first_asked_at": NOW - 924,
            "terminate_calls": 7,
            "terminate_error": "runpod answered 500 to terminate 9k2x7",
            "teardown": Teardown.STILL_BILLING,
        },
        state=State.STOPPING,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.SUCCEEDED,
        teardown=Teardown.STILL_BILLING,
        exit_code=5,
        supervised_by=None,
        cost_usd=Decimal("2.60"),
    )
