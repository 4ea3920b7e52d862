"""Peers that users install: their own estimators, run in environments of their own.

    python benches/peers/packages.py POINTS.csv --envs FOLDER [--oom RUNS.csv]

FOLDER is given one virtual environment a package (made with `uv` on first use). Each package's own
code answers for every single-GPU row that its interface can express; the others are counted.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.memory_accuracy import USABLE_80_GIB, judge, ours
from benches.points import Point, points, read, workload
from jobs.workload import Workload

# Each driver reads a list of jobs on stdin and prints a list of GiB, null where it cannot say.
_FITCHECK = """
import json, sys
from fitcheck import ModelConfig, TrainingConfig, estimate, get_gpu
out = []
for j in json.load(sys.stdin):
    try:
        m = ModelConfig(j["name"], j["params"], j["hidden"], j["layers"], j["heads"], j["kv_heads"],
                        j["intermediate"], j["vocab"], j["head_dim"], j["tied"])
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj",
                 "up": "up_proj", "down": "down_proj"}
        quant = {None: "none", "nf4": "nf4", "nf4dq": "nf4", "gptq4": "nf4", "gptq4_whole": "nf4",
                 "int8": "int8", "gptq8": "int8"}[j["quant"]]
        t = TrainingConfig(precision="bf16", quantization=quant,
                           double_quant=j["quant"] not in (None, "nf4", "int8", "gptq8"),
                           optimizer="adamw", optimizer_dtype="bf16" if j["method"] == "full"
                           else "fp32", batch_size=j["batch"], seq_len=j["seq"],
                           lora_rank=None if j["method"] == "full" else j["rank"],
                           lora_targets=[names[x] for x in j["targets"] if x in names],
                           grad_checkpoint=j["ckpt"], flash_attn=j["attention"] != "eager")
        out.append(estimate(m, t, get_gpu("a100-80")).total_mib / 1024)
    except Exception:
        out.append(None)
print(json.dumps(out))
"""
_FTUNEAI = """
import json, sys
from ftuneai.core.memory import MemoryEstimator
from ftuneai.core.models import *
out = []
for j in json.load(sys.stdin):
    try:
        m = ModelSpec(j["name"], j["params"], j["hidden"], j["layers"], j["heads"], j["kv_heads"],
                      j["intermediate"], j["vocab"], 131072, is_moe=bool(j["experts"]),
                      num_experts=j["experts"] or None,
                      num_active_experts=j["experts_per_token"] or None)
        quant = {None: "none", "int8": "8bit", "gptq8": "8bit"}.get(j["quant"], "4bit")
        mlp = {"gate", "up", "down"} & set(j["targets"])
        target = "all_linear" if mlp else "attention" if set(j["targets"]) <= {"q", "v"} else \
            "attention_all"
        c = TrainingConfig(model=j["name"], method=FineTuneMethod(j["method"]),
                           quantization=Quantization(quant), batch_size=j["batch"],
                           seq_length=j["seq"], gradient_checkpointing=j["ckpt"],
                           optimizer=OptimizerType("adamw"), lora_rank=j["rank"],
                           lora_target=LoRATarget(target),
                           flash_attention=j["attention"] != "eager")
        out.append(MemoryEstimator(m, c).estimate().total_gb)
    except Exception:
        out.append(None)
print(json.dumps(out))
"""
# tinyforge's planner imports torch at the top and its estimate never uses it: a stand-in serves.
_TINYFORGE = """
import json, sys, unittest.mock
for name in ("torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.checkpoint"):
    sys.modules.setdefault(name, unittest.mock.MagicMock())
from tinyforge.finetune import FTConfig, estimate_vram_gb
out = []
for j in json.load(sys.stdin):
    if j["method"] == "full":
        out.append(None)
        continue
    mlp = 3 if j["gated"] else 2
    dims = [j["hidden"] + j["q_width"]] * 2 + [j["hidden"] + j["kv_width"]] * 2
    dims += [j["hidden"] + j["intermediate"]] * mlp * max(1, j["experts"])
    shape = {"params": j["params"], "hidden": j["hidden"], "layers": j["layers"],
             "vocab": j["vocab"], "linear_dims": dims * j["layers"]}
    c = FTConfig(max_len=j["seq"], lora_r=j["rank"], chunked_ce=j["fused_loss"])
    quant = "4bit" if j["quant"] else "none"
    try:
        out.append(estimate_vram_gb(shape, c, quant, j["ckpt"], j["batch"]))
    except Exception:
        out.append(None)
