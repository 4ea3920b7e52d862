"""What must be true at the end of every seed. Checkers know the truth and the store, not the rules.

Each returns what it found wrong, in words. The truth is the fake cloud's own log and the machines'
own memory; nothing here asks the code under test how it went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orchestrator import events as ev
from orchestrator.attempt import Attempt
from orchestrator.fold import ImpossibleEventError, fold
from orchestrator.states import ENDINGS, Outcome, Reason, State
from providers.fake import EventKind, Machine
from tests.sim.checkers_money import (
    bill_is_covered,
    billed_is_the_bill,
    budget_is_kept,
    dearer_is_ended,
    nothing_for_nothing,
)
from tests.sim.end import SLACK_S, End, Finding
from tests.sim.world import LIMITS, START

DOUBLE_S = 120.0  # a read, a terminate, a second one


def check(end: End) -> list[Finding]:
    """Return everything that is wrong at the end of a seed."""
    return [Finding(checker.__name__, text) for checker in CHECKERS for text in checker(end)]


def no_leak(end: End) -> Iterator[str]:
    """No machine of ours is alive when the world has come to rest."""
    for machine in end.machines:
        if machine.deleted_at is None:
            yield f"{machine.id} {machine.label} lives"


def comes_to_rest(end: End) -> Iterator[str]:
    """With the faults over, everything of ours is closed within the bound."""
    alone = "left_alone" in end.world.swarm.rates
    for row in end.rows:
        open_ones = [a for a in row.attempts if a.state is not State.CLOSED]
        if alone and not any(a.may_bill for a in open_ones):
            continue  # nobody drives it, and it costs nothing: a supervisor would go on with it
        if open_ones or (row.active and not alone):
            states = ", ".join(f"{a.number} {a.state}" for a in row.attempts)
            yield f"job {row.record.new.id} is not closed: {states}"


def not_past_its_deadline(end: End) -> Iterator[str]:
    """No machine outlives its deadline by more than the world's troubles explain."""
    world = end.world
    trouble_over = START + world.calm_at
    for machine in end.machines:
        if machine.deadline_at is None:
            continue
        over = machine.deleted_at if machine.deleted_at is not None else end.clock()
        begun = max(machine.deadline_at, trouble_over, machine.created_at)
        allowed = begun + 3 * LIMITS.sweep_s + SLACK_S
        if "left_alone" in world.swarm.rates:
            allowed += 3 * 300.0  # three of the person's commands
        if world.cloud.settings.enforces_deadline:
            allowed = max(machine.deadline_at, machine.created_at)
        if over > allowed + 1.0:
            yield f"{machine.id} lived {over - machine.deadline_at:.0f} s past its deadline"


def one_machine_per_attempt(end: End) -> Iterator[str]:
    """No attempt asks for a second machine; a vendor's double is noticed and ended."""
    counts = end.world.swarm.counts
    labels: dict[str, list[Machine]] = {}
    for machine in end.machines:
        labels.setdefault(machine.label, []).append(machine)
    attempts = {a.label: a for a in end.attempts()}
    for label, found in labels.items():
        if len(found) > (2 if counts["launch_twice"] else 1):
            yield f"{len(found)} machines of {label}"
        attempt = attempts.get(label)
        if len(found) < 2 or attempt is None or "left_alone" in end.world.swarm.rates:
            continue
        begin = found[1].created_at + end.world.cloud.settings.list_lag_s
        until = min([m.deleted_at or end.clock() for m in found] + [attempt.stopping_at or begin])
        # Each read that failed may have cost a back-off; each window of troubles all of itself.
        excuse_s = DOUBLE_S + end.down_s(begin, until)
        excuse_s += 60.0 * sum(n for name, n in counts.items() if name.startswith(("find", "term")))
        excuse_s += sum(finish - start for start, finish in end.world.windows.values())
        if until - begin > excuse_s:
            yield f"two machines of {label} lived side by side for {until - begin:.0f} s"


def one_machine_per_job(end: End) -> Iterator[str]:
    """Attempt n+1 opens only when n is CLOSED: two live only if one was unknown to us."""
    for row in end.rows:
        for before, after in zip(row.attempts, row.attempts[1:], strict=False):
            closed = [e.at for e in end.of_attempt(before) if isinstance(e, CLOSING)]
            if not closed or after.opened_at < closed[0]:
                yield f"attempt {after.number} of {after.job_id} opened before the last was closed"


