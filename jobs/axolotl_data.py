"""Records -> Axolotl's `datasets`: one entry for each format, and the local files they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from jobs.spec import DataFormat, JobSpec

Config = dict[str, Any]
Place = Callable[[str, Path | str], str]  # (name, local file) -> path on the instance

# Which reader of `datasets` takes a file, by suffix.
DS_TYPES = {
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
}
# The model's own template where it has one, ChatML where it has none.
CHAT_TEMPLATE = "tokenizer_default_fallback_chatml"

# The prompt of the Alpaca format (Stanford, 2023), as Axolotl's type `alpaca` writes it; needed in
# full only where the columns have other names, which that type can't take.
_ALPACA_TASK = "Below is an instruction that describes a task"
_ALPACA_DO = "Write a response that appropriately completes the request."
_ALPACA_INPUT = (
    f"{_ALPACA_TASK}, paired with an input that provides further context. {_ALPACA_DO}\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
_ALPACA_PLAIN = (
    f"{_ALPACA_TASK}. {_ALPACA_DO}\n\n### Instruction:\n{{instruction}}\n\n### Response:\n"
)
_NO_COLUMN = "gpujob no such column"  # Axolotl would take a column `system` into the prompt


def data(spec: JobSpec, place: Place) -> Config:
    """Return datasets, what is held back, and how the loss treats the prompt."""
    train, held_back = spec.data.train, spec.data.validation
    if train is None or spec.data.format is None:
        return {}
    section: Config = {"datasets": [dataset(spec, place("train", train))]}
    if isinstance(held_back, Path):
        section["test_datasets"] = [dataset(spec, place("validation", held_back))]
        section["val_set_size"] = 0
    else:
        section["val_set_size"] = held_back
    section["train_on_inputs"] = spec.data.train_on_inputs
    section["excess_length_strategy"] = "drop"
    if spec.data.format in (DataFormat.CHAT, DataFormat.SHAREGPT):
        # Above the datasets too, so that the template is saved with the result.
        section["chat_template"] = section["datasets"][0]["chat_template"]
    return section


def dataset(spec: JobSpec, remote: str) -> Config:
    """Return one entry of `datasets` for a file at its place on the instance."""
    assert spec.data.format is not None  # noqa: S101 - load_job refuses data without a format
    entry = {"path": remote, "ds_type": DS_TYPES.get(PurePosixPath(remote).suffix, "json")}
    return {**entry, "split": "train", **TYPES[spec.data.format](spec)}


def files(spec: JobSpec, place: Place) -> list[tuple[Path, str]]:
    """Return the local data files with their places on the instance."""
    listed = [
        (Path(entry["path"]), place(f"{key}-{at}", entry["path"]))
        for key in ("datasets", "test_datasets")
        for at, entry in enumerate(spec.axolotl.base.get(key) or [])
        if is_local(entry)
    ]
    named = [("train", spec.data.train), ("validation", spec.data.validation)]
    return listed + [(path, place(name, path)) for name, path in named if isinstance(path, Path)]


def rebased(spec: JobSpec, place: Place) -> Config:
    """Return the datasets of the person's own file, the local ones at their places."""
    section: Config = {}
    for key in ("datasets", "test_datasets"):
        entries = spec.axolotl.base.get(key)
        if entries:
            section[key] = [
                {**entry, "path": place(f"{key}-{at}", entry["path"])} if is_local(entry) else entry
                for at, entry in enumerate(entries)
            ]
    return section


def is_local(entry: Config) -> bool:
    """Return whether a dataset is a file here; load_job has made such paths absolute."""
    return str(entry.get("path", "")).startswith("/")


def _name(spec: JobSpec, column: str) -> str:
    return spec.data.columns.get(column, column)


def _alpaca(spec: JobSpec) -> Config:
    if not spec.data.columns:
        return {"type": "alpaca"}
    return _prompted(spec, "instruction", "input", "output", _ALPACA_INPUT, _ALPACA_PLAIN)


def _prompt_completion(spec: JobSpec) -> Config:
    plain = "{instruction}"
    return _prompted(spec, "prompt", _NO_COLUMN, "completion", plain, plain)


def _prompted(  # noqa: PLR0917 - five columns and texts of one shape
    spec: JobSpec, prompt: str, more: str, answer: str, text: str, plain: str
) -> Config:
    return {
        "type": {
            "field_instruction": _name(spec, prompt),
            "field_input": _name(spec, more),
            "field_output": _name(spec, answer),
            "field_system": _NO_COLUMN,
            "system_prompt": "",
            "format": text,
            "no_input_format": plain,
        }
    }


def _conversation(field: str, role: str, content: str) -> Callable[[JobSpec], Config]:
    def entry(spec: JobSpec) -> Config:
        chosen = {**spec.axolotl.base, **spec.axolotl.keys}
        section: Config = {
            "type": "chat_template",
            "chat_template": chosen.get("chat_template") or CHAT_TEMPLATE,
            "field_messages": _name(spec, field),
            "message_property_mappings": {
                "role": _name(spec, role),
                "content": _name(spec, content),
            },
        }
        if chosen.get("chat_template_jinja"):
            section["chat_template"] = "jinja"
            section["chat_template_jinja"] = chosen["chat_template_jinja"]
        return section

    return entry


def _completion(spec: JobSpec) -> Config:
    return {"type": "completion", "field": _name(spec, "text")}


def _segments(_spec: JobSpec) -> Config:
    return {"type": "input_output"}


TYPES: dict[DataFormat, Callable[[JobSpec], Config]] = {
    DataFormat.ALPACA: _alpaca,
    DataFormat.CHAT: _conversation("messages", "role", "content"),
    DataFormat.SHAREGPT: _conversation("conversations", "from", "value"),
    DataFormat.PROMPT_COMPLETION: _prompt_completion,
    DataFormat.COMPLETION: _completion,
    DataFormat.SEGMENTS: _segments,
}
