"""What must be true of the money: the ledger against the fake cloud's own bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from orchestrator import events as ev
from orchestrator import ledger
from orchestrator.bills import read_bills
from orchestrator.states import Reason, State
from tests.sim.end import SLACK_S, End
from tests.sim.process import make_runner

EXACT = Decimal("0.000001")  # floats carry the amounts
SETTLED_S = 2 * 3600.0 + 900.0  # an hour is closed by then, and asked about again
MOST_ROUNDS = 20
DEARER = Decimal("1.3")  # world.maybe_dearer


def bill_is_covered(end: End) -> Iterator[str]:
    """The estimate is never below the bill, and above it by a step and the time of the proof."""
    world = end.world
    counted: set[str] = set()
    for attempt in end.attempts():
        step = Decimal(str(attempt.billing_step_s))
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
        twin = any(m.label == real.label and m.id in counted for m in end.machines)
        if twin and real.terminate_calls == 0:
            continue  # the vendor's own double, dead before any look of ours: nobody could know
        # It lived and died between our looks, after a launch whose outcome nobody told us.
        if world.cloud.bill(real.id) > bounds[real.label] * DEARER:
            yield f"{real.id} {real.label} is in no ledger, not even as a suspect"


def billed_is_the_bill(end: End) -> Iterator[str]:
    """Hours later the billed column is RunPod's bill, exactly; empty where nobody tells it."""
    world = end.world
    if not world.runpod or end.broken is not None or not end.rested:
        return
    at_rest = world.time
    runner = make_runner(world, "checker")
    for _ in range(MOST_ROUNDS):
        world.time += SETTLED_S
        if read_bills(runner) == 0:
            break
    world.time = at_rest
    told = "billing_off" not in world.swarm.rates
    for row in world.store.rows(removed=True):
        for attempt in row.attempts:
            for machine in attempt.machines if attempt.bills else ():
                bill, shown = world.cloud.bill(machine.id), machine.billed_usd
                if told and bill > 0 and not machine.bill_whole:
                    yield f"{machine.id}: {bill} was charged, and is never shown as billed"
                if shown is not None and (not told or abs(shown - bill) > EXACT):
                    yield f"{machine.id}: {shown} shown as billed, {bill} was charged"


def nothing_for_nothing(end: End) -> Iterator[str]:
    """An attempt that never had a machine costs nothing once it is closed."""
    for attempt in end.attempts():
        never_had_one = attempt.state is State.CLOSED and not attempt.machines
        if never_had_one and ledger.cost([attempt], end.clock()) != 0:
            yield f"{attempt.label}: a refused launch has a cost"


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
            if attempt.trainer_exited_at is not None:
                continue  # bringing it home: that is what the reserve is for
            before = [a for a in row.attempts if a.number <= attempt.number]
            spent = sum(
                (line.spent_by(ended.at) for line in ledger.lines(before, end.clock())), Decimal(0)
            )
            rate = attempt.offer.price_usd_per_hour
            slack_s = SLACK_S + end.down_s(started, ended.at)
            slack = rate * Decimal(str(slack_s)) / 3600
            if spent > caps.budget_usd - caps.reserve_usd + slack:
                yield f"{attempt.label}: trained on the reserve, {spent} of {caps.budget_usd}"


def dearer_is_ended(end: End) -> Iterator[str]:
    """A machine dearer than its quote does not train."""
    for attempt in end.attempts():
        real = [m for m in end.machines if m.id == attempt.main_id]
        trains = real and attempt.trainer_started_at is not None
        if trains and real[0].price_usd_per_hour > attempt.offer.price_usd_per_hour:
            yield f"{attempt.label} trains at {real[0].price_usd_per_hour}"
