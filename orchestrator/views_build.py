"""Rows of the store to the views that people see. Pure: the moment is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from orchestrator import ledger
from orchestrator.attempt import Attempt, Machine, Push
from orchestrator.billed import total
from orchestrator.holder import for_people
from orchestrator.oom import may_adapt
from orchestrator.policy import DEFAULT_LIMITS, Limits
from orchestrator.push_state import MENDABLE, failures, is_home, missing_targets, state_of
from orchestrator.states import (
    ENDINGS,
    EXIT_PRECEDENCE,
    EXIT_STILL_BILLING,
    Outcome,
    Reason,
    State,
    Teardown,
)
from orchestrator.store_rows import JobRow, Progress
from orchestrator.views import AttemptView, JobView, PushView
from providers.base import HANDED_ON

# The worst is shown: what needs a person first.
_WORST_FIRST = (
    Teardown.STILL_BILLING,
    Teardown.YOURS_TO_CLOSE,
    Teardown.STOPPING,
    Teardown.LIVING,
    Teardown.SUSPECT,
    Teardown.CLOSED_BY_OWNER,
    Teardown.HANDED_ON,
    Teardown.GONE,
    Teardown.NONE,
)


def job_view(row: JobRow, now: float, limits: Limits = DEFAULT_LIMITS) -> JobView:
    """Return the job as it stands at `now`."""
    new = row.record.new
    attempts = tuple(attempt_view(a, row.progress.get(a.number), now, limits) for a in row.attempts)
    last = row.attempts[-1] if row.attempts else None
    reason, evidence = _why(row, last)
    teardown = worst([a.teardown for a in attempts])
    return JobView(
        id=new.id,
        name=new.name,
        created_at=row.record.created_at,
        spec=new.spec,
        budget_usd=new.caps.budget_usd,
        expected_usd=new.expected_usd,
        output_folder=(last.folder if last is not None else "") or new.output_folder,
        attempts=attempts,
        state=_state(row, last),
        outcome=Outcome.RUNNING if reason is None else ENDINGS[reason].outcome,
        reason=reason,
        evidence=evidence,
        teardown=teardown,
        cancel_asked_at=row.cancel_asked_at,
        closed_at=row.record.closed_at,
        exit_code=_exit_code(row, reason, teardown),
        cost_usd=sum((a.cost_usd for a in attempts), Decimal(0)),
        supervised_by=for_people(row.lease_holder),
        pushes=_pushes(row, last),
        billed=total(a.billed for a in attempts),
    )


def _pushes(row: JobRow, last: Attempt | None) -> tuple[PushView, ...]:
    found = []
    for target in row.record.new.pushes:
        push = last.push(target) if last is not None else Push(target)
        state = state_of(push, home=is_home(last) and row.record.closed_at is None)
        found.append(PushView(target, str(state), push.where, push.error, push.remedy))
    return tuple(found)


def attempt_view(
    attempt: Attempt, progress: Progress | None, now: float, limits: Limits = DEFAULT_LIMITS
) -> AttemptView:
    """Return one attempt as it stands at `now`."""
    machine = _of_interest(attempt)
    price = machine.rates[-1][1] if machine and machine.rates else attempt.offer.price_usd_per_hour
    figures = progress or Progress(0.0)
    lines = ledger.lines([attempt], now)
    return AttemptView(
        number=attempt.number,
        label=attempt.label,
        state=attempt.state,
        reason=attempt.reason,
        evidence=attempt.evidence,
        provider=attempt.provider,
        gpu=attempt.offer.gpu,
        gpu_count=attempt.offer.gpu_count,
        region=attempt.offer.region,
        price_usd_per_hour=price,
        price_is_notional=attempt.offer.price_is_notional,
        instance_id=machine.id if machine else None,
        host=attempt.endpoint.host if attempt.endpoint else None,
        port=attempt.endpoint.port if attempt.endpoint else None,
        intent_at=attempt.opened_at,
        launched_at=attempt.launched_at,
        ssh_ready_at=attempt.ssh_ready_at,
        trainer_started_at=attempt.trainer_started_at,
        trainer_exited_at=attempt.trainer_exited_at,
        terminate_first_asked_at=machine.terminate_first_at if machine else None,
        terminate_calls=sum(m.terminate_calls for m in attempt.machines),
        terminate_error=machine.terminate_error if machine else "",
        gone_at=_gone_at(attempt, machine),
        absence_reads=machine.absence_reads if machine else 0,
        deadline_at=attempt.deadline_at,
        suspect_until=attempt.suspect_until,
        prepare_step=attempt.prepare_step,
        kept_step=attempt.kept_step,
        step=figures.step,
        max_steps=figures.max_steps,
        loss=figures.loss,
        eval_loss=figures.eval_loss,
        tokens_per_s=figures.tokens_per_s,
        teardown=teardown_of(attempt, now, limits),
        note=attempt.note if attempt.state is not State.CLOSED else "",
        cost_usd=sum((line.usd for line in lines), Decimal(0)),
        billed=total(line.billed for line in lines),
    )


def teardown_of(attempt: Attempt, now: float, limits: Limits = DEFAULT_LIMITS) -> Teardown:
    """Return what is known of an attempt's machines. Nothing is called gone without its proof."""
    if attempt.state is State.CLOSED:
        if attempt.suspect_until is not None:
            return Teardown.SUSPECT if now < attempt.suspect_until else Teardown.NONE
        if attempt.proof == "yours":
            if attempt.ended_at is None:
                return Teardown.YOURS_TO_CLOSE
            if attempt.ended_by == HANDED_ON:
                return Teardown.HANDED_ON
            # A command that looks is a read, if the owner's own; a person's word is a word.
            looked = attempt.ended_by == "check_command"
            return Teardown.GONE if looked else Teardown.CLOSED_BY_OWNER
        return Teardown.GONE if attempt.machines else Teardown.NONE
    if not attempt.machines:
        if not attempt.launch_open:
            return Teardown.NONE
        return Teardown.SUSPECT if attempt.launch_error else Teardown.LIVING
    if any(_overdue(attempt, machine, now, limits) for machine in attempt.living):
        return Teardown.STILL_BILLING
    return Teardown.STOPPING if attempt.state is State.STOPPING else Teardown.LIVING


