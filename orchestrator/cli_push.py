"""`gpujob push`: send what a finished job's places still lack, from the folder at home."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, opened, out

if TYPE_CHECKING:
    from orchestrator.opened import Opened
    from orchestrator.runner import Driver
    from orchestrator.views import JobView

RENEW_S = 10.0  # of the lease, which lasts longer


def push(word: str, *, as_json: bool) -> int:
    """Push what is missing; returns the job's exit code after it."""
    from orchestrator.compose import compose
    from orchestrator.store_journal import LeaseLost

    gc.enable()
    with opened() as state:
        job_id = state.store.find_job(word)
        job = state.store.job(job_id, now=state.now())
        _refuse_where_useless(job)
        if any(not push.where for push in job.pushes):
            parts = compose(state)
            driver = parts.runner.take(job_id)
            if driver is None:
                raise Refused(f"#{job_id} is in another process's hands", remedy="Try again later.")
            try:
                _push(driver, state)
            except LeaseLost:
                raise Refused(f"another process took #{job_id} over") from None
            finally:
                driver.release()
        job = state.store.job(job_id, now=state.now())
        _answer(job, state, as_json=as_json)
        return int(job.exit_code or Exit.OK)


def _refuse_where_useless(job: JobView) -> None:
    from orchestrator.push_state import MENDABLE
    from orchestrator.states import Reason

    if not job.pushes:
        raise Refused(
            f"#{job.id} names no place to push to",
            remedy="Say output: [out, s3://bucket/prefix, hf://user/repo] in the job file.",
        )
    if job.closed_at is None:
        raise Refused(
            f"#{job.id} is not over; it pushes by itself", remedy=f"gpujob attach {job.id}"
        )
    home = [attempt for attempt in job.attempts if attempt.reason is Reason.SUCCEEDED]
    if not home or job.reason not in {Reason.SUCCEEDED, *MENDABLE}:
        raise Refused(f"#{job.id} brought no result home; there is nothing to push")


def _push(driver: Driver, state: Opened) -> None:
    """Drive the pushes to their end; each is written down as it ends."""
    runner = driver.runner
    driver.pushing.reopen(driver.cases)
    renew_at = 0.0
    while due := driver.pushing.step(driver.cases, None):
        now = state.now()
        if now >= renew_at:
            runner.store.journal.check(driver.lease, runner.limits.lease_s)
            renew_at = now + RENEW_S
        state.clock.sleep(max(0.0, min(*due, now + 1.0) - now))


def _answer(job: JobView, state: Opened, *, as_json: bool) -> None:
    if as_json:
        from orchestrator.report_json import dumps, push_document

        out([dumps(push_document(job, state.now()))])
        return
    from orchestrator.report import field_lines, headline_lines, push_fields

    lines = headline_lines(job, state.now(), state.screen)
    for label, text in push_fields(job):
        lines += field_lines(label, text, state.screen)
    out(lines)
    if any(not push.where for push in job.pushes):
        err(f"what is missing can be pushed again: gpujob push {job.id}")
