"""A job whose GPU ran out of memory, made to need less: the cheapest change that trains the same.

What stays as it is: method, data, length, and the sequences of an optimizer step. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jobs.architectures import ArchitectureError
from jobs.memory import footprint
from jobs.sizing import architecture_of, sizing_of
from jobs.spec import JobSpec
from jobs.throughput import GpuFacts, speed
from jobs.workload import Workload, WorkloadError

# A change must free so much of the predicted peak to be worth a second machine: the estimate's own
# error on the card is 10 % (jobs/memory.py, BANDS).
WORTH_SHARE = 0.10
# The order of two changes hardly depends on the card; an A100-80GB stands for all.
REFERENCE = GpuFacts("A100-80GB", 312, 2039, 600)

Change = tuple[str, dict[str, Any], dict[str, Any]]  # words, keys of Axolotl, fields of a Workload


def adapted(spec: JobSpec) -> tuple[JobSpec, str] | None:
    """Return the job with the cheapest change that frees memory, and the change in words.

    None where none is left that keeps the result: only a larger card helps then.
    """
    changes = list(_changes(spec))
    if not changes:
        return None
    words, keys, _ = _cheapest(spec, changes)
    # The section that gpujob derives from, and Axolotl's own keys, which win over a whole file.
    training = spec.training.model_copy(
        update={
            key: value for key, value in keys.items() if key in type(spec.training).model_fields
        }
    )
    axolotl = spec.axolotl.model_copy(update={"keys": {**spec.axolotl.keys, **keys}})
    return spec.model_copy(update={"training": training, "axolotl": axolotl}), words


def _changes(spec: JobSpec) -> Iterator[Change]:
    t, chosen = spec.training, {**spec.axolotl.base, **spec.axolotl.keys}
    if t.micro_batch_size > 1:
        less = t.micro_batch_size // 2 if t.micro_batch_size % 2 == 0 else 1
        steps = t.micro_batch_size // less * t.gradient_accumulation_steps
        fields = {"micro_batch_size": less, "gradient_accumulation_steps": steps}
        yield f"micro batch {less}, {steps} accumulated", fields, fields
    if not t.gradient_checkpointing:
        on = {"gradient_checkpointing": True}
        yield "gradient checkpointing", on, {"checkpointing": True}
    if "liger" in t.plugins and not chosen.get("liger_fused_linear_cross_entropy"):
        keys = {"liger_fused_linear_cross_entropy": True}
        yield "Liger's fused loss", keys, {"loss_kernel": "liger"}
    if t.gradient_checkpointing and not chosen.get("activation_offloading"):
        keys = {"activation_offloading": True}
        yield "activations offloaded to main memory", keys, {"activation_offload": True}


def _cheapest(spec: JobSpec, changes: list[Change]) -> Change:
    """Return the fastest change that frees enough; else the one that frees most.

    Where the model is not known, the first: halving the micro batch helps whatever binds, but for
    the weights.
    """
    try:
        work = sizing_of(spec, architecture_of(spec)).work
        before = footprint(work).device_gib
        judged = [(change, *_judge(work, change, before)) for change in changes]
    except (ArchitectureError, WorkloadError):
        return changes[0]
    enough = [entry for entry in judged if entry[1] >= WORTH_SHARE * before]
    if enough:
        return min(enough, key=lambda entry: entry[2])[0]
    return max(judged, key=lambda entry: entry[1])[0]


def _judge(work: Workload, change: Change, before: float) -> tuple[float, float]:
    """Return the GiB that a change frees, and the seconds that a token then costs."""
    _, _, fields = change
    after = replace(work, **fields)
    # Offloading is not in the speed model: moving every checkpoint over PCIe twice comes last.
    slow = 2.0 if after.activation_offload and not work.activation_offload else 1.0
    return before - footprint(after).device_gib, slow / speed(after, REFERENCE).tokens_per_s
