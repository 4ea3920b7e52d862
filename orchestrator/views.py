"""What the store answers to a reader: frozen views of jobs and attempts. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from orchestrator.billed import Billed
from orchestrator.states import Outcome, Reason, State, Teardown


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt. Times are UNIX seconds or None; money is USD."""

    number: int
    label: str
    state: State
    reason: Reason | None
    evidence: str
    provider: str
    gpu: str
    gpu_count: int
    region: str
    price_usd_per_hour: Decimal
    price_is_notional: bool
    instance_id: str | None
    host: str | None
    port: int | None
    intent_at: float
    launched_at: float | None
    ssh_ready_at: float | None
    trainer_started_at: float | None
    trainer_exited_at: float | None
    terminate_first_asked_at: float | None
    terminate_calls: int
    terminate_error: str
    gone_at: float | None
    absence_reads: int
    deadline_at: float
    suspect_until: float | None
    prepare_step: str
    kept_step: int | None  # of the newest checkpoint that it brought home
    step: int | None
    max_steps: int | None
    loss: float | None
    eval_loss: float | None
    tokens_per_s: float | None
    teardown: Teardown
    cost_usd: Decimal  # from intent to proof of absence, or to the moment of the view
    billed: Billed = Billed()  # noqa: RUF009 - frozen
    note: str = ""  # the newest word of what holds it up


@dataclass(frozen=True, slots=True)
class PushView:
    """One place that the result is pushed to. where: its address there, once it is verified."""

    target: str
    state: str  # push_state.PushState
    where: str
    error: str
    remedy: str


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with its attempts, oldest first. `state` and `teardown` are the newest attempt's."""

    id: str
    name: str
    created_at: float
    spec: dict[str, Any]  # the validated job file, paths absolute, no secrets
    budget_usd: Decimal | None
    expected_usd: Decimal | None
    output_folder: str
    attempts: tuple[AttemptView, ...]
    state: State
    outcome: Outcome
    reason: Reason | None
    evidence: str
    teardown: Teardown
    cancel_asked_at: float | None
    closed_at: float | None
    exit_code: int | None  # None while it runs
    cost_usd: Decimal
    supervised_by: str | None  # who holds the lease now, for people
    pushes: tuple[PushView, ...] = ()
    billed: Billed = Billed()  # noqa: RUF009 - frozen
