"""`gpujob forget`, and the panic button of `gpujob cancel --all`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, opened, out

if TYPE_CHECKING:
    from orchestrator.forget import Unproven
    from orchestrator.opened import Opened


def forget(word: str, *, yes: bool) -> int:
    """Name what may go on billing, ask, and leave it to its owner; 0 when that was done."""
    from orchestrator.compose import compose
    from orchestrator.forget import forget as leave_to_owner
    from orchestrator.forget import unproven

    with opened() as state:
        job_id = state.store.find_job(word)
        _, attempts = state.store.load(job_id)
        left = unproven(attempts)
        if not left:
            raise Refused(
                f"#{job_id}: nothing of it may go on billing, so there is nothing to forget",
                remedy=f"gpujob rm {job_id} takes a closed job off the list.",
            )
        out(_named(job_id, left))
        if not yes:
            _ask()
        if not leave_to_owner(compose(state).runner, job_id):
            raise Refused(
                f"#{job_id}: another process took it meanwhile", remedy="Try again.", launched=True
            )
        out([f"#{job_id} is forgotten: its machine is yours to close, and counted until you do."])
    return Exit.OK


def _named(job_id: str, left: list[Unproven]) -> list[str]:
    """Return the lines that say what may cost money from now on, and how much."""
    lines = [f"#{job_id}: gpujob will not try any more to end, and no layer of it will:"]
    for one in left:
        name = one.instance_id or "a machine whose launch was never answered"
        day = one.usd_per_hour * 24
        lines.append(
            f"  {name} at {one.provider}, named {one.label}: "
            f"${one.usd_per_hour:.2f}/h, ${day:.2f} a day until you end it there yourself"
        )
    return lines


def _ask() -> None:
    if not sys.stdin.isatty():
        raise Refused(
            "there is no terminal to ask on", remedy="--yes agrees beforehand.", launched=True
        )
    sys.stdout.write("  Forget it?   [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("not agreed: gpujob goes on trying.", code=Exit.INTERRUPTED, launched=True)


def end_all_unknown(state: Opened) -> list[str]:
    """Return the ids of jobs to wait for: every machine of ours without a job is being ended.

    What bears another's stamp, or none, is reported and left alone.
    """
    from orchestrator.compose import compose
    from orchestrator.sweep import sweep

    report = sweep(compose(state).runner, unknown="end")
    for found in report.findings:
        err(f"{found.provider}: {found.instance_id or ''} {found.label}: {found.text}")
    return report.jobs
