"""From a job file to a workload: what the memory and speed models have to know of it. Pure.

The job's `training` section is the effective one (load.py folds `axolotl:` into it); keys that the
section does not have are looked up under `axolotl:`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs.architectures import Architecture, ArchitectureError, find, from_folder
from jobs.spec import JobSpec, Method
from jobs.spec_types import ALL_LINEAR
from jobs.workload import (
    ATTENTION_TARGETS,
    MLP_TARGETS,
    OPTIMIZER_ALIASES,
    OPTIMIZERS,
    Workload,
)

# What the matrices are called in the families of `architectures.py`, as the models' code has it.
MODULES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o", "dense": "o",
    "qkv_proj": "q k v", "query_key_value": "q k v", "W_pack": "q k v", "wqkv": "q k v",
    "Wqkv": "q k v", "c_attn": "q k v", "wo": "o", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down", "gate_up_proj": "gate up", "w1": "gate", "w2": "down", "w3": "up",
    "dense_h_to_4h": "up", "dense_4h_to_h": "down", "c_fc": "up", "c_proj": "down", "fc1": "up",
    "fc2": "down", "lm_head": "head",
}  # fmt: skip
ALL_TARGETS = frozenset((*ATTENTION_TARGETS, *MLP_TARGETS))
ATTENTIONS = {"eager": "eager", "sdpa": "sdpa", "flex_attention": "flex", "xformers": "sdpa"}
# bitsandbytes' optimizers do not know sharded tensors (Axolotl 0.21.0 refuses them with FSDP).
UNSHARDED = ("8bit", "paged_", "bnb", "lion_32bit")
SHARDED_OPTIMIZER = "adamw_torch_fused"


@dataclass(frozen=True, slots=True)
class Sizing:
    """A job as the models see it: on one GPU, with what had to be supposed, in words."""

    work: Workload
    supposed: tuple[str, ...]


def architecture_of(spec: JobSpec, configs: Path | None = None) -> Architecture:
    """Return the base model's shape, from its folder's `config.json` or the bundled table.

    configs: folders of hub models that the table lacks, as `owner--name`. Raises ArchitectureError,
    which says what to give. Reads one file at the most.
    """
    folder = spec.model_folder
    if folder is not None:
        return from_folder(Path(folder))
    return find_or_kept(spec.model, configs)


def find_or_kept(model: str, configs: Path | None) -> Architecture:
    """Return a hub model's shape, from the table or a kept `config.json`; as `architecture_of`."""
    kept = None if configs is None else configs / model.replace("/", "--") / "config.json"
    try:
        return find(model)
    except ArchitectureError:
        if kept is None or not kept.is_file():
            raise
    return from_folder(kept.parent)


def sizing_of(spec: JobSpec, architecture: Architecture) -> Sizing:
    """Return the job's workload on one GPU. Raises nothing; `jobs.workload.check` judges it."""
    t = spec.training
    keys = {**spec.axolotl.base, **spec.axolotl.keys}
    supposed: list[str] = []
    optimizer = t.optimizer
    if OPTIMIZER_ALIASES.get(optimizer, optimizer) not in OPTIMIZERS:
        supposed.append(f"optimizer {optimizer} is sized as adamw_torch")
        optimizer = "adamw_torch"
    int8 = bool(keys.get("load_in_8bit")) and spec.method is Method.LORA
    work = Workload(
        architecture,
        method=spec.method.value,
        quant="int8" if int8 else None,
        lora_rank=t.lora_r,
        lora_targets=_targets(t.lora_targets, supposed),
        sequence_len=t.sequence_len,
        micro_batch_size=t.micro_batch_size,
        gradient_accumulation_steps=t.gradient_accumulation_steps,
        optimizer=optimizer,
        checkpointing=t.gradient_checkpointing,
        activation_offload=bool(keys.get("activation_offloading")),
        attention=_attention(keys),
        loss_kernel=_loss(keys),
        fused_kernels=bool(keys.get("liger_rms_norm") and keys.get("liger_glu_activation")),
        packing=t.packing,
    )
    return Sizing(_stretched(work, keys), tuple(supposed))


def _stretched(work: Workload, keys: Mapping[str, Any]) -> Workload:
    """Return the workload without the model's own limit of length where the job raises it."""
    overrides = keys.get("overrides_of_model_config")
    if not isinstance(overrides, Mapping):
        return work
    if not {"max_position_embeddings", "rope_scaling", "rope_parameters"} & overrides.keys():
        return work
    return replace(work, architecture=replace(work.architecture, max_positions=0))


def _attention(keys: Mapping[str, Any]) -> str:
    word = str(keys.get("attn_implementation") or "sdpa")
    return ATTENTIONS.get(word, "flash")


def _loss(keys: Mapping[str, Any]) -> str:
    if keys.get("liger_fused_linear_cross_entropy"):
        return "liger"
    return "cce" if keys.get("cut_cross_entropy") else "hf"


