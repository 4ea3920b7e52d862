"""When a running job will be done and what it will have cost: its plan, corrected by its steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.throughput import Remaining
from orchestrator.states import State

if TYPE_CHECKING:
    from orchestrator.eta import Planned
    from orchestrator.views import JobView

TAIL_BYTES = 1 << 18  # of the metrics file: some 500 records, more than the pace is taken from
PACE_POINTS = 30  # newest progress points that the pace is taken from: old ones know another speed


@dataclass(frozen=True, slots=True)
class Finish:
    """What is left of the training, and the whole job's cost at its end, each with an 80 % band.

    steps: of the job's own that corrected the plan.
    """

    left: Remaining
    usd: Decimal
    low_usd: Decimal
    high_usd: Decimal
    steps: int


def costs_at_end(job: JobView, left: Remaining) -> tuple[Decimal, Decimal, Decimal]:
    """Return what the job will have cost when the training ends: expected, low, high."""
    each = job.attempts[-1].price_usd_per_hour / 3600
    low, high = (job.cost_usd + each * int(s) for s in (left.low_s, left.high_s))
    return job.cost_usd + each * int(left.seconds), low, high


def points_in(lines: Iterable[bytes]) -> tuple[tuple[float, int], ...]:
    """Return (moment, step) of the newest records of a metrics file; what is no record is left."""
    found: list[tuple[float, int]] = []
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] in ("log", "train_begin"):
                found.append((float(event["at"]), int(event["step"])))
        except (ValueError, TypeError, KeyError):
            continue
    return tuple(found[-PACE_POINTS:])


def finish_of(
    job: JobView, points: tuple[tuple[float, int], ...], planned: Planned | None
) -> Finish | None:
    """Return the finish of a job that trains; None for any other, or where nothing is known."""
    from orchestrator.eta import left_of

    attempt = job.attempts[-1] if job.attempts else None
    if attempt is None or job.state is not State.RUNNING:
        return None
    if attempt.step is None or not attempt.max_steps:
        return None
    left = left_of(points, attempt.step, attempt.max_steps, planned)
    if left is None:
        return None
    return Finish(left, *costs_at_end(job, left), max(0, len(points) - 1))


def finish_at_home(job: JobView, metrics: Path, configs: Path) -> Finish | None:
    """Return the same from a job's `metrics.jsonl` at home. Reads the file's end.

    configs: as in `architecture_of`.
    """
    from orchestrator.eta import planned_of
    from providers.gpus import lookup

    if job.state is not State.RUNNING or not job.attempts:
        return None
    attempt, facts = job.attempts[-1], lookup(job.attempts[-1].gpu)
    memory = facts.vram_gib if facts else 0.0
    planned = planned_of(job.spec, attempt.gpu, attempt.gpu_count, memory, configs)
    return finish_of(job, points_in(_tail(metrics)), planned)


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().splitlines()
    except OSError:
        return []