def worst(teardowns: Sequence[Teardown]) -> Teardown:
    """Return the one that needs a person most; NONE where there is none."""
    return next((t for t in _WORST_FIRST if t in teardowns), Teardown.NONE)


def _overdue(attempt: Attempt, machine: Machine, now: float, limits: Limits) -> bool:
    """Return whether a machine is past its end and not proven gone, also if nobody acts on it."""
    patience_s = limits.alarm_s(attempt.list_lag_s)
    if now >= attempt.deadline_at + patience_s:
        return True
    if attempt.state is not State.STOPPING:
        return False
    if machine.terminate_failures >= limits.alarm_failures or machine.definite_refusal:
        return True
    since = machine.terminate_first_at or attempt.stopping_at or attempt.opened_at
    return now >= since + patience_s


def _gone_at(attempt: Attempt, machine: Machine | None) -> float | None:
    """Return when the machine's meter stopped; a handful of our own calls stops none by hand."""
    if attempt.proof == "yours":
        return attempt.ended_at
    return machine.gone_at if machine else None


def _of_interest(attempt: Attempt) -> Machine | None:
    """Return the machine to show: one that lives, else the main one, else the last."""
    if attempt.main is not None and attempt.main.gone_at is None:
        return attempt.main
    if attempt.living:
        return attempt.living[0]
    return attempt.main or (attempt.machines[-1] if attempt.machines else None)


def _state(row: JobRow, last: Attempt | None) -> State:
    if last is None:
        return State.CLOSED if row.record.closed_at is not None else State.INTENDED
    if last.state is State.CLOSED and row.active:
        reopened = next((a for a in row.attempts if a.state is not State.CLOSED), None)
        if reopened is not None:
            return reopened.state
        pushing = is_home(last) and bool(row.record.new.pushes)
        return State.CLOSED if pushing or row.record.closed_at is not None else State.INTENDED
    return last.state


def _why(row: JobRow, last: Attempt | None) -> tuple[Reason | None, str]:
    """Return the job's reason: its own when closed, else an attempt's that no other can mend."""
    targets = row.record.new.pushes
    if targets and last is not None and is_home(last):
        missing = missing_targets(targets, last)
        if not missing and row.reason in {None, *MENDABLE}:
            return Reason.SUCCEEDED, ""
        if missing and row.reason is None:
            return None, ""  # trained and at home, but not yet wherever it is meant to be
        if missing and row.reason is Reason.ARTIFACTS_FAILED:  # as the newest try left it
            return row.reason, failures(targets, last) or row.evidence
    if row.reason is not None:
        return row.reason, row.evidence
    if may_adapt(row.record.new.spec, row.attempts):
        return None, ""
    if last is not None and last.reason is not None and not ENDINGS[last.reason].next_offer:
        return last.reason, last.evidence
    return None, ""


def _exit_code(row: JobRow, reason: Reason | None, teardown: Teardown) -> int | None:
    codes = []
    if teardown is Teardown.STILL_BILLING:
        codes.append(EXIT_STILL_BILLING)
    if row.record.closed_at is not None and reason is not None:
        codes.append(ENDINGS[reason].exit_code)
    return min(codes, key=EXIT_PRECEDENCE.index) if codes else None
