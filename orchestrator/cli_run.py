"""Commands that drive jobs: submit, attach, cancel. `supervise` is in cli_supervise.py."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator import daemon
from orchestrator.exits import Exit, Refused, worst
from orchestrator.opened import err, looked, opened, out
from orchestrator.report_text import screen_of
from orchestrator.transfers import Transfers

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.load import LoadedJob
    from orchestrator.compose import Parts
    from orchestrator.data_gate import Gated
    from orchestrator.drive import Judge
    from orchestrator.opened import Opened, State
    from orchestrator.report_text import Screen
    from orchestrator.submit import Plan
    from orchestrator.views import JobView


def submit(
    job_file: Path,
    *,
    yes: bool,
    detach: bool,
    dry_run: bool,
    changes: list[str],
    as_json: bool,
    pii_reviewed: bool = False,
    keep_s: float = 0.0,
) -> int:
    """Read, quote, ask, store, and drive or hand over; returns the job's exit code."""
    from orchestrator import report_plan, submit_money
    from orchestrator import submit as room
    from orchestrator.measured import read
    from orchestrator.shapes import CONFIGS, fetch

    gc.enable()  # the door switched it off for short commands
    loaded = room.read_job(job_file, changes)
    with opened() as state:
        from orchestrator.compose import compose

        transfers = Transfers()
        parts = compose(state, tell=transfers.tell)
        gated = through_the_gate(loaded, state)
        root = state.home.root
        hub = fetch(loaded.spec.model, root)

        def quote() -> Plan:
            fresh = room.plan(gated.loaded, parts.providers, read(root), root / CONFIGS, hub)
            fresh = room.with_data(fresh, gated, pii_reviewed=pii_reviewed)
            return submit_money.preflight(fresh, parts.providers)

        try:
            quoted = quote()
        except Refused as refused:
            if dry_run and refused.code is Exit.NO_OFFER and not as_json:
                text = room.axolotl_text(gated.loaded.spec, None)
                out(report_plan.axolotl_lines(text))
            raise
        planned = _looked_at(replace(quoted, keep_on_failure_s=keep_s), state, parts)
        if dry_run:
            return _dry_run(planned, state, as_json=as_json)
        planned = _agreed(planned, quote, state, parts, yes=yes, as_json=as_json)
        if detach:
            return _detached(planned, state, as_json=as_json)
        return _in_foreground(planned, state, parts, transfers, as_json=as_json)


def resume(word: str, *, yes: bool, detach: bool, gpu_types: list[str], as_json: bool) -> int:
    """Open a job that goes on from a closed one's newest whole checkpoint; returns its code."""
    from orchestrator import submit as room
    from orchestrator import submit_money
    from orchestrator.artifacts import checkpoint
    from orchestrator.compose_store import fetch_for_resume
    from orchestrator.measured import read
    from orchestrator.shapes import CONFIGS
    from orchestrator.states import Reason

    gc.enable()
    with opened() as state:
        from orchestrator.compose import compose

        transfers = Transfers()
        parts = compose(state, tell=transfers.tell)
        job_id = state.store.find_job(word)
        record, attempts = state.store.load(job_id)
        if any(attempt.reason is Reason.SUCCEEDED for attempt in attempts):
            raise Refused(
                f"#{job_id} finished its training; a finished job is never trained again",
                remedy="Submit the job file anew to train once more.",
            )
        loaded = room.resumed(record, gpu_types)

        def quote() -> Plan:
            root = state.home.root
            fresh = room.plan(loaded, parts.providers, read(root), root / CONFIGS)
            return submit_money.preflight(room.where_it_may_go(fresh, record), parts.providers)

        folder = state.home.checkpoints(job_id)
        passed_over = fetch_for_resume(record.new, loaded.spec, folder)
        found = checkpoint.newest(folder)
        said = (
            "no checkpoint of it is at home: it begins anew"
            if found is None
            else f"goes on from step {checkpoint.step_of(found)} of #{job_id}"
        )
        noted = _noted(replace(quote(), resume_from=found), said, *passed_over)
        planned = _looked_at(noted, state, parts)
        planned = _agreed(planned, quote, state, parts, yes=yes, as_json=as_json)
        if detach:
            return _detached(planned, state, as_json=as_json)
        return _in_foreground(planned, state, parts, transfers, as_json=as_json)


def _looked_at(planned: Plan, state: Opened, parts: Parts) -> Plan:
    """Return the plan with a word on its machine; raises Refused where that one will not do."""
    from orchestrator.by_hand import look
    from orchestrator.submit import environment_note

    by_hand = look(planned, parts.providers, _ask if sys.stdin.isatty() else None)
    note = environment_note(planned.best.offer, state.home.root, parts.settings.axolotl_env)
    return _noted(planned, *by_hand, *([] if note is None else [note]))


