"""The two well-known VRAM tables: which assumptions reproduce each of their cells."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.architectures import find
from jobs.memory import footprint
from jobs.memory_parts import persistent
from jobs.workload import Workload, lora_params

GB = 1e9
GIB_IN_GB = 2**30 / GB


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: a range in GB as the table prints it."""

    table: int
    method: str
    model: str
    low_gb: float
    high_gb: float


CELLS = (
    Cell(1, "full", "Llama-2-7B", 115, 130),
    Cell(1, "full", "Llama-2-13B", 205, 235),
    Cell(1, "full", "Qwen2.5-32B", 495, 545),
    Cell(1, "full", "Llama-2-70B", 1050, 1150),
    Cell(1, "lora", "Llama-2-7B", 18, 30),
    Cell(1, "lora", "Llama-2-13B", 32, 48),
    Cell(1, "lora", "Qwen2.5-32B", 70, 100),
    Cell(1, "lora", "Llama-2-70B", 150, 180),
    Cell(1, "qlora", "Llama-2-7B", 8, 16),
    Cell(1, "qlora", "Llama-2-13B", 12, 24),
    Cell(1, "qlora", "Qwen2.5-32B", 24, 40),
    Cell(1, "qlora", "Llama-2-70B", 45, 70),
    Cell(2, "full", "Llama-2-7B", 57, 63),
    Cell(2, "full", "Llama-2-70B", 470, 500),
    Cell(2, "lora", "Llama-2-7B", 15.5, 16.5),
    Cell(2, "lora", "Llama-2-70B", 127, 133),
    Cell(2, "qlora", "Llama-2-7B", 5, 6),
    Cell(2, "qlora", "Llama-2-13B", 10, 12),
    Cell(2, "qlora", "Llama-2-70B", 47, 49),
)
LENGTHS = ((1, 512), (1, 1024), (1, 2048), (2, 2048), (4, 2048))
KERNELS = (("cce", "fused loss"), ("hf", "whole logits"))
OPTIMIZERS = (
    ("adamw_torch", "AdamW"),
    ("adamw_torch_fused", "fused AdamW"),
    ("adamw_8bit", "8-bit AdamW"),
)


def reconcile() -> Iterator[str]:
    """Yield one line a cell: the assumptions that land in it, or what it can only mean."""
    for cell in CELLS:
        name = f"table {cell.table}, {cell.method:5} {cell.model:12}"
        span = f"{cell.low_gb:g}-{cell.high_gb:g} GB"
        measured = list(_settings(cell))
        inside = [words for gb, words in measured if cell.low_gb <= gb <= cell.high_gb]
        counted = [
            f"{words} (no activations)"
            for gb, words in _accounting(cell)
            if cell.low_gb <= gb <= cell.high_gb
        ]
        reach = f"our peaks {min(g for g, _ in measured):.1f}-{max(g for g, _ in measured):.1f} GB"
        if inside:
            more = f" and {len(inside) - 2} more" if len(inside) > 2 else ""
            yield f"{name} {span:>13}: {'; '.join(inside[:2])}{more} ({reach})"
        elif counted:
            yield f"{name} {span:>13}: bookkeeping only: {counted[0]} ({reach})"
        else:
            yield f"{name} {span:>13}: no assumption tried reproduces it ({reach})"


def _settings(cell: Cell) -> Iterator[tuple[float, str]]:
    arch = find(cell.model)
    for (batch, length), (kernel, kernel_words), (optimizer, words) in itertools.product(
        LENGTHS, KERNELS, OPTIMIZERS
    ):
        work = Workload(
            arch,
            method=cell.method,
            sequence_len=length,
            micro_batch_size=batch,
            optimizer=optimizer,
            loss_kernel=kernel,
            fused_kernels=kernel == "cce",
        )
        gb = footprint(work).device_gib * GIB_IN_GB
        yield gb, f"{batch} x {length}, {kernel_words}, {words} -> {gb:.1f}"


def _accounting(cell: Cell) -> Iterator[tuple[float, str]]:
    arch = find(cell.model)
    for per_param, words in (
        (18, "18 B a parameter: AMP, fp32 master, Adam and gradients, 16-bit copy"),
        (17, "17 B a parameter"),
        (16, "16 B a parameter: ZeRO's accounting of mixed-precision Adam"),
        (10, "10 B a parameter: pure bf16, foreach AdamW"),
        (8, "8 B a parameter: pure bf16, fused AdamW"),
        (7, "7 B a parameter"),
        (6, "6 B a parameter: 8-bit Adam"),
        (2.3, "2.3 B a parameter: bf16 weights and a little"),
        (2, "2 B a parameter: bf16 weights alone"),
    ):
        if cell.method == "full" or per_param < 3:
            yield per_param * arch.params / GB, words
    if cell.method != "full":
        work = Workload(arch, method=cell.method)
        parts = persistent(work)
        kept = (parts.weights + parts.adapters + parts.states) / GB
        yield kept, f"weights, {lora_params(work) / 1e6:.0f} M adapters and their states"
        yield parts.weights / GB, "weights alone"
        yield parts.weights / 2**30, "weights alone, printed in GiB"
