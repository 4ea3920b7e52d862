"""What providers say they charged, beside our own estimate: read over closed hours, and kept.

A bill is read some time after the hour in which its machine was proven gone, and again an hour
later: only an amount that has stopped growing is whole. Each answer is an event of the attempt. The
estimate is never touched, and a provider that does not answer costs a few calls, no more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from orchestrator import events as ev
from orchestrator.attempt import Attempt, Machine
from orchestrator.policy import Limits
from orchestrator.reads import Billed
from orchestrator.runner import Runner
from orchestrator.states import State
from orchestrator.store_engine import StoreError
from providers.base import Billing

log = logging.getLogger("gpujob.bills")

HOUR_S = 3600.0
DAY_S = 86_400.0
WINDOW_S = 14 * DAY_S  # a bill that nobody could tell by then is not asked for any more
MOST = 5  # calls of one round: a sweep has other things to do


def read_bills(runner: Runner) -> int:
    """Return how many bills were asked for. n calls, few; raises nothing that the world can cause.

    Jobs that another process drives are left to it.
    """
    asked = 0
    try:
        for attempt, machine in _due(runner):
            if asked >= MOST:
                break
            asked += _read(runner, attempt, machine)
    except StoreError as error:
        log.warning("%s; the bills are read later", error)
    return asked


def due_at(machine: Machine, limits: Limits) -> float:
    """Return when the bill of a machine that is gone is to be read; infinite when it is whole."""
    if machine.gone_at is None or machine.bill_whole:
        return math.inf
    if machine.bill_tried_at is None or machine.bill_tries == 0:
        return math.ceil(machine.gone_at / HOUR_S) * HOUR_S + limits.bill_after_s
    known = machine.billed_usd is not None and not machine.bill_error
    doublings = 0 if known else min(machine.bill_tries - 1, 16)
    pause_s = min(limits.bill_again_s * float(1 << doublings), max(DAY_S, limits.bill_again_s))
    return machine.bill_tried_at + pause_s


def _due(runner: Runner) -> Iterator[tuple[Attempt, Machine]]:
    now = runner.clock.now()
    for attempt in runner.store.attempts(since=now - WINDOW_S):
        if attempt.state is not State.CLOSED or not attempt.bills or attempt.proof == "yours":
            continue
        if attempt.provider not in runner.providers or attempt.offer.price_is_notional:
            continue
        for machine in attempt.machines:
            if due_at(machine, runner.limits) <= now:
                yield attempt, machine


def _read(runner: Runner, attempt: Attempt, machine: Machine) -> bool:
    """Return whether the provider was asked; its answer is committed."""
    provider = runner.providers[attempt.provider]
    if not isinstance(provider, Billing) or machine.gone_at is None:
        return False
    driver = runner.take(attempt.job_id)
    if driver is None:
        return False
    try:
        case = next((c for c in driver.cases if c.attempt.number == attempt.number), None)
        if case is None or case.attempt.state is not State.CLOSED:
            return False  # came back to life since it was read
        start = attempt.launch_asked_at or machine.first_seen_at
        answer = runner.reads[attempt.provider].billed(provider, machine.id, start, machine.gone_at)
        now = runner.clock.now()
        if isinstance(answer, Billed):
            whole = answer.usd is not None and answer.usd == machine.billed_usd
            driver.commit(case, ev.BillRead(now, machine.id, answer.usd, whole))
        elif answer.error:
            driver.commit(case, ev.BillRead(now, machine.id, error=answer.error[:200]))
        else:
            return False  # the bucket: nothing was asked
    finally:
        driver.release()
    return True
