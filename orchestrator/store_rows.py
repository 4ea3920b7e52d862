"""What is read from the tables: records of the store, and how rows become them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator import codec
from orchestrator.attempt import Attempt
from orchestrator.events import EVENTS, AnyEvent
from orchestrator.plan import JobRecord, NewJob
from orchestrator.states import Reason


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive a job: every write of its holder is checked by `fence`."""

    job_id: str
    holder: str
    fence: int


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that somebody must drive. holder: of a lease in force; last_holder: of any, or ""."""

    id: str
    holder: str | None
    last_holder: str
    cancel_asked: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event as stored. attempt 0: of the job itself."""

    seq: int
    job_id: str
    attempt: int
    at: float
    event: AnyEvent


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest figures of a training; None where not known, also for NaN and infinities."""

    at: float
    step: int | None = None
    max_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    eval_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    gpu_util_percent: float | None = None
    gpu_used_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Stray:
    """A machine that the sweep found and no attempt of the store explains. kind: sweep.Kind."""

    provider: str
    instance_id: str
    label: str
    kind: str
    first_seen_at: float
    price_usd_per_hour: str | None = None
    deadline_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job with all that the store knows of it."""

    record: JobRecord
    attempts: tuple[Attempt, ...]
    progress: Mapping[int, Progress]
    reason: Reason | None
    evidence: str
    cancel_asked_at: float | None
    removed: bool
    lease_holder: str | None  # None: nobody holds it now
    active: bool


def attempt_of(snapshot: str) -> Attempt:
    """Return the attempt of a snapshot column."""
    attempt: Attempt = codec.load(Attempt, snapshot)
    return attempt


def event_of(kind: str, data: str) -> AnyEvent:
    """Return the event of a row."""
    event: AnyEvent = codec.load(EVENTS[kind], data)
    return event


def record_of(row: Any) -> JobRecord:
    """Return the job of a row of `jobs`."""
    new: NewJob = codec.load(NewJob, row.plan)
    return JobRecord(
        new,
        row.created_at,
        None if row.cancel_reason is None else Reason(row.cancel_reason),
        row.closed_at,
    )


def progress_of(data: str) -> Progress:
    """Return the figures of a row of `progress`."""
    found: Progress = codec.load(Progress, data)
    return found
