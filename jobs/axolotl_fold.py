"""The derived configuration -> `training` as it will really be.

`axolotl: {sequence_len: 8192}` wins over `training.sequence_len`; whoever sizes the job must see
8192. After loading, `spec.training` says what the trainer will do, wherever it was said.
"""

from __future__ import annotations

from typing import Any

from jobs.axolotl import Layout, axolotl_config
from jobs.spec import JobSpec, Training
from jobs.spec_types import ALL_LINEAR, MAX_HELD_BACK

# training's key -> Axolotl's key, and Axolotl's own default (0.21.0), which holds for a person's
# own file that does not name it.
KEYS: dict[str, tuple[str, Any]] = {
    "sequence_len": ("sequence_len", 512),
    "micro_batch_size": ("micro_batch_size", 1),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", 1),
    "learning_rate": ("learning_rate", None),
    "optimizer": ("optimizer", "adamw_torch_fused"),
    "lr_scheduler": ("lr_scheduler", "cosine"),
    "warmup_ratio": ("warmup_ratio", None),
    "weight_decay": ("weight_decay", 0.0),
    "max_grad_norm": ("max_grad_norm", 1.0),
    "lora_r": ("lora_r", None),
    "lora_alpha": ("lora_alpha", None),
    "lora_dropout": ("lora_dropout", 0.0),
    "gradient_checkpointing": ("gradient_checkpointing", False),
    "packing": ("sample_packing", False),
    "seed": ("seed", 42),
}
# Read beside KEYS: epochs, max_steps, lora_targets, eval_every_steps. Not Axolotl's: plugins.


def effective(spec: JobSpec) -> JobSpec:
    """Return the spec with `training` and `data.validation` as the configuration has them.

    Deriving again gives the same configuration. Raises pydantic.ValidationError where a value from
    `axolotl:` is outside what `training` allows.
    """
    config = axolotl_config(spec, layout=Layout("/"), stack="cuda")
    changed: dict[str, Any] = {"training": _training(spec.training, config)}
    part = config.get("val_set_size")
    if isinstance(part, int | float) and not config.get("test_datasets") and part <= MAX_HELD_BACK:
        changed["data"] = spec.data.model_copy(update={"validation": float(part)})
    return spec.model_copy(update=changed)


def training_keys(training: Training, given: set[str]) -> dict[str, Any]:
    """Return the keys of `training` that were given, under Axolotl's names."""
    values = training.model_dump()
    result = {name: values[key] for key, (name, _) in KEYS.items() if key in given}
    if "epochs" in given:
        result["num_epochs"] = training.epochs
    if "max_steps" in given:
        result["max_steps"] = training.max_steps
    if "eval_every_steps" in given:
        result["eval_steps"] = training.eval_every_steps
    if "lora_targets" in given:
        whole = training.lora_targets == ALL_LINEAR
        result["lora_target_linear" if whole else "lora_target_modules"] = (
            True if whole else list(training.lora_targets)
        )
    return {key: value for key, value in result.items() if value is not None}


def _training(before: Training, config: dict[str, Any]) -> Training:
    values = before.model_dump()
    for key, (name, default) in KEYS.items():
        value = config.get(name, default)
        if value is not None:
            values[key] = value
    values["gradient_checkpointing"] = bool(values["gradient_checkpointing"])
    steps = config.get("max_steps")
    values["max_steps"] = steps if isinstance(steps, int) and steps > 0 else None
    values["epochs"] = None if values["max_steps"] else config.get("num_epochs", 1.0)
    every = config.get("eval_steps")
    values["eval_every_steps"] = every if isinstance(every, int) else None
    modules = config.get("lora_target_modules")
    if config.get("lora_target_linear"):
        values["lora_targets"] = ALL_LINEAR
    elif modules:
        values["lora_targets"] = modules
    batch = config.get("batch_size")
    if batch and "gradient_accumulation_steps" not in config:
        values["gradient_accumulation_steps"] = max(1, batch // values["micro_batch_size"])
    return Training.model_validate(values)
