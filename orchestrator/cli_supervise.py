"""`gpujob supervise`: the daemon in the foreground of its process, and as an installed service."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import daemon
from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, opened, out

if TYPE_CHECKING:
    from orchestrator.compose import Parts
    from orchestrator.opened import Opened
    from orchestrator.signals import Signals


def supervise(*, until_idle: bool, metrics: str | None) -> int:
    """Drive all open jobs until told to stop (TERM, Ctrl-C), or until none is open."""
    from orchestrator.signals import Signals

    gc.enable()
    if metrics is not None:
        from orchestrator.telemetry import address

        address(metrics)  # before anything else: a slip is said at once
    with opened() as state, Signals() as signals:
        try:
            while True:
                with daemon.single(state.home.root):
                    _drive(state, signals, until_idle=until_idle, metrics=metrics)
                # Now that the lock is free, a job stored while we were leaving is ours to see.
                if told_to_stop(signals) or not state.store.jobs(now=state.now(), open_only=True):
                    return Exit.OK
        except daemon.AlreadyRunning as running:
            raise Refused(str(running), remedy="One for each GPUJOB_HOME is enough.") from None


def _drive(state: Opened, signals: Signals, *, until_idle: bool, metrics: str | None) -> None:
    from orchestrator.clock import WakeableClock
    from orchestrator.drive import start_driving
    from orchestrator.supervisor import Supervisor

    with ExitStack() as stack:
        parts = _composed(state, metrics, stack)
        stack.enter_context(parts.alarms.at_work())
        supervisor = Supervisor(parts.runner, WakeableClock(), forever=not until_idle)
        err(f"supervising {state.home.root}")
        driven = start_driving(supervisor, signals.wake)
        while driven.thread.is_alive() and not told_to_stop(signals):
            signals.wait(1.0)
        supervisor.detach()
        driven.thread.join()
        if driven.failure:
            raise driven.failure[0]


def _composed(state: Opened, metrics: str | None, stack: ExitStack) -> Parts:
    """Return the parts, with their calls counted and served where that is asked for."""
    from orchestrator.compose import compose

    if metrics is None:
        return compose(state)
    from orchestrator.telemetry import Calls, served

    calls = Calls()
    parts = compose(state, calls=calls)
    limits = parts.runner.limits
    port = stack.enter_context(served(metrics, state.store, state.clock, calls, limits))
    err(f"metrics at http://{metrics.rpartition(':')[0]}:{port}/metrics")
    return parts


def told_to_stop(signals: Signals) -> bool:
    """Return whether Ctrl-C or TERM came."""
    return bool(signals.interrupts or signals.ended_by is not None)


def install() -> int:
    """Write the service of this home and start it; says what it will not see."""
    from orchestrator import service
    from orchestrator.locate import environment

    with _place() as (home, file):
        folder = Path.cwd()
        it = service.service(home, folder, os.environ)
        out(service.install(it, file, platform=sys.platform))
        only_here = service.left_out(os.environ, environment({}, folder))
        if only_here:
            err(
                f"the service will not see {', '.join(only_here)}: set in this shell only. "
                f"Put them into {folder / '.env'} (chmod 600), then install again."
            )
    return Exit.OK


def uninstall() -> int:
    """Stop the service and take its file away."""
    from orchestrator import service

    with _place() as (_, file):
        out(service.uninstall(file, platform=sys.platform))
    return Exit.OK


@contextmanager
def _place() -> Iterator[tuple[Path, Path]]:
    """Yield the home and the service's file; turns what fails into a refusal."""
    from orchestrator import service

    with opened() as state:
        file = service.place(sys.platform, Path.home(), os.environ)
        try:
            yield state.home.root, file
        except service.NotInstalled as error:
            raise Refused(str(error)) from None
