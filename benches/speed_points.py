"""Reads a throughput file's rows as workloads and cards."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from benches.points import accumulation, stack_of
from jobs.architectures import ArchitectureError, find
from jobs.throughput import GpuFacts
from jobs.workload import QUANT_BYTES, Workload

GPUS = Path(__file__).parents[1] / "tests" / "cases" / "points" / "gpus.csv"


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """One measured row: tokens a second on one GPU."""

    id: str
    source: str
    work: Workload
    gpu: GpuFacts
    measured: float
    groups: frozenset[str]


def cards(path: Path = GPUS) -> dict[str, GpuFacts]:
    """Return the cards of a table by lower-case name."""
    found = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["name"].lower().replace(" ", "")] = GpuFacts(
                row["name"],
                float(row["bf16_dense_tflops"]),
                float(row["mem_bw_gbs"]),
                float(row["nvlink_gbs"]),
            )
    # Cards met in points and not in the table: vendor figures, dense bf16 with fp32 accumulation.
    found.setdefault("rtx4080", GpuFacts("RTX4080", 97.5, 717, 0))
    found.setdefault("rtx3080", GpuFacts("RTX3080", 59.5, 760, 0))
    found.setdefault("rtx3060", GpuFacts("RTX3060", 25.6, 360, 0))
    return found


def card(name: str, known: dict[str, GpuFacts]) -> GpuFacts:
    """Return the card that a row's words mean; raises ValueError."""
    key = name.lower().replace(" ", "").replace("_", "-")
    for prefix in ("nvidia", "geforce"):
        key = key.removeprefix(prefix).removeprefix("-")
    if key in known:
        return known[key]
    bare = re.sub(r"[^a-z0-9]", "", key)
    for other, facts in known.items():
        plain = re.sub(r"[^a-z0-9]", "", other)
        if plain.startswith(bare) or bare.startswith(plain):
            return facts
    message = f"gpu {name!r} is in no table"
    raise ValueError(message)


def rows(path: Path) -> Iterable[dict[str, str]]:
    """Yield the rows whose `usable` is 1."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get("usable", "1") == "1":
                yield row


def workload(row: dict[str, str]) -> Workload:
    """Return the row as a Workload; raises ArchitectureError or ValueError."""
    parallel = (row.get("parallel") or "none").lower()
    gpus = int(float(row["n_gpus"] or 1))
    strategy = "fsdp" if "fsdp" in parallel else parallel
    if strategy not in {"none", "ddp", "zero1", "zero2", "zero3", "fsdp"}:
        strategy = "none" if gpus == 1 else "ddp"
    method = row["method"]
    quant = row.get("quant") or None
    if quant and quant not in QUANT_BYTES:
        quant = "nf4" if "4" in quant else "int8"
    return Workload(
        replace(find(row["model"]), max_positions=None),
        method=method,
        quant=None if method == "full" else quant,
        sequence_len=int(float(row["seq_len"] or 2048)),
        micro_batch_size=int(float(row["micro_batch"] or 1)),
        gradient_accumulation_steps=accumulation(row),
        checkpointing=row.get("grad_ckpt", "1") not in {"0", "", "False"},
        attention="sdpa",
        fused_kernels=row.get("kernels", "") == "fused",
        kbit_fp32="baseline-peft" in row.get("notes", "") and gpus == 1,
        packing=False,
        gpus=gpus,
        strategy=strategy if gpus > 1 or strategy.startswith("zero") else "none",
        stack=stack_of(row),
    )


def points(path: Path) -> tuple[list[SpeedPoint], list[str]]:
    """Return the usable rows as points, and one line for each row that could not be read."""
    known = cards()
    found: list[SpeedPoint] = []
    skipped: list[str] = []
    for row in rows(path):
        try:
            work = workload(row)
            gpu = card(row["gpu"], known)
            measured = float(row["tokens_s_per_gpu"])
        except (ArchitectureError, ValueError) as exc:
            skipped.append(f"{row.get('id', '?')}: {exc}")
            continue
        names = {"all", work.method, "single_gpu" if work.gpus == 1 else "multi_gpu"}
        found.append(SpeedPoint(row["id"], row["source"], work, gpu, measured, frozenset(names)))
    return found, skipped
