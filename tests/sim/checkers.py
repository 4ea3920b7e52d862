"""What must be true at the end of every seed. Checkers know the truth and the store, not the rules.

Each returns what it found wrong, in words. The truth is the fake cloud's own log and the machines'
own memory; nothing here asks the code under test how it went.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from orchestrator import events as ev
from orchestrator import ledger
from orchestrator.attempt import Attempt
from orchestrator.fold import ImpossibleEventError, fold
from orchestrator.states import ENDINGS, Outcome, Reason, State
from orchestrator.store_rows import JobRow, Recorded
from providers.fake import EventKind, Machine
from tests.sim.world import LIMITS, START, World

SLACK_S = 120.0  # a call that hangs, a beat, a back-off
DEARER = Decimal("1.3")  # world.maybe_dearer
DOUBLE_S = 120.0  # a read, a terminate, a second one


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    checker: str
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """All that is known when the world came to rest, or did not."""

    world: World
    rested: bool
    rows: tuple[JobRow, ...]
    history: dict[str, list[Recorded]]
    broken: str | None = None

    @property
    def machines(self) -> list[Machine]:
        """Return our machines, dead and alive."""
        mine = self.world.cloud.machines.values()
        return [m for m in mine if m.id not in self.world.foreign]

    def attempts(self) -> Iterator[Attempt]:
        """Yield every attempt on record."""
        for row in self.rows:
            yield from row.attempts

    def of_attempt(self, attempt: Attempt) -> list[ev.AnyEvent]:
        """Return its events."""
        history = self.history[attempt.job_id]
        return [r.event for r in history if r.attempt == attempt.number]

    def clock(self) -> float:
        """Return UNIX seconds."""
        return START + self.world.time


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
        excuse_s = DOUBLE_S + _down_s(end, begin, until)
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


def bill_is_covered(end: End) -> Iterator[str]:
    """The estimate is never below the bill, and above it by a step and the time of the proof."""
    world = end.world
    step = Decimal(str(world.cloud.settings.billing_step_s))
    counted: set[str] = set()
    for attempt in end.attempts():
        for machine in attempt.machines:
            counted.add(machine.id)
            real = world.cloud.machines[machine.id]
            spent = [
                line
                for line in ledger.lines([attempt], end.clock(), world.rules)
                if line.instance_id == machine.id
            ]
            estimate = sum((line.usd for line in spent), Decimal(0))
            bill = world.cloud.bill(machine.id)
            if estimate < bill:
                yield f"{machine.id}: estimate {estimate} below the bill {bill}"
            if machine.gone_at is None or real.deleted_at is None or not spent:
                continue
            ended = real.stopped_at or real.deleted_at
            wait_s = (machine.gone_at - ended) + max(0.0, real.created_at - spent[0].start)
            rate = real.price_usd_per_hour + real.storage_usd_per_hour
            most = bill + rate * (step * 2 + Decimal(str(wait_s))) / 3600 + Decimal("0.00001")
            if estimate > most and len(machine.rates) < 2:
                yield f"{machine.id}: estimate {estimate} above {most} (bill {bill})"
    bounds: defaultdict[str, Decimal] = defaultdict(Decimal)
    for line in ledger.lines(end.attempts(), end.clock()):
        bounds[line.label] += line.upper_bound_usd
    for real in end.machines:
        if real.id in counted or real.id == world.orphan:
            continue
        # It lived and died between our looks, after a launch whose outcome nobody told us.
        if world.cloud.bill(real.id) > bounds[real.label] * DEARER:
            yield f"{real.id} {real.label} is in no ledger, not even as a suspect"


def nothing_for_nothing(end: End) -> Iterator[str]:
    """An attempt that never had a machine costs nothing once it is closed."""
    for attempt in end.attempts():
        never_had_one = attempt.state is State.CLOSED and not attempt.machines
        if never_had_one and ledger.cost([attempt], end.clock()) != 0:
            yield f"{attempt.label}: a refused launch has a cost"


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
                late_s = event.at - asked - _down_s(end, asked, event.at)
                if late_s > 2 * SLACK_S:
                    what = "came home" if came_home else "was opened"
                    yield f"{attempt.label} {what} {late_s:.0f} s after its cancel"


def _down_s(end: End, begin: float, finish: float) -> float:
    """Return for how long processes were dead or asleep meanwhile, and their leases in the way."""
    lost = 0.0
    for since, until in end.world.down:
        overlap = min(until + START, finish) - max(since + START, begin)
        if overlap > 0:
            lost += overlap + LIMITS.lease_s
    return lost


def budget_is_kept(end: End) -> Iterator[str]:
    """The reserve is not trained on: what reaches it ends as BUDGET, not at the deadline."""
    if "left_alone" in end.world.swarm.rates:
        return  # nobody counts; the machine's own deadline, or the next command, ends it
    for row in end.rows:
        caps = row.record.new.caps
        if caps.budget_usd is None:
            continue
        for attempt in row.attempts:
            started = attempt.trainer_started_at
            ended = next((e for e in end.of_attempt(attempt) if isinstance(e, ev.Aborted)), None)
            if started is None or ended is None or ended.reason is not Reason.DEADLINE:
                continue
            before = [a for a in row.attempts if a.number <= attempt.number]
            spent = ledger.cost(before, ended.at)
            rate = attempt.offer.price_usd_per_hour
            slack = rate * Decimal(str(SLACK_S)) / 3600
            if spent > caps.budget_usd - caps.reserve_usd + slack:
                yield f"{attempt.label}: trained on the reserve, {spent} of {caps.budget_usd}"


def dearer_is_ended(end: End) -> Iterator[str]:
    """A machine dearer than its quote does not train."""
    for attempt in end.attempts():
        real = [m for m in end.machines if m.id == attempt.main_id]
        trains = real and attempt.trainer_started_at is not None
        if trains and real[0].price_usd_per_hour > attempt.offer.price_usd_per_hour:
            yield f"{attempt.label} trains at {real[0].price_usd_per_hour}"


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
    nothing_for_nothing,
    outcome_is_true,
    cancel_is_heeded,
    budget_is_kept,
    dearer_is_ended,
    nothing_waits_for_ever,
    intent_comes_first,
)
