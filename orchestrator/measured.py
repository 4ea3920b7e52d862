"""What probes measured, kept for later plans: one JSON line a point in `measured.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.workload import Workload

FILE = "measured.jsonl"  # in the home


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One probe: tokens per second of the whole machine, GiB on the fullest GPU (None: no GPU)."""

    at: float
    key: str  # of the configuration
    gpu: str
    gpu_count: int
    tokens_per_s: float
    peak_gib: float | None
    steps: int


def key_of(work: Workload) -> str:
    """Return what two runs must have in common for one to foretell the other's speed."""
    arch = work.architecture
    parts = (
        arch.name, arch.layers, arch.hidden, arch.vocab, work.method, work.quantised,
        work.lora_rank if work.method != "full" else 0, "".join(sorted(work.lora_targets)),
        work.sequence_len, work.micro_batch_size, work.gradient_accumulation_steps,
        work.optimizer, work.checkpointing, work.activation_offload, work.attention,
        work.loss_kernel, work.fused_kernels, work.packing,
    )  # fmt: skip
    return "|".join(str(part) for part in parts)


def read(home: Path) -> tuple[MeasuredPoint, ...]:
    """Return all points, oldest first; lines that are none are passed over."""
    try:
        text = (home / FILE).read_text(encoding="utf-8")
    except OSError:
        return ()
    found = []
    for line in text.splitlines():
        try:
            found.append(MeasuredPoint(**json.loads(line)))
        except (ValueError, TypeError):
            continue  # cut off by a crash, or another release's
    return tuple(found)


def keep(home: Path, point: MeasuredPoint) -> None:
    """Add one point, in one write."""
    with (home / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(point)) + "\n")


def speeds(points: Sequence[MeasuredPoint], work: Workload) -> dict[tuple[str, int], float]:
    """Return (card, GPUs) -> tokens per second of this very configuration; the newest counts."""
    key = key_of(work)
    return {(p.gpu, p.gpu_count): p.tokens_per_s for p in points if p.key == key}
