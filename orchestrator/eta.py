"""How long a running training still takes, with a band: the plan, corrected by its own steps.

Pure. Before its first steps only the plan is known; after some twenty it hardly counts any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jobs.throughput import Forecast, Remaining, remaining

# What a training is taken to spread by where no plan is known: the widest band of a plan.
UNPLANNED = "no points"


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan's seconds of one optimizer step, and how far it is to be trusted."""

    step_s: float
    confidence: str


def planned_of(
    spec: dict[str, Any], gpu: str, gpu_count: int, vram_gib: float, configs: Path | None = None
) -> Planned | None:
    """Return what the plan says of one step on this card; None where it says nothing.

    configs: as in `architecture_of`. Without packing the length of a batch depends on the data,
    which is not read again for this.
    """
    from pydantic import ValidationError

    from jobs.spec import JobSpec
    from orchestrator.planning import need_of
    from orchestrator.sized import Fit

    try:
        job = JobSpec.model_validate(spec)
    except ValidationError:  # a job of another release
        return None
    if not job.training.packing or gpu_count < 1:
        return None
    sized = need_of(job, with_tokens=False, configs=configs).requirement.sized
    fit = sized.fit(gpu, gpu_count, vram_gib) if sized is not None else None
    if not isinstance(fit, Fit) or not fit.tokens_per_s:
        return None
    work = fit.work
    tokens = work.tokens * work.gradient_accumulation_steps * work.gpus
    return Planned(tokens / fit.tokens_per_s, fit.confidence)


def left_of(
    points: Sequence[tuple[float, int]], step: int, max_steps: int, planned: Planned | None
) -> Remaining | None:
    """Return the seconds that the steps left take, with an 80 % band; None while nothing is known.

    points: (moment, step) as they were seen. The first pace is discarded: it loads kernels.
    """
    paces = [
        (then - now) / (later - earlier)
        for (now, earlier), (then, later) in pairwise(points)
        if later > earlier and then > now
    ]
    if planned is None:
        if not paces:
            return None
        planned = Planned(sum(paces) / len(paces), UNPLANNED)
    if len(paces) == 1:
        paces *= 2  # the only one there is counts after all
    whole = Forecast(
        tokens=max_steps,
        tokens_per_s=1 / planned.step_s,
        training_h=0.0,
        hours=0.0,
        low_h=0.0,
        high_h=0.0,
        confidence=planned.confidence,
    )
    found = remaining(whole, step, paces, 1)
    # To the millisecond: 779.9999 s would be shown as a second less than 780.
    return Remaining(
        round(found.seconds, 3), round(found.low_s, 3), round(found.high_s, 3), found.tokens_per_s
    )
