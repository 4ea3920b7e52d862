"""The documents behind every `--json`: views in, plain dicts out. docs/json.md lists every key.

A document has `schema`, which grows only when a key is removed or changes its meaning; new keys
may come at any time. Moments are UNIX seconds, lengths of time are seconds, money is a string with
six decimals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.billed import Billed
from orchestrator.exits import Exit
from orchestrator.report_text import exact_money
from orchestrator.states import ENDINGS, Teardown
from orchestrator.views import AttemptView, JobView, PushView

if TYPE_CHECKING:
    from orchestrator.finish import Finish

SCHEMA = 1


def document(kind: str, now: float, **body: Any) -> dict[str, Any]:
    """Return the frame of every answer: its schema, what it is, and the moment it speaks of."""
    return {"schema": SCHEMA, "kind": kind, "at_unix_s": now, **body}


def ps_document(jobs: Sequence[JobView], now: float, strays: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the answer of `gpujob ps --json`. strays: machines that no job explains."""
    return document(
        "ps",
        now,
        still_billing=still_billing(jobs, now),
        strays=[stray_body(stray) for stray in strays],
        jobs=[job_summary(job, now) for job in jobs],
    )


def status_document(job: JobView, now: float, finish: Finish | None = None) -> dict[str, Any]:
    """Return the answer of `gpujob status JOB --json`. finish: of a job that trains now."""
    return document(
        "status",
        now,
        still_billing=still_billing([job], now),
        job={
            **job_summary(job, now),
            "remaining": remaining_body(finish),
            "spec": job.spec,
            "attempts": [attempt_body(attempt) for attempt in job.attempts],
        },
    )


def remaining_body(finish: Finish | None) -> dict[str, Any]:
    """Return what is left of a training and its cost at the end; nulls where it isn't known."""
    left = None if finish is None else finish.left
    return {
        "training_s": None if left is None else left.seconds,
        "low_s": None if left is None else left.low_s,
        "high_s": None if left is None else left.high_s,
        "cost_at_end_usd": None if finish is None else exact_money(finish.usd),
        "low_usd": None if finish is None else exact_money(finish.low_usd),
        "high_usd": None if finish is None else exact_money(finish.high_usd),
        "steps_seen": 0 if finish is None else finish.steps,
    }


def submit_document(job: JobView, now: float, *, detached: bool) -> dict[str, Any]:
    """Return the answer of `gpujob submit --json`: the job as it was when gpujob let go of it."""
    return {**status_document(job, now), "kind": "submit", "detached": detached}


def push_document(job: JobView, now: float) -> dict[str, Any]:
    """Return the answer of `gpujob push JOB --json`: the job as the push left it."""
    return {**status_document(job, now), "kind": "push"}


def stray_body(stray: Any) -> dict[str, Any]:
    """Return one machine that the newest sweep found and no job explains."""
    price = stray.price_usd_per_hour
    return {
        "provider": stray.provider,
        "instance_id": stray.instance_id,
        "label": stray.label,
        "kind": stray.kind,
        "first_seen_at_unix_s": stray.first_seen_at,
        "price_usd_per_hour": None if price is None else exact_money(Decimal(price)),
        "deadline_at_unix_s": stray.deadline_at,
    }


def still_billing(jobs: Iterable[JobView], now: float) -> list[dict[str, Any]]:
    """Return every machine that is past its end and not proven gone."""
    return [
        {
            "job_id": job.id,
            "attempt": attempt.number,
            "provider": attempt.provider,
            "instance_id": attempt.instance_id,
            "label": attempt.label,
            "price_usd_per_hour": exact_money(attempt.price_usd_per_hour),
            "terminate_first_asked_at_unix_s": attempt.terminate_first_asked_at,
            "terminate_calls": attempt.terminate_calls,
            "terminate_error": attempt.terminate_error,
            "supervised_by": job.supervised_by,
            "since_s": max(0.0, now - (attempt.terminate_first_asked_at or attempt.deadline_at)),
        }
        for job in jobs
        for attempt in job.attempts
        if attempt.teardown is Teardown.STILL_BILLING
    ]


