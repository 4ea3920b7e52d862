"""The sweep: what providers list against what the store knows. Foreign machines stay untouched.

The same code for `gpujob sweep`, after every command, and in the supervisor each minute. It does
four things: a machine that bears the label of a CLOSED attempt is taken back under control; a job
whose teardown nobody drives gets a push; a machine of ours without any record is ended once past
its deadline, adopted, or ended at once, as the caller says; bills that are due are read (bills.py).
Everything that costs and is not known to be well is reported, and kept in the table of strays until
it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from orchestrator import events as ev
from orchestrator.attempt import Attempt, parse_label
from orchestrator.bills import read_bills
from orchestrator.by_hand import note_handed_on
from orchestrator.decide import machine_seen
from orchestrator.holder import is_dead
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.reads import Listed
from orchestrator.runner import Driver, Runner
from orchestrator.states import Reason, State
from orchestrator.store_rows import Stray
from providers.base import Billing, Instance, InstanceState, Offer, OfferKey
from providers.errors import ProviderError

log = logging.getLogger("gpujob.sweep")

Unknown = Literal["report", "end", "adopt"]
STALE_S = 86_400.0  # without a record and a deadline stamp, a machine is past it by then


class Kind(StrEnum):
    """What a finding is."""

    RESURFACED = "resurfaced"  # bears the label of a CLOSED attempt: being ended
    ORPHAN = "orphan"  # ours, and no record of it
    ENDED = "ended"  # an orphan that is being ended
    ADOPTED = "adopted"  # an orphan that has a record again
    UNSTAMPED = "unstamped"  # our label, no owner stamp: reported, not touched
    FOREIGN = "foreign"  # our label, another's stamp: not touched
    UNDRIVEN = "undriven"  # a teardown that nobody drove: pushed on
    UNREADABLE = "unreadable"  # the provider gave no list: nothing is known


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the sweep saw. job_id: of the record that it belongs to, or was given."""

    kind: Kind
    provider: str
    text: str
    instance_id: str | None = None
    label: str = ""
    job_id: str | None = None