CLOSING = (ev.InstanceGone, ev.Refused)


def trains_once(end: End) -> Iterator[str]:
    """The trainer is started at most once an attempt, by the machines' own record."""
    for box in end.world.boxes.values():
        if box.trainer_starts > 1:
            yield f"{box.trainer_starts} trainer starts on {box.label}"


def foreign_untouched(end: End) -> Iterator[str]:
    """Nobody ever asks for the end of a machine that is not ours."""
    for event in end.world.cloud.log:
        if event.kind is EventKind.TERMINATE_ASKED and event.id in end.world.foreign:
            yield f"terminate was asked of the foreign {event.id} {event.label}"


def events_tell_the_state(end: End) -> Iterator[str]:
    """The snapshot is the fold of the events, and each event was allowed where it stands."""
    for attempt in end.attempts():
        try:
            told = fold(end.of_attempt(attempt))  # type: ignore[arg-type]
        except ImpossibleEventError as error:
            yield str(error)
            continue
        if told != attempt:
            yield f"{attempt.label}: the snapshot is not the fold of its events"


def calls_are_fenced(end: End) -> Iterator[str]:
    """Who lost the lease asks nothing of the provider, unless it fell asleep after the check."""
    yield from end.world.unfenced


def breaks_nothing(end: End) -> Iterator[str]:
    """No process of ours ends with an exception."""
    if end.broken is not None:
        yield end.broken


def closed_with_proof(end: End) -> Iterator[str]:
    """CLOSED came by a refusal, nothing ever asked, as a suspect, or by two reads a gap apart."""
    gap = max(LIMITS.absence_gap_s, end.world.cloud.settings.list_lag_s)
    for attempt in end.attempts():
        history = end.of_attempt(attempt)
        for index, event in enumerate(history):
            if isinstance(event, ev.MachineGone):
                reads = [
                    e.at
                    for e in history[:index]
                    if isinstance(e, ev.AbsenceRead) and e.instance_id == event.instance_id
                ]
                if not reads or event.at - reads[-1] < gap - 0.001:
                    yield f"{attempt.label}: {event.instance_id} gone without two reads"
                yield from _true_absence(end, attempt, event)
            never = isinstance(event, ev.InstanceGone) and event.proof == "never asked"
            if never and any(m.label == attempt.label for m in end.machines):
                yield f"{attempt.label}: closed as never asked, but a machine was made"


def _true_absence(end: End, attempt: Attempt, event: ev.MachineGone) -> Iterator[str]:
    """Yield a proof that was false, unless both verbs lied in this seed: then nobody could know."""
    rates = end.world.swarm.counts
    if rates["describe_404"] and rates["find_omit"]:
        return
    machine = end.world.cloud.machines[event.instance_id]
    if machine.deleted_at is None or machine.deleted_at > event.at + 0.001:
        yield f"{attempt.label}: {event.instance_id} called gone while it lived"


def outcome_is_true(end: End) -> Iterator[str]:
    """SUCCEEDED only if the machines say so; a failure of the trainer only if it failed."""
    for row in end.rows:
        if row.record.closed_at is None or row.reason is None:
            continue
        labels = {a.label for a in row.attempts}
        boxes = [b for b in end.world.boxes.values() if b.label in labels]
        won = [b for b in boxes if b.succeeded(end.clock()) and b.collected]
        if row.reason is Reason.SUCCEEDED and not won:
            yield f"job {row.record.new.id} SUCCEEDED, but no machine trained it to the end"
        if row.reason is Reason.OUT_OF_MEMORY and not any(
            "trainer_fails" in b.faults for b in boxes
        ):
            yield f"job {row.record.new.id} failed without a failure"
        if row.reason is Reason.INTERNAL:
            yield f"job {row.record.new.id} ended by our own mistake: {row.evidence}"
        if ENDINGS[row.reason].outcome is Outcome.CANCELLED and row.cancel_asked_at is None:
            yield f"job {row.record.new.id} was cancelled by nobody"


