"""`gpujob rehearse`: see how gpujob meets a failure, without paying for one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Exit, Refused
from orchestrator.opened import out

if TYPE_CHECKING:
    from orchestrator.views import JobView

# Told by others around them, and many.
QUIET = frozenset({"StartAsked", "AbsenceRead", "EndpointSeen", "StepDone", "LaunchAsked"})


def scenes() -> int:
    """Print what can go wrong; exit 0."""
    from orchestrator.rehearsal import scenes_text

    out(scenes_text())
    return Exit.OK


def rehearse(job_file: Path, *, fault: str, changes: list[str]) -> int:
    """Play the job through against a made-up cloud; the exit code is the one that it would have.

    Nothing is rented, and all of its state is in a folder that is removed at the end.
    """
    import os

    from orchestrator import submit
    from orchestrator.clock import SystemClock
    from orchestrator.home import open_home
    from orchestrator.rehearsal import SCENES, play, stage_of
    from orchestrator.report import status_lines
    from orchestrator.report_text import screen_of
    from orchestrator.store import Store

    if fault not in SCENES:
        names = ", ".join(SCENES)
        raise Refused(f"no failure {fault!r} to rehearse", remedy=f"One of: {names}.")
    loaded = submit.read_job(job_file, [*changes, "gpu.providers=[fake]"])
    stage = stage_of(fault, SystemClock().now())
    planned = submit.look(loaded, {"fake": stage.provider})
    if not planned.matching.quotes:
        raise Refused(
            "none of the rehearsal's cards fits this job: RTX4090, A6000, A100-80GB, H100-80GB",
            remedy="Rehearse with --set gpu.types=[] --set gpu.count=1.",
            code=Exit.NO_OFFER,
        )
    out([f"rehearsal: {SCENES[fault].what}. Nothing is rented; the times are made up.", ""])
    with tempfile.TemporaryDirectory(prefix="gpujob-rehearsal-") as folder:
        home = open_home(Path(folder))
        store = Store.open(home.database_url)
        try:
            job = play(stage, planned, store, home, _tell)
            screen = screen_of(sys.stdout, os.environ)
            out(["", *status_lines(job, stage.clock.now(), screen)])
        finally:
            store.close()
    return _code(job)


def _tell(since_s: float, event: Any) -> None:
    from jobs.plain import harmless
    from orchestrator import codec
    from orchestrator.event_words import words_of
    from orchestrator.report_text import duration

    name = type(event).__name__
    if name not in QUIET:
        text = words_of(name, codec.encode(event))
        out([f"{duration(since_s):>8}  {harmless(text)}"])


def _code(job: JobView) -> int:
    return job.exit_code if job.exit_code is not None else Exit.NOT_FINISHED
