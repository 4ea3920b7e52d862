"""JobSpec -> the configuration of the pinned Axolotl, one function a section.

Who wins, from weak to strong: the section functions below (or, with `axolotl.config`, the person's
own file), the keys under `axolotl:`, what a CPU forces, what gpujob owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from jobs import axolotl_data, axolotl_names
from jobs.axolotl_tokenizer import pad_token
from jobs.spec import JobSpec, Method
from jobs.spec_types import ALL_LINEAR

Stack = Literal["cpu", "cuda"]
Config = dict[str, Any]

# A tenth of the run between two checkpoints: at most that much paid work is lost. transformers
# reads a figure below 1 as a part of all steps.
TENTH = 0.1

# A key given by the person takes these derived ones with it, which would contradict it.
DISPLACES: dict[str, tuple[str, ...]] = {
    "warmup_steps": ("warmup_ratio",),
    "warmup_ratio": ("warmup_steps",),
    "max_steps": ("num_epochs",),
    "num_epochs": ("max_steps",),
    "evals_per_epoch": ("eval_steps",),
    "eval_strategy": ("eval_steps",),
    "lora_target_modules": ("lora_target_linear",),
    "lora_target_parameters": ("lora_target_linear",),
    "fp16": ("bf16",),
    "float16": ("bf16",),
    "batch_size": ("gradient_accumulation_steps",),
}

# contracts: without these three, Axolotl switches its Triton kernels on, which need a GPU.
LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")


# How the configuration names an uploaded model: relative to the trainer's working folder, which is
# the attempt's. Axolotl guesses the kind of model from the letters of its path (axolotl 0.21.0,
# `utils/schemas/validation.py`, `utils/config`): a folder called "prompts" holds "mpt", and then
# gradient checkpointing is refused.
MODEL_NAME = "./model"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths on the instance, all below the attempt's folder `root` (docs/design.md).

    The trainer must be started in `root`.
    """

    root: str

    @property
    def config(self) -> str:
        """Return the path of Axolotl's configuration."""
        return f"{self.root}/config.yml"

    @property
    def model(self) -> str:
        """Return the folder of a base model that was uploaded."""
        return f"{self.root}/model"

    @property
    def prepared(self) -> str:
        """Return the folder for tokenized data."""
        return f"{self.root}/prepared"

    @property
    def out(self) -> str:
        """Return Axolotl's output_dir."""
        return f"{self.root}/out"

    def data(self, name: str, local: Path | str) -> str:
        """Return the path of an uploaded data file; its suffix says its kind, so it stays."""
        return f"{self.root}/data/{name}{PurePosixPath(local).suffix.lower()}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file or folder that the configuration expects at `remote`."""

    local: Path
    remote: str


def axolotl_config(spec: JobSpec, *, layout: Layout, stack: Stack) -> Config:
    """Return Axolotl's configuration for a loaded job.

    Every path in it is below `layout.root`, the trainer's working folder, or names something on a
    hub. Raises nothing for a spec that `load_job` returned. Reads the tokenizer's small files where
    the model is a folder.
    """
    if spec.axolotl.base:
        config = own_file(spec, layout)
    else:
        config = {
            **model(spec),
            **axolotl_data.data(spec, layout.data),
            **adapter(spec),
            **optimisation(spec),
            **attention(spec),
            **precision(),
            **evaluation(spec),
            **saving(spec),
        }
    config = overlay(config, spec.axolotl.keys)
    if stack == "cpu":
        config = on_cpu(config)
    return {**config, **owned(spec, layout, stack)}


def uploads(spec: JobSpec, layout: Layout) -> tuple[Upload, ...]:
    """Return what must be at its place on the instance before the trainer starts."""
    found = []
    if spec.model_folder is not None:
        found.append(Upload(spec.model_folder, layout.model))
    found += [Upload(path, remote) for path, remote in axolotl_data.files(spec, layout.data)]
    return tuple(found)


def trainer_argv(axolotl_exe: str, config_path: str, gpu_count: int = 1) -> list[str]:
    """Return the trainer's command line.

    One GPU: no launcher, so there is one process to watch and one traceback to read. More:
    torchrun, which ends all its workers when one fails.
    """
    if gpu_count <= 1:
        return [axolotl_exe, "train", config_path, "--launcher", "python"]
    workers = ["--", "--standalone", "--nproc_per_node", str(gpu_count)]
    return [axolotl_exe, "train", config_path, "--launcher", "torchrun", *workers]


def to_yaml(config: Mapping[str, Any]) -> str:
    """Return the configuration as YAML text that every YAML reader takes alike."""
    import yaml

    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)


def model(spec: JobSpec) -> Config:
    """Return which weights to start from, and the padding token where the tokenizer lacks one."""
    section: Config = {"base_model": MODEL_NAME if spec.model_folder else spec.model}
    pad = pad_token(spec.model_folder) if spec.model_folder else None
    if pad is not None:
        section["special_tokens"] = {"pad_token": pad}
    return section


def adapter(spec: JobSpec) -> Config:
    """Return what is trained: an adapter, or nothing of the kind for a full fine-tune."""
    if spec.method is Method.FULL:
        return {}
    t = spec.training
    section: Config = {"adapter": spec.method.value}
    if spec.method is Method.QLORA:
        section["load_in_4bit"] = True
    section |= {"lora_r": t.lora_r, "lora_alpha": t.lora_alpha, "lora_dropout": t.lora_dropout}
    if t.lora_targets == ALL_LINEAR:
        section["lora_target_linear"] = True
    else:
        section["lora_target_modules"] = list(t.lora_targets)
    return section


