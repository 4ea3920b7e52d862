"""What a person must hear of, worked out from what the store knows of a job. Pure.

Each matter has a key, and is delivered once: STILL BILLING once an hour while it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from orchestrator.report_text import money
from orchestrator.states import ENDINGS, Reason, Teardown
from orchestrator.views import AttemptView, JobView

STILL_BILLING, BUDGET, STALLED, FINISHED, YOURS = (
    "still_billing", "budget", "stalled", "finished", "yours_to_close",
)  # fmt: skip
KINDS = (STILL_BILLING, BUDGET, STALLED, FINISHED, YOURS)
BUDGET_SHARE = Decimal("0.8")
AGAIN_S = 3600.0  # STILL BILLING is said again each hour
YOURS_AGAIN_S = 86_400.0
OLD_S = 3600.0  # what ended longer ago than this is no news: nobody listened then
STALLS = frozenset({Reason.IDLE, Reason.STALLED, Reason.NCCL_TIMEOUT, Reason.AGENT_LOST})


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing to say. key: the same for the same matter, also after a restart."""

    key: str
    job_id: str
    kind: str
    at: float
    text: str


def matters(job: JobView, now: float) -> list[Matter]:
    """Return all that there is to say of a job at this moment, the most urgent first."""
    found = [*_billing(job, now), *_budget(job, now), *_stalls(job, now), *_end(job, now)]
    return [
        Matter(f"{job.id}/{key}", job.id, kind, at, f"{job.name} #{job.id}: {text}")
        for key, kind, at, text in found
    ]


_Said = tuple[str, str, float, str]


def _billing(job: JobView, now: float) -> list[_Said]:
    said: list[_Said] = []
    for attempt in job.attempts:
        since = attempt.terminate_first_asked_at or attempt.deadline_at
        if attempt.teardown is Teardown.STILL_BILLING:
            hours = int(max(0.0, now - since) // AGAIN_S)
            text = (
                f"STILL BILLING: {attempt.instance_id or attempt.label} at {attempt.provider}, "
                f"{money(attempt.price_usd_per_hour)}/h, {money(job.cost_usd)} so far; "
                f"{attempt.terminate_calls} terminate calls: "
                f"{attempt.terminate_error or 'not proven gone'}. gpujob goes on trying."
            )
            said.append((f"{STILL_BILLING}/{attempt.number}/{hours}", STILL_BILLING, now, text))
        elif attempt.teardown is Teardown.YOURS_TO_CLOSE:
            days = int(max(0.0, now - since) // YOURS_AGAIN_S)
            text = (
                f"the machine {attempt.host or attempt.label} is yours to close, and costs "
                f"{money(attempt.price_usd_per_hour)}/h until you do: gpujob closed {job.id}"
            )
            said.append((f"{YOURS}/{attempt.number}/{days}", YOURS, now, text))
    return said


def _budget(job: JobView, now: float) -> list[_Said]:
    budget = job.budget_usd
    if budget is None or job.closed_at is not None or job.cost_usd < budget * BUDGET_SHARE:
        return []
    share = int(job.cost_usd * 100 / budget)
    text = f"{money(job.cost_usd)} of {money(budget)} are spent, {share} %"
    return [(BUDGET, BUDGET, now, text)]


def _stalls(job: JobView, now: float) -> list[_Said]:
    said: list[_Said] = []
    for attempt in job.attempts:
        if attempt.reason not in STALLS:
            continue
        at = _ended_at(attempt)
        if now - at <= OLD_S:
            text = f"{ENDINGS[attempt.reason].cause} {attempt.evidence}".strip()
            said.append((f"{STALLED}/{attempt.number}", STALLED, at, text))
    return said


def _ended_at(attempt: AttemptView) -> float:
    known = (attempt.trainer_exited_at, attempt.terminate_first_asked_at, attempt.gone_at)
    return next((at for at in known if at is not None), attempt.intent_at)


def _end(job: JobView, now: float) -> list[_Said]:
    if job.closed_at is None or now - job.closed_at > OLD_S:
        return []
    why = f" ({job.reason})" if job.reason not in (None, Reason.SUCCEEDED) else ""
    machine = str(job.teardown).replace("_", " ")
    text = f"training {job.outcome}{why}, machine {machine}, {money(job.cost_usd)}"
    return [(FINISHED, FINISHED, job.closed_at, text)]