def _agreed(
    planned: Plan,
    quote: Callable[[], Plan],
    state: Opened,
    parts: Parts,
    *,
    yes: bool,
    as_json: bool,
) -> Plan:
    """Return the plan as it is to be run: its places tried, the person asked, the price of now.

    quote: asks for the offers anew. Raises Refused.
    """
    from orchestrator.compose_store import check_target, check_token
    from orchestrator.push_check import check_places
    from orchestrator.submit_money import as_agreed

    spec = planned.spec
    check_token(spec)
    check_target(spec, parts.runner.limits.push_check_s)
    planned = _noted(
        planned, *check_places(spec.pushes, spec.name, parts.runner.limits.push_check_s)
    )
    if agree(planned, state, yes=yes, as_json=as_json):
        planned = as_agreed(planned, quote())
    return planned


def _noted(planned: Plan, *notes: str) -> Plan:
    return replace(planned, notes=(*planned.notes, *notes))


def through_the_gate(loaded: LoadedJob, state: State[Any]) -> Gated:
    """Return the job on its prepared data; raises Refused where the data is refused."""
    from orchestrator import data_gate
    from orchestrator.data_run import bar, stages

    with stages() as stage:
        return data_gate.through(
            loaded, state.home.root, now=state.now(), progress=bar(), stage=stage
        )


def _dry_run(planned: Plan, state: Opened, *, as_json: bool) -> int:
    from orchestrator import report_plan
    from orchestrator.submit import axolotl_text

    text = axolotl_text(planned.spec, planned.best)
    if as_json:
        from orchestrator.report_json import dumps

        out([dumps(report_plan.plan_document(planned, text, state.now()))])
    else:
        out(report_plan.dry_run_lines(planned, text, state.screen))
    return Exit.OK


def agree(planned: Plan, state: Opened, *, yes: bool, as_json: bool) -> bool:
    """Show what is about to be rented; return whether a person was asked, and said yes.

    Raises Refused where the answer is no.
    """
    from orchestrator import report_plan
    from orchestrator.submit import price_asked, refuse_unasked_spending

    refuse_unasked_spending(planned, yes=yes)
    screen = talk_screen(as_json=as_json)
    lines = [
        *report_plan.billing_first(state.store.jobs(now=state.now()), state.now(), screen),
        *report_plan.offer_lines(planned, screen),
    ]
    stream = sys.stderr if as_json else sys.stdout
    stream.write("\n".join(lines) + "\n")
    stream.flush()
    if yes or price_asked(planned.best.offer) == 0:
        return False
    if not _ask(screen.accent(report_plan.question(planned)), stream):
        raise Refused("not agreed.", code=Exit.INTERRUPTED)
    return True


def _ask(question: str, stream: TextIO | None = None) -> bool:
    """Return whether the person said yes; stderr unless told otherwise."""
    stream = sys.stderr if stream is None else stream
    stream.write(question)
    stream.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        answer = ""
        stream.write("\n")
    return answer in ("y", "yes")


def talk_screen(*, as_json: bool) -> Screen:
    """Return the screen that words go to: with --json stderr's."""
    import os

    return screen_of(sys.stderr if as_json else sys.stdout, os.environ)


def _detached(planned: Plan, state: Opened, *, as_json: bool) -> int:
    from orchestrator.settings import load_settings
    from orchestrator.submit import store_job

    lease_s = load_settings().machine_lease_s
    job_id = store_job(planned, state.store, state.home, now=state.now(), lease_s=lease_s)
    pid, started = daemon.ensure(state.home.root)
    job = state.store.job(job_id, now=state.now())
    if as_json:
        from orchestrator.report_json import dumps, submit_document

        out([dumps(submit_document(job, state.now(), detached=True))])
        return Exit.OK
    how = "started" if started else "already running"
    out(
        [
            f"{job.name} #{job_id} is in the hands of gpujob supervise (process {pid}, {how}).",
            *(f"  gpujob {verb} {job_id}" for verb in ("attach", "status", "cancel")),
        ]
    )
    return Exit.OK


def _in_foreground(
    planned: Plan, state: Opened, parts: Parts, transfers: Transfers, *, as_json: bool
) -> int:
    job_id, code = drive_here(planned, state, parts, transfers, as_json=as_json)
    if as_json:
        from orchestrator.report_json import dumps, submit_document

        job = state.store.job(job_id, now=state.now())
        out([dumps(submit_document(job, state.now(), detached=job.closed_at is None))])
    return code


