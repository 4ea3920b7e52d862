"""Watching one job to its end: the live screen, Ctrl-C, and letting go. Used by submit and attach.

A foreground `submit` also drives the job: its supervisor runs in a thread beside, and this loop
only reads the store. So what is shown is always what is written.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator import daemon
from orchestrator.curve import CurveReader
from orchestrator.eta import Planned, planned_of
from orchestrator.exits import Exit, worst
from orchestrator.opened import err
from orchestrator.paint import Painter
from orchestrator.report_live import (
    Curve,
    Live,
    Transfer,
    closing_lines,
    live_lines,
    opening_lines,
    plain_lines,
)
from orchestrator.report_text import Screen, screen_of
from orchestrator.shapes import CONFIGS
from orchestrator.signals import Signals
from orchestrator.states import Reason, Teardown
from providers.gpus import lookup

if TYPE_CHECKING:
    from orchestrator.opened import Looked
    from orchestrator.supervisor import Supervisor
    from orchestrator.views import JobView

LOOK_EVERY_S = 0.5  # the screen is as fresh as a person can see; the store is asked twice a second
LET_GO_S = 15.0  # how long a supervisor may take to reach a safe point when it lets go


@dataclass
class Driven:
    """The supervisor in its thread; `failure` is what ended it, if not its work."""

    supervisor: Supervisor
    thread: threading.Thread
    failure: list[BaseException] = field(default_factory=list)


#: What to say, and whether the job goes on; None: nothing to say yet.
Judge = Callable[[Live], "tuple[list[str], bool] | None"]


@dataclass
class Watch:
    """One job on one screen. `driven` is None where another process drives it (attach)."""

    state: Looked
    job_id: str
    stream: TextIO
    screen: Screen
    signals: Signals
    driven: Driven | None = None
    transfer: Callable[[], Transfer | None] = lambda: None
    introduced: bool = False  # whether the screen says already what is rented where
    judge: Judge | None = None  # asked at every look, until it has said once what it thinks
    painter: Painter = field(init=False)
    cancelled: bool = False
    _curves: dict[int, CurveReader] = field(default_factory=dict)
    _plans: dict[int, Planned | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the painter of the stream."""
        self.painter = Painter(self.stream, self.screen)


def start_driving(supervisor: Supervisor, on_end: Callable[[], None]) -> Driven:
    """Run a supervisor in a thread of its own; `on_end` is called there when it is over."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            failure.append(error)
        finally:
            on_end()

    thread = threading.Thread(target=run, name="supervisor", daemon=True)
    thread.start()
    return Driven(supervisor, thread, failure)


def watch(one: Watch) -> int:
    """Show the job until it is over or let go; returns the exit code of the command."""
    before: Live | None = None
    while True:
        _fit(one)
        live = _look(one)
        if not one.introduced and live.job.attempts:
            one.painter.keep(opening_lines(live.job, one.screen))
            one.introduced = True
        _show(one, before, live)
        before = live
        if is_over(live.job):
            return _close(one, live)
        if one.driven is not None and not one.driven.thread.is_alive():
            if one.driven.failure:
                raise one.driven.failure[0]  # what called us sees to it that the job is driven
            one.driven = None  # another process took it over: go on watching
        _hear_judge(one, live)
        code = _heed(one, live)
        if code is not None:
            return code
        one.signals.wait(LOOK_EVERY_S)


def _hear_judge(one: Watch, live: Live) -> None:
    """Say what the judge thinks, once it does, and end the job where it says so."""
    verdict = None if one.judge is None or one.cancelled else one.judge(live)
    if verdict is None:
        return
    lines, goes_on = verdict
    one.judge = None
    one.painter.keep(lines)
    if not goes_on:
        _cancel(one)


def _fit(one: Watch) -> None:
    """Follow the window's size."""
    if one.screen.tty:
        one.screen = screen_of(one.stream, os.environ)
        one.painter.fit(one.screen)


def _look(one: Watch) -> Live:
    now = one.state.now()
    job = one.state.store.job(one.job_id, now=now)
    curve = Curve()
    if job.attempts:
        number = job.attempts[-1].number
        if number not in one._curves:  # noqa: SLF001 - the readers live with their watch
            path = one.state.home.log_path(job.id, number, "metrics.jsonl")
            one._curves[number] = CurveReader(path)  # noqa: SLF001
        curve = one._curves[number].read()  # noqa: SLF001
    return Live(job, now, curve, one.transfer(), _planned(one, job))


def _planned(one: Watch, job: JobView) -> Planned | None:
    """Return what the plan says of a step on the newest attempt's card; asked once an attempt."""
    if not job.attempts:
        return None
    attempt = job.attempts[-1]
    known = one._plans  # noqa: SLF001 - as the curves
    if attempt.number not in known:
        facts = lookup(attempt.gpu)
        known[attempt.number] = planned_of(
            job.spec,
            attempt.gpu,
            attempt.gpu_count,
            facts.vram_gib if facts else 0.0,
            one.state.home.root / CONFIGS,
        )
    return known[attempt.number]


