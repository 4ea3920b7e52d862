"""From events to money. Decimal only, from the intent to the proof of absence, to the micro-dollar.

The estimate never lies below the bill: it begins before the provider's meter (the launch call) and
ends after it (the second read of the proof); time is rounded up to the provider's billing step and
money up to the micro-dollar. Prices are frozen at launch; a price that the provider changes on a
running machine is an interval of its own. What is read here was written by the events; nothing is
ever priced anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal
from typing import Literal

from orchestrator.attempt import Attempt, Machine
from orchestrator.billed import Bill, Billed, bill_of
from orchestrator.jobflow import storage_rate
from orchestrator.policy import ALL_RULES, Rules
from providers.base import HANDED_ON

MICRO = Decimal("0.000001")
HOUR_S = Decimal(3600)
DAY_S = 86_400.0

Kind = Literal["compute", "storage"]
By = Literal["job", "day", "provider"]


@dataclass(frozen=True, slots=True)
class Line:
    """One machine's cost of one kind. end None: the meter runs, `usd` is up to now.

    served: the machine came so far as to train. upper_bound_usd: what a launch whose outcome was
    never learnt could have cost at the most; not part of `usd`.
    """

    job_id: str
    attempt: int
    label: str
    provider: str
    kind: Kind
    instance_id: str | None
    start: float
    end: float | None
    until: float  # end, or the moment of the question
    usd: Decimal
    usd_per_hour: Decimal
    served: bool
    notional: bool
    upper_bound_usd: Decimal = Decimal(0)
    rates: tuple[tuple[float, Decimal], ...] = ()
    step_s: float = 0.0
    bill: Bill = Bill.NONE  # of the machine, both its lines
    billed_usd: Decimal = Decimal(0)  # of the machine, on its compute line alone

    @property
    def billed(self) -> Billed:
        """Return what the provider charged, beside this line's estimate where it is whole."""
        return Billed(
            self.bill, self.billed_usd, self.usd if self.bill is Bill.WHOLE else Decimal(0)
        )

    def spent_by(self, moment: float) -> Decimal:
        """Return USD of this line up to a moment; at or after its end the whole, rounded up."""
        if moment >= self.until:
            return self.usd
        return min(_priced(self.start, moment, self.rates, 0.0), self.usd)


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of lines. key: the job id, the UTC day (2026-11-30), or the provider."""

    key: str
    compute_usd: Decimal = Decimal(0)
    storage_usd: Decimal = Decimal(0)
    unserved_usd: Decimal = Decimal(0)  # part of the two: machines that never came to train
    upper_bound_usd: Decimal = Decimal(0)  # beside the two: launches of unknown outcome
    open: bool = False  # a meter runs
    notional: bool = False  # some of it is a made-up price
    jobs: frozenset[str] = field(default_factory=frozenset)
    billed: Billed = field(default_factory=Billed)  # not by day: a bill is told by machine

    @property
    def total_usd(self) -> Decimal:
        """Return compute and storage together."""
        return self.compute_usd + self.storage_usd


def cost(attempts: Iterable[Attempt], now: float, rules: Rules = ALL_RULES) -> Decimal:
    """Return USD of all these attempts up to `now`, failed ones included."""
    return sum((line.usd for line in lines(attempts, now, rules)), Decimal(0))


def lines(attempts: Iterable[Attempt], now: float, rules: Rules = ALL_RULES) -> list[Line]:
    """Return the lines of these attempts: compute, and storage where that costs."""
    return [line for attempt in attempts for line in _of_attempt(attempt, now, rules)]


def totals(attempts: Iterable[Attempt], by: By, now: float) -> list[Total]:
    """Return the sums by job, UTC day or provider, in the key's order. The parts add up exactly."""
    sums: dict[str, Total] = {}
    for line in lines(attempts, now):
        for key, usd in _keyed(line, by):
            known = _add(sums.get(key) or Total(key), line, usd)
            sums[key] = known if by == "day" else replace(known, billed=known.billed + line.billed)
    return [sums[key] for key in sorted(sums)]


# ---------------------------------------------------------------- one attempt


