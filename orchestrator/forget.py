"""Forgetting: a person takes a machine that is not proven gone upon themselves.

Nothing is ever called gone by this. The attempt closes as its owner's to close: shown so, counted
as costing until the owner says that it ended, and no call of ours is made for it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from orchestrator import events as ev
from orchestrator.attempt import Attempt
from orchestrator.jobflow import Close, storage_rate
from orchestrator.runner import Runner
from orchestrator.states import Reason, State


@dataclass(frozen=True, slots=True)
class Unproven:
    """A machine that may go on billing. instance_id None: only the name is known."""

    provider: str
    label: str
    instance_id: str | None
    usd_per_hour: Decimal
    since: float


def unproven(attempts: list[Attempt]) -> list[Unproven]:
    """Return what of these attempts is not proven gone."""
    found: list[Unproven] = []
    for attempt in attempts:
        if attempt.state is State.CLOSED:
            continue
        storage = storage_rate(attempt.offer, attempt.disk_gib)
        agreed = attempt.offer.price_usd_per_hour
        for machine in attempt.living:
            rate = (machine.rates[-1][1] if machine.rates else agreed) + storage
            since = attempt.launch_asked_at or machine.first_seen_at
            found.append(Unproven(attempt.provider, attempt.label, machine.id, rate, since))
        if attempt.launch_open and not attempt.machines:
            since = attempt.launch_asked_at or attempt.opened_at
            found.append(Unproven(attempt.provider, attempt.label, None, agreed + storage, since))
    return found


def forget(runner: Runner, job_id: str) -> bool:
    """Close the job as its owner's to close; False where somebody else was quicker.

    Whoever drives it now loses the lease: its next write and its next call are refused.
    """
    holders = {job.id: job.last_holder for job in runner.store.journal.active()}
    driver = runner.take(job_id, dead=holders.get(job_id, ""))
    if driver is None:
        return False
    try:
        now = runner.clock.now()
        for case in driver.cases:
            if case.attempt.state is State.CLOSED:
                continue
            if case.attempt.state is not State.STOPPING:
                driver.commit(case, ev.Aborted(now, Reason.CANCELLED, "forgotten by its owner"))
            driver.commit(case, ev.InstanceGone(now, "yours"))
        last = driver.cases[-1].attempt if driver.cases else None
        reason = last.reason if last is not None and last.reason is not None else None
        driver.close(Close(reason or Reason.CANCELLED, "forgotten by its owner"), now)
    finally:
        driver.release()
    return True