def job_summary(job: JobView, now: float) -> dict[str, Any]:
    """Return one job as `ps` lists it. Keys of the newest attempt are null before the first one."""
    attempt = job.attempts[-1] if job.attempts else None
    ending = None if job.reason is None else ENDINGS[job.reason]
    return {
        "id": job.id,
        "name": job.name,
        "state": str(job.state),
        "outcome": str(job.outcome),
        "reason": None if job.reason is None else str(job.reason),
        "cause": None if ending is None else ending.cause,
        "next_step": None if ending is None else ending.next_step,
        "evidence": job.evidence,
        "teardown": str(job.teardown),
        "exit_code": job.exit_code,
        "created_at_unix_s": job.created_at,
        "closed_at_unix_s": job.closed_at,
        "age_s": max(0.0, now - job.created_at),
        "cancel_asked_at_unix_s": job.cancel_asked_at,
        "supervised_by": job.supervised_by,
        "budget_usd": _money(job.budget_usd),
        "expected_usd": _money(job.expected_usd),
        "cost_usd": exact_money(job.cost_usd),
        **billed_body(job.billed),
        "output_folder": job.output_folder,
        "pushes": [push_body(push) for push in job.pushes],
        "attempt": None if attempt is None else attempt.number,
        "provider": None if attempt is None else attempt.provider,
        "region": None if attempt is None else attempt.region,
        "gpu": None if attempt is None else attempt.gpu,
        "gpu_count": None if attempt is None else attempt.gpu_count,
        "price_usd_per_hour": None if attempt is None else exact_money(attempt.price_usd_per_hour),
        "price_is_notional": None if attempt is None else attempt.price_is_notional,
        "step": None if attempt is None else attempt.step,
        "max_steps": None if attempt is None else attempt.max_steps,
        "checkpoint_step": max((a.kept_step or 0 for a in job.attempts), default=0) or None,
        "loss": None if attempt is None else finite(attempt.loss),
        "eval_loss": None if attempt is None else finite(attempt.eval_loss),
        "tokens_per_s": None if attempt is None else finite(attempt.tokens_per_s),
        "deadline_at_unix_s": None if attempt is None else attempt.deadline_at,
    }


def push_body(push: PushView) -> dict[str, Any]:
    """Return one place that the result is pushed to."""
    return {
        "target": push.target,
        "state": push.state,
        "where": push.where,
        "error": push.error,
        "remedy": push.remedy,
    }


def attempt_body(attempt: AttemptView) -> dict[str, Any]:
    """Return one attempt, complete."""
    return {
        "number": attempt.number,
        "label": attempt.label,
        "state": str(attempt.state),
        "reason": None if attempt.reason is None else str(attempt.reason),
        "evidence": attempt.evidence,
        "provider": attempt.provider,
        "region": attempt.region,
        "gpu": attempt.gpu,
        "gpu_count": attempt.gpu_count,
        "price_usd_per_hour": exact_money(attempt.price_usd_per_hour),
        "price_is_notional": attempt.price_is_notional,
        "instance_id": attempt.instance_id,
        "host": attempt.host,
        "port": attempt.port,
        "intent_at_unix_s": attempt.intent_at,
        "launched_at_unix_s": attempt.launched_at,
        "ssh_ready_at_unix_s": attempt.ssh_ready_at,
        "trainer_started_at_unix_s": attempt.trainer_started_at,
        "trainer_exited_at_unix_s": attempt.trainer_exited_at,
        "terminate_first_asked_at_unix_s": attempt.terminate_first_asked_at,
        "terminate_calls": attempt.terminate_calls,
        "terminate_error": attempt.terminate_error,
        "gone_at_unix_s": attempt.gone_at,
        "absence_reads": attempt.absence_reads,
        "deadline_at_unix_s": attempt.deadline_at,
        "suspect_until_unix_s": attempt.suspect_until,
        "prepare_step": attempt.prepare_step,
        "note": attempt.note,
        "checkpoint_step": attempt.kept_step,
        "step": attempt.step,
        "max_steps": attempt.max_steps,
        "loss": finite(attempt.loss),
        "eval_loss": finite(attempt.eval_loss),
        "tokens_per_s": finite(attempt.tokens_per_s),
        "teardown": str(attempt.teardown),
        "cost_usd": exact_money(attempt.cost_usd),
        **billed_body(attempt.billed),
    }


def billed_body(billed: Billed) -> dict[str, Any]:
    """Return what the provider charged, beside what we reckoned for the same machines."""
    return {
        "bill": str(billed.state),
        "billed_usd": _money(billed.known),
        "billed_estimate_usd": None if billed.known is None else exact_money(billed.estimate_usd),
        "bill_differs": billed.differs,
    }


def event_document(entry: Any) -> dict[str, Any]:
    """Return one entry of the journal: its fields beside what it is."""
    from orchestrator import codec
    from orchestrator.event_words import words_of

    fields = {name: value for name, value in codec.encode(entry.event).items() if name != "at"}
    name = type(entry.event).__name__
    return {
        "seq": entry.seq,
        "attempt": entry.attempt,
        "at_unix_s": entry.at,
        "event": name,
        "text": words_of(name, fields),
        "data": fields,
    }


def refusal_document(message: str, code: Exit, now: float, *, remedy: str) -> dict[str, Any]:
    """Return the answer of a `--json` command that could not answer."""
    return document(
        "error", now, error={"message": message, "remedy": remedy, "exit_code": int(code)}
    )


def finite(value: float | None) -> float | str | None:
    """Return the number, or "nan", "inf", "-inf" as strings: bare NaN is no JSON."""
    if value is None or value - value == 0:
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"  # noqa: PLR0124 - NaN test


def dumps(body: Mapping[str, Any]) -> str:
    """Return the document as text: indented, keys in their order, ASCII only, no bare NaN."""
    import json

    return json.dumps(body, indent=2, allow_nan=False, default=str)


def _money(usd: Any) -> str | None:
    return None if usd is None else exact_money(usd)
