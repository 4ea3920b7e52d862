"""Words for what pydantic and the list of known keys find: unknown, missing, out of range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from jobs.axolotl_keys import nearest, top_types, why_not_a_number
from jobs.load_yaml import KeyPath, dotted
from jobs.spec import DataFormat, JobSpec, Method

# Names other tools use for the same thing.
OTHER_NAMES: dict[str, str] = {
    "adapter": "method",
    "base_model": "model",
    "batch_size": "training.micro_batch_size",
    "budget": "limits.budget_usd",
    "dataset": "data.train",
    "datasets": "data.train",
    "grad_accum": "training.gradient_accumulation_steps",
    "gpus": "gpu.count",
    "gpu_type": "gpu.types",
    "instance_type": "gpu.types",
    "learning_rate_scheduler": "training.lr_scheduler",
    "load_in_4bit": "method",
    "lr": "training.learning_rate",
    "max_hours": "limits.hours",
    "max_price": "gpu.max_price_usd_per_hour",
    "max_seq_length": "training.sequence_len",
    "model_name_or_path": "model",
    "num_epochs": "training.epochs",
    "num_train_epochs": "training.epochs",
    "output_dir": "output",
    "price": "gpu.max_price_usd_per_hour",
    "rank": "training.lora_r",
    "sample_packing": "training.packing",
    "save_steps": "checkpoints.every_steps",
    "save_total_limit": "checkpoints.keep",
    "target_modules": "training.lora_targets",
    "test": "data.validation",
    "timeout": "limits.hours",
    "val": "data.validation",
    "val_set_size": "data.validation",
}

_GATED = "say `gated: true`; the token itself is read from GPUJOB_MODEL_TOKEN or HF_TOKEN"
_PUSH = "say under `output` where the result goes"

# Names that later versions will use: refused now in plain words, so that nobody counts on them.
RESERVED: dict[str, str] = {
    "token": _GATED,
    "hf_token": _GATED,
    "secrets": "secrets in a job are not built yet, and never belong into the file itself",
    "env": "environment variables for the trainer are not built yet",
    "push": _PUSH,
    "push_to": _PUSH,
    "hub": _PUSH,
    "evaluate": "evaluation after the training is not built yet",
    "merge": "merging the adapter into the model is not built yet",
    "notify": "notifications are not built yet",
    "schedule": "starting at a later time is not built yet",
    "retry": "trying again on another machine is not configurable yet",
    "gpu.region": "choosing a region is not built yet",
    "gpu.regions": "choosing a region is not built yet",
    "gpu.disk_gib": "choosing the disk is not built yet; it is worked out",
    "gpu.nodes": "more than one machine for a job is not built yet",
    "checkpoints.to": "say under `checkpoints.target` where they go",
    "checkpoints.best": "keeping the best checkpoint is not built yet",
    "checkpoints.resume_from": "starting from an older job's checkpoint is not built yet",
}
_SCHEMES = ("s3://", "hf://", "gs://", "https://", "http://", "az://")

# What to do about a key that must be there.
MISSING: dict[str, str] = {
    "name": "Add a line like name: my-job",
    "model": "Name a model of Hugging Face (owner/name) or a folder",
    "method": f"One of {', '.join(Method)}",
    "data.train": "Name a file of records",
    "data.format": f"One of {', '.join(DataFormat)}",
}


@cache
def known_keys() -> dict[str, tuple[str, ...]]:
    """Return section -> its keys; "" is the top. `axolotl` is missing, it takes Axolotl's keys."""
    keys: dict[str, tuple[str, ...]] = {"": tuple(JobSpec.model_fields)}
    for name, field in JobSpec.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and name != "axolotl":
            keys[name] = tuple(kind.model_fields)
    return keys


def unknown(path: KeyPath) -> tuple[str, str]:
    """Return message and remedy for a key that the job file does not have."""
    name = dotted(path)
    if name in RESERVED:
        return RESERVED[name], "Leave it out"
    key = str(path[-1])
    section = str(path[0]) if len(path) > 1 else ""
    found = _similar(key, section)
    return "unknown key", f"Did you mean {found}?" if found else _all_of(section)


def remote_path(text: str) -> bool:
    """Return whether the text is an address and not a path on this machine."""
    return text.lower().startswith(_SCHEMES)


def words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return message and remedy for one of pydantic's errors."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    shown = _show(error.get("input"))
    name = dotted(tuple(error["loc"]))
    if kind == "missing":
        return "missing", MISSING.get(name, "")
    if kind in ("enum", "literal_error"):
        options = [part.strip(" '") for part in _options(str(context.get("expected", "")))]
        like = nearest(str(error.get("input")), options)
        remedy = f"Did you mean {like}?" if like else f"One of {', '.join(options)}"
        return f"unknown {name.rsplit('.', 1)[-1]} {shown}", remedy
    for sign, text in _BOUNDS.items():
        if sign in context:
            bound = context[sign]
            limit = f"{bound:g}" if isinstance(bound, float) else str(bound)
            return f"{shown} is out of range; it must be {text} {limit}", ""
    if kind == "value_error":
        return str(context.get("error", "wrong value")), _number_trap(error.get("input"))
    if kind == "string_pattern_mismatch":
        return f"{shown} is not a name", "Letters, digits, dot, dash, underscore; at most 63"
    if kind in ("string_too_short", "too_short"):
        return "empty", "Write a value, or leave the key out"
    for start, text in _TYPES.items():
        if kind.startswith(start):
            return f"{shown} is not {text}", _type_remedy(start, error.get("input"))
    return str(error.get("msg", "wrong value")), ""


# The order is that of trial: pydantic gives one of them.
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "an amount of money in USD",
    "finite_number": "a number",
    "bool": "true or false",
    "string": "text",
    "path": "a path",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "model": "a section with keys of its own",
    "is_instance": "of the right kind",
}


def _type_remedy(kind: str, value: Any) -> str:
    if kind == "string" and isinstance(value, int | float):
        return "Put it in quotes"
    if kind in ("model", "dict"):
        return "Write its keys below it, indented"
    return _number_trap(value)


def _number_trap(value: Any) -> str:
    return why_not_a_number(value) if isinstance(value, str) else ""


def _options(expected: str) -> Iterable[str]:
    return expected.replace(" or ", ", ").split(", ")


def _similar(key: str, section: str) -> str | None:
    """Return the right key: in the same section, by another tool's name, elsewhere, in Axolotl."""
    keys = known_keys()
    prefix = f"{section}." if section else ""
    here = keys.get(section, ())
    if key in OTHER_NAMES:
        return OTHER_NAMES[key]
    near = nearest(key, here) or _begun(key, here)
    if near:
        return prefix + near
    everywhere = {name: f"{part}.{name}" if part else name for part in keys for name in keys[part]}
    if key in everywhere:
        return everywhere[key]
    if key in top_types():
        return f"axolotl.{key}"
    like = nearest(key, everywhere) or _begun(key, everywhere)
    if like:
        return everywhere[like]
    like = nearest(key, top_types())
    return f"axolotl.{like}" if like else None


def _begun(key: str, names: Iterable[str]) -> str | None:
    """Return the one name that begins with the key: max_price -> max_price_usd_per_hour."""
    found = [name for name in names if len(key) >= 4 and name.startswith(key)]
    return found[0] if len(found) == 1 else None


def _all_of(section: str) -> str:
    names = known_keys().get(section)
    return f"{section or 'A job file'} has {', '.join(names)}" if names else ""


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return "a list" if not isinstance(value, dict) else "a mapping"
    text = str(value) if not isinstance(value, str) else (value or "an empty text")
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 60 else f"{text[:57]}..."
