"""Reads a point file's rows as workloads; the only place that knows other labs' words."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.architectures import ArchitectureError, find
from jobs.workload import OPTIMIZER_ALIASES, OPTIMIZERS, QUANT_BYTES, Workload, check

LETTERS = {"q": "q", "k": "k", "v": "v", "o": "o"}
WORDS = {
    "all": "q k v o gate up down",
    "all-linear": "q k v o gate up down",
    "mlp": "gate up down",
    "head": "head",
    "gate": "gate",
    "up": "up",
    "down": "down",
}
# A card's own total, GiB: reserved memory cannot pass it.
CARD_GIB = {
    "A100-80GB": 79.3,
    "H100-80GB": 79.6,
    "A100-40GB": 39.4,
    "A6000": 47.5,
    "L40S": 44.5,
    "A10G-24GB": 22.2,
    "RTX4090": 23.6,
    "RTX3090": 23.6,
}
SWIFT_LENGTH_EXPONENT = 0.68  # fitted on 6 rows of three Qwen models at 4096 and 8192


@dataclass(frozen=True, slots=True)
class Point:
    """One measured row: what ran, what was measured, and in which groups it counts."""

    id: str
    source: str
    framework: str
    metric: str
    work: Workload
    measured: float
    groups: frozenset[str]


def read(path: Path) -> Iterable[dict[str, str]]:
    """Yield the rows of a point file whose `usable` is 1."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get("usable", "1") == "1":
                yield row


def targets(text: str) -> frozenset[str]:
    """Return the adapter targets that a file's shorthand names: qkvo, all+head, qvo+mlp."""
    found: set[str] = set()
    for part in re.split(r"[+, ]+", text.strip().lower()):
        if part in WORDS:
            found.update(WORDS[part].split())
        elif part and set(part) <= set(LETTERS):
            found.update(part)
        else:
            for word in re.findall(r"gate|up|down", part):
                found.add(word)
    return frozenset(found) or frozenset(("q", "v"))


def stack_of(row: dict[str, str]) -> str:
    """Return the program that ran, as `jobs.memory_activations.STACKS` calls it."""
    name = (row.get("framework", "") + " " + row.get("source", "")).lower()
    for word, stack in (
        ("fms", "fms"),
        ("foundation-model-stack", "fms"),
        ("litgpt", "litgpt"),
        ("torchtune", "torchtune"),
        ("swift", "swift"),
        ("qwen finetune", "qwen_remote"),
        ("qwenlm/qwen", "qwen_remote"),
        ("unsloth", "unsloth"),
        ("axolotl", "axolotl"),
    ):
        if word in name:
            return stack
    return "hf"


def loss_of(row: dict[str, str], stack: str) -> str:
    """Return the loss kernel, with the version of the stack taken into account."""
    ce = row.get("ce_impl", "").lower()
    if ce == "foak":
        # The liger and granite runs came with a newer plugin that drops the bf16 logits.
        newer = "liger" in row["source"] or "granite" in row["source"]
        return "foak" if newer else "foak_legacy"
    if stack in {"litgpt", "swift", "qwen_remote"}:
        return stack
    if "liger" in ce or ce == "fused":
        return "liger"
    if ce == "cce":
        return "cce"
    if ce in {"chunked", "chunked_out"}:
        return "chunked"
    if stack == "torchtune":
        return "tune_full"
    if ce == "hf_old":
        return "hf_old"
    return "fp32_head" if row.get("residual_bytes") == "4" and stack == "hf" else "hf"


def attention_of(row: dict[str, str], stack: str) -> str:
    """Return the attention that ran; ms-swift v1 switched flash attention on for Qwen only."""
    if stack == "swift" and not row["model"].lower().startswith("qwen"):
        return "eager"
    return {"fa2": "flash", "eager": "eager"}.get(row.get("attn", ""), "sdpa")


def longest(row: dict[str, str], stack: str, length: int) -> int:
    """Return the longest example met: unstated for ms-swift, whose set rarely fills its maximum."""
    if stack == "swift" and length > 2048 and row["model"].lower().startswith("qwen"):
        share: float = (length / 2048) ** SWIFT_LENGTH_EXPONENT
        return round(2048 * share)
    return length


def accumulation(row: dict[str, str]) -> int:
    """Return the gradient accumulation that the row or its notes state, else 1."""
    for key in ("grad_accum", "gradient_accumulation_steps"):
        stated: str = row.get(key) or ""
        if stated.isdigit():
            return int(stated)
    found = re.search(r"grad\w*[ _-]*accum\w*[ _=:x-]*(\d+)", row.get("notes", ""), re.IGNORECASE)
    return int(found.group(1)) if found else 1