def _targets(names: Any, supposed: list[str]) -> frozenset[str]:
    if names == ALL_LINEAR:
        return ALL_TARGETS
    found = {part for name in names for part in MODULES.get(name.rsplit(".", 1)[-1], "").split()}
    if not found:
        supposed.append(f"lora_targets {', '.join(names)} are sized as all linear matrices")
        return ALL_TARGETS
    return frozenset(found)


def on_gpus(work: Workload, gpus: int, strategy: str, *, keep_batch: bool) -> Workload | None:
    """Return the workload on several GPUs of one machine; None where the batch would change.

    keep_batch: the accumulation is divided, so that an optimizer step sees as many sequences as on
    one GPU.
    """
    if gpus == 1:
        return replace(work, gpus=1, strategy="none")
    steps = work.gradient_accumulation_steps
    if keep_batch:
        if steps % gpus:
            return None
        steps //= gpus
    optimizer = work.optimizer
    if strategy == "fsdp" and any(part in optimizer for part in UNSHARDED):
        optimizer = SHARDED_OPTIMIZER
    return replace(
        work,
        gpus=gpus,
        strategy=strategy,
        gradient_accumulation_steps=steps,
        optimizer=optimizer,
    )


def shared_out(config: Mapping[str, Any], work: Workload) -> dict[str, Any]:
    """Return Axolotl's configuration for several GPUs, as `work` (from `on_gpus`) says.

    A person's own `fsdp_config` or `deepspeed` is left as it is. Data parallel runs need no key.
    """
    result = dict(config)
    if result.get("fsdp_config") or result.get("deepspeed"):
        return result
    if "gradient_accumulation_steps" in result:
        result["gradient_accumulation_steps"] = work.gradient_accumulation_steps
    if work.strategy != "fsdp":
        return result
    result["fsdp_version"] = 2
    result["fsdp_config"] = {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "FULL_STATE_DICT",
        "reshard_after_forward": True,
        "cpu_ram_efficient_loading": True,
        "offload_params": work.offload_params,
    }
    result["optimizer"] = work.optimizer
    if result.pop("gradient_checkpointing", None):
        # FSDP 2 recomputes by itself; the Trainer's own way would gather each layer twice.
        result["fsdp_config"]["activation_checkpointing"] = True
    return result


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the job computes: tokens through the model in training, evaluation, and as data.

    trained: padding included. evaluated: of all evaluations together. data: the examples' own
    tokens over all epochs, which is what a managed service counts. steps: optimizer steps. how: the
    origin in words.
    """

    trained: int
    evaluated: int
    data: int
    steps: int
    how: str
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """The examples of a data set: sorted token lengths of a sample, and how many there are."""

    lengths: tuple[int, ...]
    examples: int
    how: str


def tokens_of(spec: JobSpec, work: Workload, found: Lengths, held: float | None) -> Tokens:
    """Return the tokens that training `found` costs; pure.

    held: share of the examples that is held back, None where validation is a file of its own.
    Examples longer than the sequence length are left out, as Axolotl does.
    """
    size = work.sequence_len
    kept = [length for length in found.lengths if 0 < length <= size] or [size]
    share = len(kept) / max(1, len(found.lengths))
    held_back = held or 0.0
    examples = max(1, round(found.examples * share * (1 - held_back)))
    mean = sum(kept) / len(kept)
    if work.packing:
        sequences = max(1, math.ceil(examples * mean / (size * PACKED)))
        each = float(size)
    else:
        sequences, each = examples, _padded(kept, work.micro_batch_size)
    batch = work.micro_batch_size * work.gradient_accumulation_steps * work.gpus
    t = spec.training
    if t.max_steps is not None:
        steps = t.max_steps
        trained = steps * batch * each
        data = trained * (PACKED if work.packing else mean / each)
        epochs = steps * batch / sequences
        said = f"{steps} steps of {batch} sequences"
    else:
        epochs = t.epochs or 1.0
        steps = max(1, math.ceil(sequences / batch * epochs))
        trained = sequences * each * epochs
        data = examples * mean * epochs
        said = f"{epochs:g} epoch{'s' * (epochs != 1)}"
    every = t.eval_every_steps or spec.checkpoints.every_steps or max(1, steps // 10)
    evaluated = found.examples * share * held_back * mean * (steps // every)
    what = f"{examples:,} examples of {mean:,.0f} tokens ({found.how}), {said}"
    return Tokens(max(1, round(trained)), round(evaluated), max(1, round(data)), steps, what)


# First-fit packing fills sequences so far (jobs/data/lengths.py).
PACKED = 0.97


def _padded(ordered: list[int], batch: int) -> float:
    """Return the mean length after padding to the longest of `batch` examples drawn by chance."""
    n = len(ordered)
    total = sum(
        length * (((i + 1) / n) ** batch - (i / n) ** batch)
        for i, length in enumerate(sorted(ordered))
    )
    return max(1.0, total)
