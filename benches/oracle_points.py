"""Runs the shape oracle over families and settings, beside the closed form, as a point file.

    python benches/oracle_points.py [--models A,B] [--layers 6] > points.csv

Needs torch, transformers and peft (any CPU); a few seconds a point. Models are cut to a few layers:
the per-layer terms are what is compared, and every layer is alike.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.architectures import find
from jobs.memory import WORKSPACE_BYTES, footprint
from jobs.memory_allocator import GIB
from jobs.oracle import OracleRun, exact_peak_gib
from jobs.workload import Workload

MODELS = (
    "Llama-3-8B,Mistral-7B-v0.1,Qwen2.5-7B,Qwen3-8B,Gemma-2B,Gemma-2-9B,Gemma-3-4B,Granite-3.1-8B,"
    "Phi-3-mini,OLMo-2-7B,SmolLM3-3B,Mixtral-8x7B,Qwen3-30B-A3B"
)
ALL = frozenset({"q", "k", "v", "o", "gate", "up", "down"})
SETTINGS = tuple((targets, ckpt) for targets in (ALL, frozenset()) for ckpt in (True, False))
FIELDS = (
    "model", "layers", "method", "micro_batch", "seq", "grad_ckpt", "attn", "vocab", "oracle_gib",
    "closed_form_gib", "difference_pct", "binding", "versions",
)  # fmt: skip


def run(model: str, layers: int, vocab: int | None) -> Iterator[dict[str, object]]:
    """Yield one row a setting of `model`, cut to `layers` layers (and to `vocab` entries)."""
    arch = replace(find(model), layers=layers)
    if vocab:
        arch = replace(arch, vocab=vocab)
    words = " ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft"))
    for targets, checkpointing in SETTINGS:
        rank = 16 if targets else 0
        exact = exact_peak_gib(OracleRun(arch, 2, 1024, targets, rank, checkpointing))
        work = Workload(
            arch,
            method="lora" if targets else "full",
            lora_rank=16,
            lora_targets=targets or ALL,
            sequence_len=1024,
            micro_batch_size=2,
            checkpointing=checkpointing,
            stack="hf",
        )
        found = footprint(work)
        ours = found.allocated_gib - WORKSPACE_BYTES / GIB
        yield {
            "model": model,
            "layers": layers,
            "method": work.method,
            "micro_batch": 2,
            "seq": 1024,
            "grad_ckpt": checkpointing,
            "attn": "flash",
            "vocab": arch.vocab,
            "oracle_gib": round(exact, 4),
            "closed_form_gib": round(ours, 4),
            "difference_pct": round(100 * (ours / exact - 1), 2),
            "binding": found.binding,
            "versions": words,
        }


def main() -> None:
    """Run, print CSV."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab", type=int, help="a small vocabulary makes the layers bind")
    options = parser.parse_args()
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    for model in options.models.split(","):
        for row in run(model, options.layers, options.vocab):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