def cancel_is_heeded(end: End) -> Iterator[str]:
    """What was cancelled does not train or come home long after."""
    for row in end.rows:
        asked = row.cancel_asked_at
        if asked is None:
            continue
        for attempt in row.attempts:
            for event in end.of_attempt(attempt):
                came_home = isinstance(event, ev.ArtifactsPushed) and event.files
                if not came_home and not isinstance(event, ev.Opened):
                    continue
                late_s = event.at - asked - end.down_s(asked, event.at)
                if late_s > 2 * SLACK_S:
                    what = "came home" if came_home else "was opened"
                    yield f"{attempt.label} {what} {late_s:.0f} s after its cancel"


def nothing_waits_for_ever(end: End) -> Iterator[str]:
    """Each phase ends within its own limit, each cause is noticed: not only at the deadline."""
    world = end.world
    if "left_alone" in world.swarm.rates:
        return
    for attempt in end.attempts():
        if attempt.main_id is not None and attempt.main_id == world.orphan:
            continue  # nobody knew of it: the sweep ends it, past its deadline
        due = _due(end, attempt)
        over = attempt.stopping_at if attempt.stopping_at is not None else end.clock()
        bound = max(due, START + world.calm_at) + NOTICE_S
        if over > bound and attempt.launched_at is not None:
            yield f"{attempt.label} went on {over - bound:.0f} s too long after {_phase(attempt)}"


NOTICE_S = 600.0  # two reads under the rate limit, a lease that must first expire, back-offs


def _phase(attempt: Attempt) -> str:
    marks = (attempt.trainer_exited_at, attempt.trainer_started_at, attempt.ssh_ready_at)
    names = ("the exit", "the start", "the login")
    return next((n for m, n in zip(marks, names, strict=True) if m is not None), "the launch")


def _due(end: End, attempt: Attempt) -> float:
    """Return when the attempt must be on its way out at the latest, by the truth."""
    world = end.world
    box = next((b for b in world.boxes.values() if b.machine_id == attempt.main_id), None)
    real = world.cloud.machines.get(attempt.main_id) if attempt.main_id is not None else None
    causes = [attempt.deadline_at]
    if box is None or real is None:
        return attempt.deadline_at
    if real.ended_by == "preempted" and real.deleted_at is not None:
        causes.append(real.deleted_at + world.cloud.settings.list_lag_s)
    if real.stopped_at is not None:
        causes.append(real.stopped_at)
    if attempt.trainer_exited_at is not None:
        causes.append(attempt.trainer_exited_at + LIMITS.collect_timeout_s)
    elif attempt.trainer_started_at is not None:
        if box.trainer_started_at is not None and "agent_dies" in box.faults:
            causes.append(box.trainer_started_at + box.work_s / 2 + LIMITS.agent_lost_s)
    elif attempt.ssh_ready_at is not None:
        causes.append(attempt.ssh_ready_at + LIMITS.prepare_timeout_s)
    else:
        launched = attempt.launched_at or attempt.opened_at
        causes.append(launched + world.cloud.settings.boot_timeout_s)
    return min(causes)


def intent_comes_first(end: End) -> Iterator[str]:
    """Every machine's launch was on record before the machine existed."""
    asked = {
        a.label: [e.at for e in end.of_attempt(a) if isinstance(e, ev.LaunchAsked)]
        for a in end.attempts()
    }
    for machine in end.machines:
        if machine.id == end.world.orphan:
            continue
        if not any(at <= machine.created_at for at in asked.get(machine.label, [])):
            yield f"{machine.id} {machine.label} was made without a record"


CHECKERS: tuple[Callable[[End], Iterator[str]], ...] = (
    no_leak,
    comes_to_rest,
    not_past_its_deadline,
    one_machine_per_attempt,
    one_machine_per_job,
    trains_once,
    foreign_untouched,
    events_tell_the_state,
    calls_are_fenced,
    breaks_nothing,
    closed_with_proof,
    bill_is_covered,
    billed_is_the_bill,
    nothing_for_nothing,
    outcome_is_true,
    cancel_is_heeded,
    budget_is_kept,
    dearer_is_ended,
    nothing_waits_for_ever,
    intent_comes_first,
)
