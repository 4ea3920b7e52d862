"""A person's own Axolotl file, named by `axolotl.config`: taken as it is wherever that can work.

Such a file has been run by hand. What it says about the training stands; what it says about places
(output_dir, local data, checkpoint folders) is brought to the instance's; what gpujob can't do yet
(pushes, gated models) is refused. Nothing of it is dropped without a note.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.axolotl_data import DS_TYPES
from jobs.axolotl_keys import Fault, check_keys
from jobs.axolotl_names import OWNED
from jobs.axolotl_removed import modernise
from jobs.load_paths import PathFault, absolute, data_file, kind
from jobs.spec import HUB_ID

# Refused, because the person would wait for what never comes.
REFUSED = ("hub_model_id", "hub_strategy", "hub_revision", "push_dataset_to_hub")
# Kept, because they are about the training.
KEPT = (
    "datasets",
    "test_datasets",
    "pretraining_dataset",
    "plugins",
    "save_steps",
    "saves_per_epoch",
    "save_strategy",
    "save_total_limit",
    "base_model",
)
SAVING = ("save_steps", "saves_per_epoch", "save_strategy", "save_total_limit")


@dataclass
class Own:
    """What the file says, in this version's words; local data as absolute paths."""

    base: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def method(self) -> str:
        """Return the method that the file trains with: qlora, lora or full."""
        adapter = self.base.get("adapter")
        return str(adapter) if adapter else "full"


def take(config: dict[str, Any], folders: tuple[Path, ...], *, job_has_data: bool) -> Own:
    """Return the file's content fit for a spec.

    folders: where its relative paths may start, in the order of trial: its own, the job file's.
    Axolotl takes them from where it is started, and that is usually one of the two.
    job_has_data: the job names its data, so the file's is left out.
    """
    own = Own()
    current, own.notes, own.faults = modernise(config)
    plugins = current.get("plugins")
    listed = plugins if isinstance(plugins, list) else []
    current, faults = check_keys(current, [name for name in listed if isinstance(name, str)])
    own.faults += faults
    for key in {str(fault.path[0]) for fault in faults}:  # what is left has the right types
        current.pop(key, None)
    for key in REFUSED:
        if current.pop(key, None):
            own.faults.append(Fault((key,), OWNED[key], "Leave it out"))
    if current.get("hf_use_auth_token"):
        own.faults.append(Fault(("hf_use_auth_token",), OWNED["hf_use_auth_token"], "Leave it out"))
    if job_has_data:
        _without_data(current, own)
    for key in [key for key in current if key in OWNED and key not in KEPT]:
        if current.pop(key) not in (None, False):
            own.notes.append(f"{key} is left out: {OWNED[key]}")
    if current.get("save_strategy") in ("no", "best"):
        own.notes.append(
            f"save_strategy: {current.pop('save_strategy')} is left out: an interrupted"
        )
        own.notes[-1] += " job goes on from its newest checkpoint"
    for key in ("datasets", "test_datasets"):
        for at, entry in enumerate(current.get(key) or []):
            _place(entry, (key, at), folders, own)
    _no_local_pretraining(current, own)
    own.base = inline_files(current, folders, own.notes)
    return own


def inline_files(
    config: dict[str, Any], folders: tuple[Path, ...], notes: list[str]
) -> dict[str, Any]:
    """Return the configuration with small files that it names written into it.

    A chat template and DeepSpeed's settings may be given as a file or as their content; a file here
    would not be found on the instance. What is no file here stays, and the rules refuse it.
    """
    result = dict(config)
    for key in ("chat_template_jinja", "deepspeed"):
        value = config.get(key)
        if not isinstance(value, str) or "{" in value:
            continue
        path = find(value, folders)
        if isinstance(path, PathFault) or kind(path) != "file" or path.stat().st_size > 1 << 20:
            continue
        try:
            text = path.read_text(encoding="utf-8")
            result[key] = json.loads(text) if key == "deepspeed" else text
        except (OSError, ValueError, RecursionError):
            continue
        notes.append(f"{key}: the content of {value} is sent with the job")
    return result


def _without_data(config: dict[str, Any], own: Own) -> None:
    for key in ("datasets", "test_datasets", "val_set_size", "pretraining_dataset"):
        if config.pop(key, None):
            own.notes.append(f"{key} is left out: the job file names its own data")


def find(text: str, folders: tuple[Path, ...]) -> Path | PathFault:
    """Return the path below the first folder that has it, else below the first."""
    tried = [absolute(text, folder) for folder in folders]
    for path in tried:
        if isinstance(path, Path) and kind(path) is not None:
            return path
    return tried[0]


def _place(
    entry: dict[str, Any], path: tuple[str, int], folders: tuple[Path, ...], own: Own
) -> None:
    """Make a local data set's path absolute; leave one of the hub."""
    text = entry.get("path")
    if not isinstance(text, str) or not text:
        return  # the rules say so
    if entry.get("data_files") is not None:
        own.faults.append(
            Fault((*path, "data_files"), "can't be sent along", "Name one file with path")
        )
        return
    where = find(text, folders)
    if isinstance(where, PathFault):
        own.faults.append(Fault((*path, "path"), where.message, where.remedy))
        return
    local = text.startswith((".", "/", "~")) or kind(where) is not None
    if not local and HUB_ID.fullmatch(text) and where.suffix.lower() not in DS_TYPES:
        own.notes.append(f"{text} is fetched from Hugging Face by the instance")
        return
    fault = data_file(where, text)
    if fault is not None:
        own.faults.append(Fault((*path, "path"), fault.message, fault.remedy))
        return
    entry["path"] = str(where)


def _no_local_pretraining(config: dict[str, Any], own: Own) -> None:
    for at, entry in enumerate(config.get("pretraining_dataset") or []):
        if str(entry.get("path", "")).startswith((".", "/", "~")):
            own.faults.append(
                Fault(
                    ("pretraining_dataset", at, "path"),
                    "a file here is not sent along",
                    "Use datasets with type: completion",
                )
            )