@dataclass(slots=True)
class SweepReport:
    """What was found; `jobs` are those that need a supervisor now."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def jobs(self) -> list[str]:
        """Return the ids of the jobs with something to end."""
        found = {f.job_id for f in self.findings if f.job_id is not None}
        return sorted(found)


def sweep(runner: Runner, *, unknown: Unknown = "report") -> SweepReport:
    """Return what was found, after the first step was taken about each. n reads, one a provider."""
    report = SweepReport()
    readable: list[str] = []
    listed: list[tuple[str, Instance]] = []
    for name, reads in runner.reads.items():
        answer = reads.find(runner.clock.now())
        if isinstance(answer, Listed):
            readable.append(name)
            listed += [(name, machine) for machine in answer.machines]
        elif answer.error:
            report.findings.append(Finding(Kind.UNREADABLE, name, answer.error))
    # The store is read after the lists: every machine's intent was written before it existed.
    known = runner.store.by_label([machine.label for _, machine in listed])
    before = {(s.provider, s.instance_id): s for s in runner.store.strays()}
    strays: list[Stray] = []
    for name, machine in listed:
        if machine.state is InstanceState.GONE:
            continue
        finding = _judge(runner, name, machine, known.get(machine.label), unknown)
        if finding is None:
            continue
        report.findings.append(finding)
        if finding.kind in {Kind.ORPHAN, Kind.UNSTAMPED}:
            strays.append(_stray(runner, name, machine, finding.kind, before))
    if set(strays) != {stray for stray in before.values() if stray.provider in readable}:
        runner.store.save_strays(strays, providers=readable)
    report.findings += _push_undriven(runner, set(report.jobs))
    read_bills(runner)
    note_handed_on(runner)
    return report


def _judge(
    runner: Runner, provider: str, machine: Instance, attempt: Attempt | None, unknown: Unknown
) -> Finding | None:
    if machine.owner is not None and machine.owner != runner.owner:
        if runner.rules.own_label_only:
            return Finding(
                Kind.FOREIGN, provider, "another owner's stamp", machine.id, machine.label
            )
    elif attempt is not None:
        return _known(runner, provider, machine, attempt)
    elif machine.owner is None and runner.rules.own_label_only:
        return Finding(
            Kind.UNSTAMPED, provider, "our label without a stamp", machine.id, machine.label
        )
    return _orphan(runner, provider, machine, unknown)


def _known(runner: Runner, provider: str, machine: Instance, attempt: Attempt) -> Finding | None:
    """Return the finding about a machine of an attempt on record: only CLOSED ones are news."""
    if attempt.state is not State.CLOSED or attempt.proof == "yours":
        return None
    if not runner.rules.keep_suspects:
        return None
    living = _described(runner, provider, machine)
    if living is None:
        return None  # a list that lags, or no answer: the next sweep looks again
    driver = _take(runner, attempt.job_id)
    if driver is None:
        return None
    try:
        driver.resurface(attempt.number, living)
        driver.tick()
    finally:
        driver.release()
    text = "a machine bears the name of an attempt that was over; it is being ended"
    return Finding(Kind.RESURFACED, provider, text, machine.id, machine.label, attempt.job_id)


def _described(runner: Runner, provider: str, machine: Instance) -> Instance | None:
    """Return the machine if the provider itself says that it lives: a list alone may lag."""
    try:
        living = runner.providers[provider].describe(machine.id)
    except ProviderError:
        return None
    return None if living.state is InstanceState.GONE else living


def _orphan(runner: Runner, provider: str, machine: Instance, unknown: Unknown) -> Finding:
    """Return the finding about a machine of ours that no record explains."""
    now = runner.clock.now()
    due = machine.deadline_at or (machine.created_at or now) + STALE_S
    overdue = now >= due
    if unknown == "report" and not overdue:
        text = f"ours, but no job of this database; it ends itself at {due:.0f}"
        return Finding(Kind.ORPHAN, provider, text, machine.id, machine.label)
    end = overdue or unknown == "end"
    job_id = adopt(runner, provider, machine, end=end)
    if job_id is None:
        return Finding(Kind.ORPHAN, provider, "not adopted yet", machine.id, machine.label)
    if end:
        return Finding(Kind.ENDED, provider, "being ended", machine.id, machine.label, job_id)
    return Finding(Kind.ADOPTED, provider, "on record again", machine.id, machine.label, job_id)


def adopt(runner: Runner, provider: str, machine: Instance, *, end: bool) -> str | None:
    """Write the record of a machine that has none, from its listing; return the job's id.

    The job's id and the attempt's number come from the label where they are free. end: the attempt
    goes straight to STOPPING, and the first terminate is asked at once.
    """
    parsed = parse_label(machine.label)
    job_id, number = (parsed[1], parsed[2]) if parsed is not None else (None, 1)
    store, now = runner.store, runner.clock.now()
    name = f"adopted-{job_id}" if job_id else "adopted"
    if job_id is None or store.job_exists(job_id):
        job_id = store.new_job_id()
    began = machine.created_at or now
    deadline_at = machine.deadline_at or began + STALE_S
    offer = _offer_of(provider, machine)
    folder = str(runner.home.job_folder(job_id) / "out")
    new = NewJob(
        job_id, name, {}, (offer,), LaunchSpec(""), Caps(max_s=deadline_at - began), folder, None
    )
    store.create_job(new, now=now, adopted=True)
    driver = runner.take(job_id)
    if driver is None:
        return job_id
    traits = runner.providers[provider].traits
    history: list[ev.AttemptEvent] = [
        ev.Opened(
            began, job_id, number, machine.label, provider, offer, machine.disk_gib,
            traits.billing_step_s, traits.list_lag_s, deadline_at,
            isinstance(runner.providers[provider], Billing),
        ),
        ev.LaunchAsked(began),
        replace(machine_seen(now, machine, "adopted"), at=now),
        ev.Launched(now, machine.id),
    ]  # fmt: skip
    if end:
        history.append(ev.Aborted(now, Reason.ORPHANED, "found by the sweep"))
    try:
        driver.begin(history)
        if end:
            driver.tick()
    finally:
        driver.release()
    return job_id


def _offer_of(provider: str, machine: Instance) -> Offer:
    """Return an offer as the listing tells it: what it does not tell is zero, and shown so."""
    price = machine.price_usd_per_hour or machine.quoted_usd_per_hour or Decimal(0)
    return Offer(
        provider, OfferKey(f"adopted:{machine.id}"), "unknown", 1, 0.0, price,
        storage_usd_per_gib_hour=machine.storage_usd_per_gib_hour,
    )  # fmt: skip


def _push_undriven(runner: Runner, done: set[str]) -> Iterable[Finding]:
    """Give teardowns that nobody drives one push each: terminate is asked, or the proof goes on."""
    now = runner.clock.now()
    for job_id, dead in runner.store.journal.waiting(runner.holder, is_dead):
        if job_id in done:
            continue
        record, attempts = runner.store.load(job_id)
        ending = [
            a
            for a in attempts
            if a.state is State.STOPPING or (a.may_bill and now >= a.deadline_at)
        ]
        if not ending or not runner.knows(record):
            continue
        driver = _take(runner, job_id, dead)
        if driver is None:
            continue
        try:
            driver.tick()
        finally:
            driver.release()
        text = "a teardown that no process drove was pushed on"
        yield Finding(Kind.UNDRIVEN, ending[0].provider, text, None, ending[0].label, job_id)


def _take(runner: Runner, job_id: str, dead: str = "") -> Driver | None:
    return runner.take(job_id, dead=dead)


def _stray(
    runner: Runner,
    provider: str,
    machine: Instance,
    kind: Kind,
    before: Mapping[tuple[str, str], Stray],
) -> Stray:
    now = runner.clock.now()
    seen = before.get((provider, machine.id))
    price = machine.price_usd_per_hour
    return Stray(
        provider,
        machine.id,
        machine.label,
        kind.value,
        seen.first_seen_at if seen is not None else now,
        None if price is None else str(price),
        machine.deadline_at,
    )