def strategy_of(words: str, gpus: int) -> str:
    """Return the strategy that a file's `parallel` column means."""
    words = words.lower().replace("-", "").replace("_", "")
    if gpus == 1:
        return "none"
    for known in ("zero1", "zero2", "zero3", "fsdp"):
        if known in words:
            return known
    return "ddp"


def optimizer_of(words: str) -> str:
    """Return the optimizer that a file's words mean, AdamW where they say nothing else."""
    name = words.split("+", maxsplit=1)[0].strip().lower()
    if name in OPTIMIZERS or name in OPTIMIZER_ALIASES:
        return name
    for word, known in (
        ("paged", "paged_adamw_8bit" if "8" in name else "paged_adamw_32bit"),
        ("8bit", "adamw_8bit"),
        ("adafactor", "adafactor"),
        ("lion", "lion_32bit"),
        ("sgd", "sgd"),
        ("fused", "adamw_torch_fused"),
    ):
        if word in name:
            return known
    return "adamw_torch"


def workload(row: dict[str, str]) -> Workload:
    """Return the row as a Workload; raises ArchitectureError or ValueError where it cannot be."""
    # Some labs trained beyond the published length; the measurement is no less true.
    arch = replace(find(row["model"]), max_positions=None)
    stack = stack_of(row)
    method = row["method"]
    parallel = row.get("parallel", "none") or "none"
    gpus = int(float(row["n_gpus"] or 1))
    strategy = strategy_of(parallel, gpus)
    mixed = row.get("precision", "") == "bf16-mixed"
    optimizer = row.get("optimizer") or ""
    seq = row.get("seq_len") or ""
    batch = row.get("micro_batch") or ""
    tokens = row.get("tokens_per_gpu_step") or ""
    batch_n = int(float(batch)) if batch else 1
    length = int(float(seq)) if seq else int(float(tokens)) // batch_n
    quant = row.get("quant") or None
    if quant and quant not in QUANT_BYTES:
        quant = "nf4" if "4" in quant else "int8"
    if quant == "gptq4" and stack == "fms" and arch.params > 30e9:
        quant = "gptq4_whole"  # those checkpoints' model cards: group size none
    sharded = strategy in {"fsdp", "zero3"}
    return Workload(
        arch,
        method=method,
        quant=quant if method != "full" else None,
        lora_rank=int(float(row.get("lora_r") or 16)),
        lora_targets=targets(row.get("lora_targets", "")),
        sequence_len=longest(row, stack, length),
        micro_batch_size=batch_n,
        gradient_accumulation_steps=accumulation(row),
        optimizer=optimizer_of(optimizer),
        optimizer_in_backward="opt_in_bwd" in optimizer,
        checkpointing=row.get("grad_ckpt", "1") not in {"0", "", "False"},
        attention=attention_of(row, stack),
        loss_kernel=loss_of(row, stack),
        fused_kernels="foak" in row.get("framework", "") or row.get("ce_impl") == "foak",
        fp32_weights=(mixed and (stack != "fms" or (sharded and method == "full"))),
        kbit_fp32=row.get("residual_bytes") == "4" and strategy != "fsdp",
        packing=False,
        gpus=gpus,
        strategy=strategy,
        stack=stack,
        gpu_gib=CARD_GIB.get(row.get("gpu", "")),
    )


def points(path: Path) -> tuple[list[Point], list[str]]:
    """Return the usable rows as points, and one line for each row that could not be read."""
    found: list[Point] = []
    skipped: list[str] = []
    for row in read(path):
        try:
            work = workload(row)
            check(work)
            measured = float(row["peak_gib"])
        except (ArchitectureError, ValueError) as exc:
            skipped.append(f"{row.get('id', '?')}: {exc}")
            continue
        found.append(
            Point(
                row["id"], row["source"], row["framework"], row["metric"], work, measured,
                groups(row, work),
            )
        )  # fmt: skip
    return found, skipped


def groups(row: dict[str, str], work: Workload) -> frozenset[str]:
    """Return the names of the groups in which a row counts."""
    names = {"all", work.method}
    names.add("single_gpu" if work.gpus == 1 else "multi_gpu")
    metric = row.get("metric", "")
    if metric in {"nvidia-smi", "reserved"}:
        names.add("device")
    if metric in {"allocated", "active"} and work.stack in {"fms", "hf", "torchtune", "axolotl"}:
        names.add("hf_allocated")
    return frozenset(names)