def drive_here(
    planned: Plan,
    state: Opened,
    parts: Parts,
    transfers: Transfers,
    *,
    as_json: bool,
    judge: Judge | None = None,
) -> tuple[str, int]:
    """Store the job and drive it to its end before the person's eyes; return its id and code.

    judge: says once, while it trains, whether it goes on.
    """
    from orchestrator.clock import WakeableClock
    from orchestrator.drive import Watch, let_go, start_driving, watch
    from orchestrator.report import field_lines
    from orchestrator.signals import Signals
    from orchestrator.submit import store_job
    from orchestrator.supervisor import Supervisor

    stream = sys.stderr if as_json else sys.stdout
    with Signals() as signals, parts.alarms.at_work():  # before anything can be launched
        lease_s = parts.settings.machine_lease_s
        job_id = store_job(planned, state.store, state.home, now=state.now(), lease_s=lease_s)
        supervisor = Supervisor(parts.runner, WakeableClock(), only={job_id})
        driven = start_driving(supervisor, signals.wake)
        one = Watch(
            state=state,
            job_id=job_id,
            stream=stream,
            screen=talk_screen(as_json=as_json),
            signals=signals,
            driven=driven,
            transfer=transfers.newest,
            introduced=True,
            judge=judge,
        )
        hint = "   Ctrl-C detaches or cancels" if one.screen.tty else ""
        one.painter.keep(field_lines("job", f"#{job_id}{hint}", one.screen))
        try:
            code = watch(one)
        except BaseException:  # a fault of ours must not leave the machine without a driver
            let_go(driven, state.home.root)
            raise
    return job_id, code


def attach(word: str) -> int:
    """Show a job until it is over; returns its exit code. Ctrl-C only stops the showing."""
    from orchestrator.drive import Watch, watch
    from orchestrator.signals import Signals

    gc.enable()
    with looked() as state:
        job_id = state.store.find_job(word)
        daemon.see_that_jobs_are_driven(state)
        with Signals() as signals:
            one = Watch(
                state=state,
                job_id=job_id,
                stream=sys.stdout,
                screen=state.screen,
                signals=signals,
            )
            return watch(one)


def cancel(words: list[str], *, all_jobs: bool, detach: bool) -> int:
    """Ask for the end of jobs and wait for the proof; 0 when every machine is proven gone.

    All: the panic button. Machines of ours that no job here knows are ended as well.
    """
    gc.enable()
    if bool(words) == all_jobs:
        raise Refused("name jobs, or give --all", remedy="gpujob ps lists them.")
    with opened() as state:
        if all_jobs:
            ids = [job.id for job in state.store.jobs(now=state.now(), open_only=True)]
        else:
            ids = [state.store.find_job(word) for word in words]
        for job_id in dict.fromkeys(ids):
            asked = state.store.ask_cancel(job_id, now=state.now())
            err(f"#{job_id}: {'asked to end' if asked else 'over, or asked already'}")
        if all_jobs:
            from orchestrator.cli_forget import end_all_unknown

            ids += end_all_unknown(state)
        if not ids:
            out(["no job is open."])
            return Exit.OK
        daemon.see_that_jobs_are_driven(state)
        return Exit.OK if detach else _wait_for_the_end(state, list(dict.fromkeys(ids)))


def _wait_for_the_end(state: Opened, ids: list[str]) -> int:
    """Print each job's two outcomes as it closes. Ctrl-C stops the waiting, not the ending."""
    from orchestrator.drive import LOOK_EVERY_S, is_over
    from orchestrator.report import headline_lines, still_billing_lines
    from orchestrator.signals import Signals
    from orchestrator.states import Teardown

    told: set[str] = set()
    with Signals() as signals:
        while ids:
            now = state.now()
            for job_id in list(ids):
                job = state.store.job(job_id, now=now)
                if is_over(job):
                    ids.remove(job_id)
                    out(headline_lines(job, now, state.screen))
                elif job.teardown is Teardown.STILL_BILLING and job_id not in told:
                    told.add(job_id)
                    out(still_billing_lines([job], now, state.screen))
            if signals.interrupts or signals.ended_by is not None:
                err("stopped waiting; the end goes on.  gpujob ps shows it.")
                billing = Exit.STILL_BILLING if told & set(ids) else Exit.OK
                return worst(Exit.INTERRUPTED, billing)
            if ids:
                signals.wait(LOOK_EVERY_S)
    return Exit.OK


def is_closed(job: JobView) -> bool:
    """Return whether nothing more will happen to the job."""
    return job.closed_at is not None