def _show(one: Watch, before: Live | None, live: Live) -> None:
    if one.screen.tty:
        one.painter.paint(live_lines(live, one.screen))
    else:
        lines = plain_lines(before, live, one.screen)
        if lines:
            one.painter.keep(lines)


def is_over(job: JobView) -> bool:
    """Return whether nothing more will happen to the job: closed, and no machine left to end."""
    return job.closed_at is not None and job.teardown not in (
        Teardown.STILL_BILLING,
        Teardown.STOPPING,
    )


def _close(one: Watch, live: Live) -> int:
    """Show the end, wait for the supervisor's thread, and return the job's code."""
    if one.driven is not None:
        one.driven.thread.join(LET_GO_S)
    if one.screen.tty:
        one.painter.settle()
    files = _files_home(one, live.job)
    one.painter.keep(["", *closing_lines(live.job, files, live.now, one.screen)])
    return int(live.job.exit_code or Exit.OK)


def _files_home(one: Watch, job: JobView) -> int | None:
    """Return how many files came home, as the journal says; None where it does not."""
    for entry in reversed(one.state.store.events(job.id)):
        files = getattr(entry.event, "files", None)
        if files is not None:
            return len(files)
    return None


def _heed(one: Watch, live: Live) -> int | None:
    """Act on signals that came; returns an exit code where the command ends now."""
    signals = one.signals
    if signals.ended_by is not None:
        return _ended(one, live)
    if not signals.interrupts:
        return None
    signals.interrupts = 0
    if one.driven is None:
        one.painter.settle()
        err(f"stopped watching; the job goes on.  gpujob attach {one.job_id}")
        return int(Exit.INTERRUPTED)
    if one.cancelled:
        return _hand_over(one, "its end is now in the hands of", code=Exit.INTERRUPTED)
    if one.screen.tty and sys.stdin.isatty():
        return _ask(one)
    _cancel(one)
    return None


def _ask(one: Watch) -> int | None:
    """Ask what Ctrl-C meant; a second Ctrl-C means cancel."""
    one.painter.clear()
    one.signals.asking = True
    answer = ""
    try:
        question = "  [d]etach: the job goes on   [c]ancel: end the machine   [Enter]: go on  ? "
        one.stream.write(one.screen.accent(question))
        one.stream.flush()
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        one.stream.write("\n")
        answer = "c"
    except OSError:
        answer = "c"
    finally:
        one.signals.asking = False
        one.signals.interrupts = 0
    if one.signals.ended_by is not None:
        return None  # a TERM or HUP came while the question was open: the loop heeds it next
    if answer.startswith("d"):
        return _hand_over(one, "goes on under", code=Exit.OK)
    if answer.startswith("c"):
        _cancel(one)
    return None


def _cancel(one: Watch) -> None:
    if one.driven is not None and not one.cancelled:
        one.cancelled = True
        one.driven.supervisor.request_cancel(one.job_id, reason=Reason.INTERRUPTED)
        one.painter.keep(["  cancel    asked; waiting for the proof that the machine is gone"])


def _ended(one: Watch, live: Live) -> int | None:
    """TERM or HUP: let go of an armed job, cancel another one."""
    number = one.signals.ended_by
    name = signal.Signals(number).name if number is not None else "a signal"
    if one.driven is None:
        return int(Exit.INTERRUPTED)
    if one.cancelled or one.driven.supervisor.armed(one.job_id) or _started(live.job):
        return _hand_over(one, f"{name}: goes on under", code=Exit.INTERRUPTED)
    one.signals.ended_by = None
    err(f"{name} before the training was started: cancelling")
    _cancel(one)
    return None


def _started(job: JobView) -> bool:
    """Return whether the trainer was started, whoever drives the job."""
    return bool(job.attempts) and job.attempts[-1].trainer_started_at is not None


def let_go(driven: Driven | None, home: Path) -> int:
    """Have the supervisor let go at a safe point, see that a daemon goes on; returns its pid."""
    if driven is not None:
        driven.supervisor.detach()
        driven.thread.join(LET_GO_S)
    return daemon.ensure(home)[0]


def _hand_over(one: Watch, words: str, *, code: Exit) -> int:
    """Let go of the job, and say who drives it now and how to come back."""
    pid = let_go(one.driven, one.state.home.root)
    one.painter.settle()
    job = one.state.store.job(one.job_id, now=one.state.now())
    text = f"{job.name} #{job.id} {words} gpujob supervise (process {pid})."
    one.painter.keep([text, *(f"  gpujob {verb} {job.id}" for verb in ("attach", "cancel"))])
    billing = Exit.STILL_BILLING if job.teardown is Teardown.STILL_BILLING else Exit.OK
    return int(worst(code, billing))
