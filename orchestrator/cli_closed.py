"""`gpujob closed`: the owner's word that a machine rented by hand is ended."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, opened, out

if TYPE_CHECKING:
    from orchestrator.opened import Opened
    from orchestrator.views import JobView

WAIT_S = 600.0  # for the job's driver to take the word; a host that hangs is given up long before


def closed(word: str, *, at: str | None) -> int:
    """Take the word, wait until it is in the journal, and print the job; its code."""
    from orchestrator import by_hand, daemon
    from orchestrator.compose import compose

    gc.enable()
    with opened() as state:
        job_id = state.store.find_job(word)
        job = state.store.job(job_id, now=state.now())
        attempt = by_hand.waiting_for_a_word(job)
        when = _moment(at, state.now())
        parts = compose(state)
        if not by_hand.declare(parts.runner, job, attempt, when):
            err(f"#{job_id}: taken; the job is being closed")
            daemon.see_that_jobs_are_driven(state)
            _wait(state, job_id, attempt.number)
        return _answer(state, state.store.job(job_id, now=state.now()))


def _moment(text: str | None, now: float) -> float:
    from orchestrator.cli_logs import moment_of

    if text is None:
        return now
    when = moment_of(text, now)
    if when > now:
        raise Refused(f"--at {text} is still to come", launched=True)
    return when


def _wait(state: Opened, job_id: str, number: int) -> None:
    from orchestrator.drive import LOOK_EVERY_S
    from orchestrator.signals import Signals
    from orchestrator.states import Teardown

    until = state.clock.monotonic() + WAIT_S
    with Signals() as signals:
        while state.clock.monotonic() < until:
            job = state.store.job(job_id, now=state.now())
            one = next(a for a in job.attempts if a.number == number)
            if one.teardown is Teardown.CLOSED_BY_OWNER and job.closed_at is not None:
                return
            if signals.interrupts or signals.ended_by is not None:
                raise Refused(
                    "stopped waiting; the word is kept.", code=Exit.INTERRUPTED, launched=True
                )
            signals.wait(LOOK_EVERY_S)
    raise Refused(f"#{job_id} is not closed yet; gpujob status {job_id} says why", launched=True)


def _answer(state: Opened, job: JobView) -> int:
    from orchestrator.report import headline_lines
    from orchestrator.report_text import money

    out(
        [
            *headline_lines(job, state.now(), state.screen),
            f"  cost      {money(job.cost_usd)} estimated, to the moment that you named",
        ]
    )
    return Exit.OK