print(json.dumps(out))
"""
PACKAGES = {
    "fitcheck-llm": ("fitcheck-llm==0.3.1", _FITCHECK),
    "tinyforge": ("tinyforge==0.1.2", _TINYFORGE),
    "ftuneai": ("ftuneai==0.4.1", _FTUNEAI),
}


def as_job(work: Workload) -> dict[str, Any]:
    """Return a workload in the plain words that the drivers read."""
    arch = work.architecture
    return {
        "name": arch.name,
        "params": arch.params,
        "hidden": arch.hidden,
        "layers": arch.layers,
        "heads": arch.heads,
        "kv_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "q_width": arch.q_width,
        "kv_width": arch.kv_width,
        "intermediate": arch.intermediate,
        "vocab": arch.vocab,
        "tied": arch.tied,
        "gated": arch.gated_mlp,
        "experts": arch.experts,
        "experts_per_token": arch.experts_per_token,
        "method": work.method,
        "quant": work.quantised,
        "rank": work.lora_rank,
        "targets": sorted(work.lora_targets),
        "batch": work.micro_batch_size,
        "seq": work.sequence_len,
        "ckpt": work.checkpointing,
        "attention": work.attention,
        "fused_loss": work.loss_kernel in {"liger", "cce", "chunked"},
    }


def python_of(package: str, envs: Path) -> Path:
    """Return the interpreter of the package's own environment, made where it is missing."""
    requirement, _ = PACKAGES[package]
    python = envs / package / "bin" / "python"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", envs / package], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "-p", python, requirement], check=True)
    return python


def ask(package: str, envs: Path, works: Sequence[Workload]) -> list[float | None]:
    """Return the package's own estimates in GiB, None where it cannot express the job."""
    done = subprocess.run(
        [python_of(package, envs), "-c", PACKAGES[package][1]],
        input=json.dumps([as_job(work) for work in works]),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[float | None] = json.loads(done.stdout.splitlines()[-1])
    return answers


def compare(package: str, envs: Path, rows: Sequence[Point]) -> None:
    """Print the package's figures and ours on the rows that it can express."""
    answers = ask(package, envs, [row.work for row in rows])
    said = {row.id: answer for row, answer in zip(rows, answers, strict=True) if answer}
    kept = [row for row in rows if row.id in said]
    print(f"\n{PACKAGES[package][0]}: {len(kept)} of {len(rows)} single-GPU rows")
    for group in ("all", "full", "lora", "qlora"):
        for name, estimate in ((package, lambda row: said[row.id]), ("ours", ours)):
            for errors in judge(kept, estimate, (group,)):
                print(f"  {name:14}{group:7}{errors.line()}")


def compare_oom(package: str, envs: Path, path: Path) -> None:
    """Print how often the package told fitting from failing on single-GPU runs."""
    rows = [(replace(workload(row), gpu_gib=None), row["oom"] == "1") for row in read(path)]
    rows = [(work, happened) for work, happened in rows if work.gpus == 1]
    answers = ask(package, envs, [work for work, _ in rows])
    pairs = [(a > USABLE_80_GIB, h) for a, (_, h) in zip(answers, rows, strict=True) if a]
    caught = sum(said and happened for said, happened in pairs)
    missed = sum(happened and not said for said, happened in pairs)
    false_alarms = sum(said and not happened for said, happened in pairs)
    print(f"  {package}: {len(pairs)} runs, {caught} caught, {missed} missed, {false_alarms} false")


def main() -> None:
    """Ask every package, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--envs", type=Path, required=True, help="folder for the environments")
    parser.add_argument("--oom", type=Path)
    options = parser.parse_args()
    rows, _ = points(options.file)
    single = [row for row in rows if row.work.gpus == 1]
    for package in PACKAGES:
        compare(package, options.envs, single)
        if options.oom:
            compare_oom(package, options.envs, options.oom)


if __name__ == "__main__":
    main()