def optimisation(spec: JobSpec) -> Config:
    """Return length of the run, batch, learning rate, optimizer, seed."""
    t = spec.training
    length = {"num_epochs": t.epochs} if t.max_steps is None else {"max_steps": t.max_steps}
    return {
        **length,
        "micro_batch_size": t.micro_batch_size,
        "gradient_accumulation_steps": t.gradient_accumulation_steps,
        "learning_rate": t.learning_rate,
        "optimizer": t.optimizer,
        "lr_scheduler": t.lr_scheduler,
        "warmup_ratio": t.warmup_ratio,
        "weight_decay": t.weight_decay,
        "max_grad_norm": t.max_grad_norm,
        "gradient_checkpointing": t.gradient_checkpointing,
        "seed": t.seed,
        "logging_steps": 1,
    }


def attention(spec: JobSpec) -> Config:
    """Return attention and packing.

    sdpa is PyTorch's own: nothing to build or download, and with packing Axolotl switches to its
    variable-length kernel, which keeps examples apart without a mask. Evaluation is not packed: a
    small validation set would give no full sequence, and Axolotl then refuses to start.
    """
    section: Config = {
        "sequence_len": spec.training.sequence_len,
        "attn_implementation": "sdpa",
        "sample_packing": spec.training.packing,
    }
    if spec.training.packing:
        section["eval_sample_packing"] = False
    return section


def precision() -> Config:
    """Return number formats: Axolotl asks the GPU for bfloat16, and falls back to float16."""
    return {"bf16": "auto", "tf32": "auto"}


def evaluation(spec: JobSpec) -> Config:
    """Return when to evaluate; nothing where no records are held back."""
    if spec.axolotl.keys.get("val_set_size", spec.data.validation) == 0:
        return {}
    return {
        "eval_steps": spec.training.eval_every_steps or spec.checkpoints.every_steps or TENTH,
        # By this transformers keeps the best checkpoint when it removes older ones. The last step's
        # adapter stays the result: `load_best_model_at_end` is not asked for.
        "metric_for_best_model": "eval_loss",
    }


def saving(spec: JobSpec) -> Config:
    """Return when to save and how much to keep."""
    every = spec.checkpoints.every_steps or TENTH
    # Asked for by the agent when its machine is to be called back: a file is looked for each step.
    on_demand = {"enabled": True, "check_interval": 1}
    return {
        "save_steps": every,
        "save_total_limit": spec.checkpoints.keep,
        "dynamic_checkpoint": on_demand,
    }


def own_file(spec: JobSpec, layout: Layout) -> Config:
    """Return the person's own file, with model and local data at their places on the instance."""
    base = spec.axolotl.base
    config = {**axolotl_data.data(spec, layout.data), **base}
    config["base_model"] = model(spec)["base_model"]
    config |= axolotl_data.rebased(spec, layout.data)
    if not any(config.get(key) for key in ("save_steps", "saves_per_epoch", "save_strategy")):
        config["save_steps"] = spec.checkpoints.every_steps or TENTH
    config.setdefault("save_total_limit", spec.checkpoints.keep)
    config.setdefault("dynamic_checkpoint", saving(spec)["dynamic_checkpoint"])
    return config


def overlay(config: Mapping[str, Any], keys: Mapping[str, Any]) -> Config:
    """Return the configuration with the person's keys over it; null takes a key away."""
    result = dict(config)
    for key in keys:
        for other in DISPLACES.get(key, ()):
            if other not in keys:
                result.pop(other, None)
    result.update(keys)
    tokens = [source.get("special_tokens") for source in (config, keys)]
    if all(isinstance(part, dict) for part in tokens):
        result["special_tokens"] = {**tokens[0], **tokens[1]}  # type: ignore[dict-item]
    return {key: value for key, value in result.items() if value is not None}


def on_cpu(config: Mapping[str, Any]) -> Config:
    """Return the configuration as a CPU can run it, whatever was asked for: a rehearsal."""
    left_out = set(axolotl_names.GPU_KEYS)
    for short in axolotl_names.GPU_PLUGINS:
        for names in axolotl_names.PLUGINS[short][1].values():
            left_out.update(names.split())
    result = {key: value for key, value in config.items() if key not in left_out}
    result |= {"bf16": False, "fp16": False, "tf32": False, "attn_implementation": "sdpa"}
    result["sample_packing"] = False
    if result.get("optimizer", "adamw_torch_fused") not in axolotl_names.CPU_OPTIMIZERS:
        result["optimizer"] = "adamw_torch"
    if result.get("adapter"):
        result |= dict.fromkeys(LORA_KERNELS, False)
    return result


def owned(spec: JobSpec, layout: Layout, stack: Stack) -> Config:
    """Return the keys that are gpujob's alone."""
    listed = [*(spec.axolotl.base.get("plugins") or []), *plugin_classes(spec.training.plugins)]
    if stack == "cpu":
        kernels = plugin_classes(axolotl_names.GPU_PLUGINS)
        listed = [name for name in listed if name not in kernels]
    return {
        "output_dir": layout.out,
        "dataset_prepared_path": layout.prepared,
        "auto_resume_from_checkpoints": True,
        "plugins": list(dict.fromkeys([*listed, axolotl_names.PLUGIN])),
    }


def plugin_classes(shorts: Iterable[str]) -> Sequence[str]:
    """Return the class paths of Axolotl's plugins; an unknown name is taken as a path."""
    return [axolotl_names.PLUGINS.get(short, (short, {}))[0] for short in shorts]
