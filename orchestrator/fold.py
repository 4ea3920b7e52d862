"""The fold: an attempt and one more event make the attempt after it. Pure, and the only way.

The first reason wins: a later one never replaces it, and STOPPING never changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from orchestrator import events as ev
from orchestrator.attempt import Attempt, Machine, Push
from orchestrator.states import TRANSITIONS, Reason, State
from providers.base import InstanceId


class ImpossibleEventError(Exception):
    """An event that the attempt's state does not allow: our own mistake, never the world's."""


def fold(history: Iterable[ev.AttemptEvent]) -> Attempt:
    """Return the attempt that these events tell; the first must be Opened."""
    attempt: Attempt | None = None
    for event in history:
        attempt = apply(attempt, event)
    if attempt is None:
        raise ImpossibleEventError("no event, no attempt")
    return attempt


def apply(attempt: Attempt | None, event: ev.AttemptEvent) -> Attempt:
    """Return the attempt after one more event; raises ImpossibleEventError."""
    if isinstance(event, ev.Opened):
        if attempt is not None:
            raise ImpossibleEventError(f"{attempt.label} was opened twice")
        return Attempt(
            event.job_id,
            event.number,
            event.label,
            event.provider,
            event.offer,
            event.disk_gib,
            event.billing_step_s,
            event.list_lag_s,
            event.at,
            event.deadline_at,
            event.bills,
        )
    if attempt is None:
        raise ImpossibleEventError(f"{type(event).__name__} before Opened")
    changes = _CHANGES[type(event)](attempt, event)
    if event.moves is not None:
        arrow = (attempt.state, event.moves)
        if arrow not in TRANSITIONS:
            raise ImpossibleEventError(f"{attempt.label}: {event.moves} in state {attempt.state}")
        changes["state"] = TRANSITIONS[arrow]
        if changes["state"] is State.STOPPING:
            changes["stopping_at"] = event.at
        elif changes["state"] is State.CLOSED:
            changes["closed_at"] = event.at
    return replace(attempt, **changes)


Changes = dict[str, Any]


def _first_reason(attempt: Attempt, reason: Reason, evidence: str) -> Changes:
    if attempt.reason is not None:
        return {}
    return {"reason": reason, "evidence": evidence}


def _on_machine(attempt: Attempt, instance_id: InstanceId, **changes: Any) -> Changes:
    """Return the change of one machine, which becomes known by it if it was not."""
    return {
        "machines": tuple(
            replace(m, **changes) if m.id == instance_id else m for m in attempt.machines
        )
    }


def _launch_asked(attempt: Attempt, event: ev.LaunchAsked) -> Changes:
    first = attempt.launch_first_at
    return {
        "launch_first_at": event.at if first is None else first,
        "launch_asked_at": event.at,
        "launch_open": True,
    }


def _launch_delayed(_: Attempt, event: ev.LaunchDelayed) -> Changes:
    return {
        "launch_asked_at": None,
        "launch_open": False,
        "launch_after": event.retry_at,
        "launch_error": event.error,
    }


def _launch_unclear(_: Attempt, event: ev.LaunchUnclear) -> Changes:
    return {"launch_error": event.error}


def _settle_read(attempt: Attempt, event: ev.SettleRead) -> Changes:
    return {"settle_reads": attempt.settle_reads + 1, "settle_last_at": event.at}


def _machine_seen(attempt: Attempt, event: ev.MachineSeen) -> Changes:
    price = event.usd_per_hour
    rates = () if price is None else ((event.at, price),)
    seen = Machine(event.instance_id, event.at, event.created_at, rates)
    others = tuple(m for m in attempt.machines if m.id != event.instance_id)
    return {"machines": (*others, seen), "launch_open": False}


def _launched(attempt: Attempt, event: ev.Launched) -> Changes:
    if attempt.machine(event.instance_id) is None:
        raise ImpossibleEventError(f"{attempt.label}: {event.instance_id} was never seen")
    return {"main_id": event.instance_id, "launched_at": event.at, "launch_open": False}


def _refused(attempt: Attempt, event: ev.Refused) -> Changes:
    return {
        **_first_reason(attempt, event.reason, event.evidence),
        "launch_asked_at": None,
        "launch_open": False,
        "proof": "refused",
    }


def _price_seen(attempt: Attempt, event: ev.PriceSeen) -> Changes:
    machine = attempt.machine(event.instance_id)
    rates = () if machine is None else machine.rates
    if not rates:
        rates = ((attempt.opened_at, attempt.offer.price_usd_per_hour),)
    return _on_machine(attempt, event.instance_id, rates=(*rates, (event.at, event.usd_per_hour)))


def _trainer_exited(attempt: Attempt, event: ev.TrainerExited) -> Changes:
    changes: Changes = {"trainer_exited_at": event.at}
    if event.reason is not Reason.SUCCEEDED:
        changes |= _first_reason(attempt, event.reason, event.evidence)
    return changes


def _artifacts_pushed(attempt: Attempt, event: ev.ArtifactsPushed) -> Changes:
    return {
        **_first_reason(attempt, Reason.SUCCEEDED, ""),
        "pushed_at": event.at,
        "files": event.files,
        "folder": event.folder,
    }


def _push_verified(attempt: Attempt, event: ev.PushVerified) -> Changes:
    return _push(attempt, Push(event.target, where=event.where, at=event.at))


def _push_failed(attempt: Attempt, event: ev.PushFailed) -> Changes:
    if attempt.push(event.target).where:  # verified is verified
        return {}
    push = Push(event.target, "", event.error, event.remedy, event.final, event.at)
    return _push(attempt, push)


def _push(attempt: Attempt, push: Push) -> Changes:
    others = tuple(other for other in attempt.pushes if other.target != push.target)
    return {"pushes": (*others, push)}


def _terminate_asked(attempt: Attempt, event: ev.TerminateAsked) -> Changes:
    machine = attempt.machine(event.instance_id)
    if machine is None:
        raise ImpossibleEventError(f"{attempt.label}: terminate of unknown {event.instance_id}")
    first = machine.terminate_first_at
    return _on_machine(
        attempt,
        event.instance_id,
        terminate_first_at=event.at if first is None else first,
        terminate_last_at=event.at,
        terminate_calls=machine.terminate_calls + 1,
    )


def _terminate_accepted(attempt: Attempt, event: ev.TerminateAccepted) -> Changes:
    return _on_machine(
        attempt,
        event.instance_id,
        terminate_failures=0,
        terminate_error="",
        terminate_after=0.0,
        definite_refusal=False,
    )


def _terminate_failed(attempt: Attempt, event: ev.TerminateFailed) -> Changes:
    machine = attempt.machine(event.instance_id)
    failures = 0 if machine is None else machine.terminate_failures
    return _on_machine(
        attempt,
        event.instance_id,
        terminate_failures=failures + 1,
        terminate_error=event.error,
        terminate_after=event.retry_at,
        definite_refusal=event.definite,
    )


def _absence_read(attempt: Attempt, event: ev.AbsenceRead) -> Changes:
    machine = attempt.machine(event.instance_id)
    reads = 0 if machine is None else machine.absence_reads
    return _on_machine(attempt, event.instance_id, absent_at=event.at, absence_reads=reads + 1)


def _machine_gone(attempt: Attempt, event: ev.MachineGone) -> Changes:
    machine = attempt.machine(event.instance_id)
    reads = 0 if machine is None else machine.absence_reads
    return _on_machine(attempt, event.instance_id, gone_at=event.at, absence_reads=reads + 1)


def _bill_read(attempt: Attempt, event: ev.BillRead) -> Changes:
    machine = attempt.machine(event.instance_id)
    if machine is None or machine.bill_whole:
        return {}
    return _on_machine(
        attempt,
        event.instance_id,
        billed_usd=machine.billed_usd if event.usd is None else event.usd,
        bill_whole=event.whole,
        bill_tries=machine.bill_tries + 1,
        bill_tried_at=event.at,
        bill_error=event.error,
    )


def _instance_gone(_: Attempt, event: ev.InstanceGone) -> Changes:
    return {"launch_open": False, "proof": event.proof, "suspect_until": event.suspect_until}


def _resurfaced(attempt: Attempt, event: ev.Resurfaced) -> Changes:
    known = attempt.machine(event.instance_id)
    changes: Changes = {"closed_at": None, "proof": "", "suspect_until": None}
    if known is not None:
        changes |= _on_machine(
            attempt, event.instance_id, gone_at=None, absent_at=None, absence_reads=0,
            bill_whole=False, bill_tries=0,
        )  # fmt: skip
    else:
        changes["machines"] = (*attempt.machines, Machine(event.instance_id, event.at))
    return changes


_CHANGES: dict[type[Any], Callable[[Attempt, Any], Changes]] = {
    ev.LaunchAsked: _launch_asked,
    ev.LaunchDelayed: _launch_delayed,
    ev.LaunchUnclear: _launch_unclear,
    ev.SettleRead: _settle_read,
    ev.MachineSeen: _machine_seen,
    ev.Launched: _launched,
    ev.Refused: _refused,
    ev.PriceSeen: _price_seen,
    ev.EndpointSeen: lambda _, e: {"endpoint": e.endpoint},
    ev.SshReady: lambda _, e: {"ssh_ready_at": e.at},
    ev.StepDone: lambda _, e: {"prepare_step": e.step},
    ev.StartAsked: lambda _, e: {"start_asked_at": e.at},
    ev.TrainerStarted: lambda _, e: {"trainer_started_at": e.at},
    ev.CheckpointKept: lambda _, e: {"kept_step": e.step},
    ev.TrainerExited: _trainer_exited,
    ev.ArtifactsPushed: _artifacts_pushed,
    ev.Aborted: lambda a, e: _first_reason(a, e.reason, e.evidence),
    ev.TerminateAsked: _terminate_asked,
    ev.TerminateAccepted: _terminate_accepted,
    ev.TerminateFailed: _terminate_failed,
    ev.AbsenceRead: _absence_read,
    ev.AbsenceDenied: lambda a, e: _on_machine(a, e.instance_id, absent_at=None, absence_reads=0),
    ev.MachineGone: _machine_gone,
    ev.InstanceGone: _instance_gone,
    ev.EndDeclared: lambda _, e: {"ended_at": e.ended_at, "ended_by": e.by},
    ev.BillRead: _bill_read,
    ev.Resurfaced: _resurfaced,
    ev.StillBilling: lambda _, e: {"alarm_at": e.at, "alarm_text": e.text},
    ev.PushVerified: _push_verified,
    ev.PushFailed: _push_failed,
    ev.Noted: lambda _, e: {"note": e.text},
}