def _of_attempt(attempt: Attempt, now: float, rules: Rules) -> Iterator[Line]:
    asked = attempt.launch_asked_at
    for machine in attempt.machines:
        start = asked if asked is not None else (machine.created_at or machine.first_seen_at)
        end = machine.gone_at
        if attempt.proof == "yours":  # no call of ours stops that meter: its owner's word does
            end = None if attempt.ended_at is None else max(start, attempt.ended_at)
            if attempt.ended_by == HANDED_ON:  # the meter runs on: no step is begun here
                attempt = replace(attempt, billing_step_s=0.0)
        if not rules.bill_until_proof and machine.terminate_first_at is not None:
            end = machine.terminate_first_at
        yield from _pair(attempt, machine, start, end, now)
    if attempt.machines or asked is None:
        return
    if attempt.launch_open:  # perhaps there is one: counted until we know
        yield from _pair(attempt, None, asked, None, now)
    elif attempt.suspect_until is not None:
        bound_at = min(attempt.suspect_until, attempt.deadline_at)
        for line in _pair(attempt, None, asked, asked, now):
            worst = _priced(asked, bound_at, line.rates, attempt.billing_step_s)
            yield replace(line, usd=Decimal(0), upper_bound_usd=worst)


def _pair(
    attempt: Attempt, machine: Machine | None, start: float, end: float | None, now: float
) -> Iterator[Line]:
    """Yield the compute line, and the storage line where storage costs."""
    told = machine.rates if machine is not None else ()
    rates = told or ((start, attempt.offer.price_usd_per_hour),)
    until = max(start, now if end is None else end)
    compute = Line(
        attempt.job_id,
        attempt.number,
        attempt.label,
        attempt.provider,
        "compute",
        machine.id if machine is not None else None,
        start,
        end,
        until,
        _priced(start, until, rates, attempt.billing_step_s),
        rates[-1][1],
        attempt.trainer_started_at is not None,
        attempt.offer.price_is_notional,
        rates=rates,
        step_s=attempt.billing_step_s,
        bill=Bill.NONE if machine is None else bill_of(attempt, machine),
        billed_usd=_charged(machine),
    )
    yield compute
    rate = storage_rate(attempt.offer, attempt.disk_gib)
    if rate > 0:
        kept = ((start, rate),)
        usd = _priced(start, until, kept, attempt.billing_step_s)
        yield replace(
            compute, kind="storage", usd=usd, usd_per_hour=rate, rates=kept, billed_usd=Decimal(0)
        )


def _charged(machine: Machine | None) -> Decimal:
    if machine is None or not machine.bill_whole:
        return Decimal(0)
    return machine.billed_usd or Decimal(0)


def _priced(
    start: float, until: float, rates: Sequence[tuple[float, Decimal]], step_s: float
) -> Decimal:
    """Return USD of [start, until): the first rate holds from the start, each until the next."""
    lasted = seconds(until) - seconds(start)
    if lasted <= 0:
        return Decimal(0)
    if step_s > 0:
        step = Decimal(str(step_s))
        lasted = (lasted / step).to_integral_value(ROUND_UP) * step
    finish = seconds(start) + lasted
    usd = Decimal(0)
    for index, (since, rate) in enumerate(rates):
        begin = seconds(start) if index == 0 else max(seconds(since), seconds(start))
        nxt = finish if index + 1 == len(rates) else min(seconds(rates[index + 1][0]), finish)
        if nxt > begin:
            usd += (nxt - begin) * rate / HOUR_S
    return usd.quantize(MICRO, ROUND_UP)


def seconds(moment: float) -> Decimal:
    """Return a UNIX time as a Decimal of whole microseconds: the one way from clock to money."""
    return Decimal(round(moment * 1_000_000)).scaleb(-6)


# ---------------------------------------------------------------- sums


def _keyed(line: Line, by: By) -> Iterator[tuple[str, Decimal]]:
    if by == "job":
        yield line.job_id, line.usd
    elif by == "provider":
        yield line.provider, line.usd
    else:
        yield from by_day(line)


def by_day(line: Line) -> Iterator[tuple[str, Decimal]]:
    """Yield (UTC day, USD): cut at each midnight; the parts add up to the line exactly."""
    begin = line.start
    before = Decimal(0)
    while True:
        midnight = (begin // DAY_S + 1) * DAY_S
        spent = line.spent_by(midnight)
        yield day_of(begin), spent - before
        if midnight >= line.until:
            return
        begin, before = midnight, spent


def day_of(moment: float) -> str:
    """Return the UTC day of a moment, such as 2026-11-30."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _add(total: Total, line: Line, usd: Decimal) -> Total:
    compute = line.kind == "compute"
    return replace(
        total,
        compute_usd=total.compute_usd + (usd if compute else 0),
        storage_usd=total.storage_usd + (0 if compute else usd),
        unserved_usd=total.unserved_usd + (0 if line.served else usd),
        upper_bound_usd=total.upper_bound_usd + line.upper_bound_usd,
        open=total.open or line.end is None,
        notional=total.notional or line.notional,
        jobs=total.jobs | {line.job_id},
    )
