"""Commands that only read the store: ps, status, cost. They never ask a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from orchestrator.daemon import see_that_jobs_are_driven
from orchestrator.exits import Exit
from orchestrator.opened import looked, out

if TYPE_CHECKING:
    from orchestrator.finish import Finish
    from orchestrator.home import Home
    from orchestrator.views import JobView

SHOWN_CLOSED_S = 7 * 86_400.0  # `ps` without --all leaves out jobs closed longer ago than a week


def ps(*, all_jobs: bool, as_json: bool) -> int:
    """Print the jobs, newest first; exit 0."""
    with looked() as state:
        now = state.now()
        jobs = state.store.jobs(now=now)
        if not all_jobs:
            jobs = [job for job in jobs if _recent(job, now)]
        if as_json:
            from orchestrator.report_json import dumps, ps_document

            out([dumps(ps_document(jobs, now, state.store.strays()))])
        else:
            from orchestrator.report import ps_lines

            out(ps_lines(jobs, now, state.screen, state.store.strays()))
        see_that_jobs_are_driven(state)
    return Exit.OK


def _recent(job: JobView, now: float) -> bool:
    from orchestrator.states import Teardown

    quiet = job.teardown in (Teardown.GONE, Teardown.NONE)
    return job.closed_at is None or not quiet or now - job.closed_at < SHOWN_CLOSED_S


def status(word: str, *, exit_code: bool, events: bool, as_json: bool) -> int:
    """Print one job; exit 0, or the job's own code where asked (0 while it runs)."""
    with looked() as state:
        now = state.now()
        job = state.store.job(state.store.find_job(word), now=now)
        journal = state.store.events(job.id) if events else None
        finish = _finish(job, state.home)
        if as_json:
            from orchestrator.report_json import dumps, status_document

            body = status_document(job, now, finish)
            if journal is not None:
                body["events"] = [event_body(entry) for entry in journal]
            out([dumps(body)])
        else:
            from orchestrator.report import event_lines, status_lines

            lines = status_lines(job, now, state.screen, finish)
            if journal is not None:
                lines += ["", *event_lines([event_body(e) for e in journal], now, state.screen)]
            out(lines)
        see_that_jobs_are_driven(state)
    return job.exit_code or Exit.OK if exit_code else Exit.OK


def _finish(job: JobView, home: Home) -> Finish | None:
    """Return when a job that trains now will be done; costs nothing for all others."""
    from orchestrator.states import State

    if job.state is not State.RUNNING or not job.attempts or job.attempts[-1].step is None:
        return None
    from orchestrator.finish import finish_at_home
    from orchestrator.shapes import CONFIGS

    path = home.log_path(job.id, job.attempts[-1].number, "metrics.jsonl")
    return finish_at_home(job, path, home.root / CONFIGS)


def event_body(entry: Any) -> dict[str, Any]:
    """Return one entry of the journal as plain data."""
    from orchestrator.report_json import event_document

    return event_document(entry)


def cost(*, by: Literal["job", "day", "provider"], form: str) -> int:
    """Print what was spent; exit 0."""
    with looked() as state:
        now = state.now()
        rows = state.store.totals(by, now=now)
        names = {job.id: job.name for job in state.store.jobs(now=now)} if by == "job" else {}
        if form == "table":
            from orchestrator.report_cost import cost_lines

            out(cost_lines(rows, names, by, state.screen))
        elif form == "csv":
            from orchestrator.report_cost import cost_csv

            out(cost_csv(rows, names, by))
        else:
            from orchestrator.report_cost import cost_document
            from orchestrator.report_json import dumps

            out([dumps(cost_document(rows, names, by, now))])
    return Exit.OK
