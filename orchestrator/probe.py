"""A short run of the real configuration, to measure what a plan only forecasts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.spec import JobSpec

NAME_CHARS = 56  # of the job's name; "-probe" follows, and 63 is the most
MIB_PER_GIB = 1024.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a probe may take: optimizer steps, and minutes and dollars at the most for each GPU."""

    steps: int = 30
    minutes: float = 20.0
    usd: Decimal = Decimal(2)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe met. step_s: without the first step, which also loads kernels."""

    steps: int
    step_s: float | None
    tokens_per_s: float | None
    peak_gib: float | None


def probe_spec(spec: JobSpec, terms: Terms, gpu: str | None) -> JobSpec:
    """Return the job cut down to a probe: so many steps, the longest batch first, no evaluation."""
    longest = {} if spec.training.packing else {"group_by_length": True}
    # Packed batches are full from the first on; transformers puts the longest group first.
    keys = {**spec.axolotl.keys, **longest, "max_steps": terms.steps, "val_set_size": 0}
    keys.pop("num_epochs", None)
    changes: dict[str, Any] = {
        "name": f"{spec.name[:NAME_CHARS]}-probe",
        "training": spec.training.model_copy(update={"max_steps": terms.steps, "epochs": None}),
        "axolotl": spec.axolotl.model_copy(update={"keys": keys}),
        "data": spec.data.model_copy(update={"validation": 0.0}),
        "limits": spec.limits.model_copy(
            update={"hours": terms.minutes / 60, "budget_usd": terms.usd}
        ),
        "checkpoints": spec.checkpoints.model_copy(update={"every_steps": terms.steps}),
        "output": (str(spec.output_folder / "probe"),),
    }
    return on_card(spec.model_copy(update=changes), gpu)


def on_card(spec: JobSpec, gpu: str | None) -> JobSpec:
    """Return the job for this card alone; as it is for None."""
    if gpu is None:
        return spec
    return spec.model_copy(update={"gpu": spec.gpu.model_copy(update={"types": (gpu,)})})


def measured(lines: Iterable[str], tokens_per_step: float | None) -> Measured:
    """Return what the lines of a `metrics.jsonl` tell.

    tokens_per_step: that the whole machine computes in an optimizer step, padding included. The
    trainer's own figure counts the answers' tokens only.
    """
    moments: list[tuple[int, float]] = []
    peak = 0.0
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line may be cut off
        if event.get("event") == "gpu":
            used = [gpu.get("memory_used_mib") or 0.0 for gpu in event.get("gpus") or []]
            peak = max([peak, *used])
        elif event.get("event") == "log" and "loss" in event:
            moments.append((int(event["step"]), float(event["at"])))
    paces = [
        (after - before) / (later - step)
        for (step, before), (later, after) in pairwise(moments)
        if later > step
    ]
    step_s = median(paces) if paces else None
    rate = tokens_per_step / step_s if step_s and tokens_per_step else None
    steps = moments[-1][0] if moments else 0
    return Measured(steps, step_s, rate, peak / MIB_PER_GIB if peak else None)
