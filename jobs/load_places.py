"""The places a job file names: base model, data, output. Returned as absolute paths, or found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jobs.axolotl_tokenizer import has_chat_template
from jobs.load_axolotl import AxolotlPart
from jobs.load_draft import Draft
from jobs.load_paths import PathFault, absolute, data_file, model, output
from jobs.load_records import first_record, lacking, recognise
from jobs.load_words import MISSING, remote_path
from jobs.spec import Data, DataFormat
from jobs.targets import BadTarget, is_target, target

_PLACES = "Name a folder, s3://bucket/prefix or hf://user/repo"


def check_model(draft: Draft, part: AxolotlPart) -> str | None:
    """Return the model as an id of the hub or as an absolute folder."""
    text = draft.get("model")
    if text is None:
        if not part.names_file:
            draft.find(("model",), "missing", MISSING["model"])
        return None
    if not isinstance(text, str) or not text.strip():
        return None  # pydantic says it
    if remote_path(text):
        draft.find(
            ("model",), f"{text}: only Hugging Face ids and folders are built", "Say owner/name"
        )
        return None
    folders = [draft.folder]
    from_file = part.own is not None and part.own.base.get("base_model") == text
    if from_file and part.config is not None:
        folders.insert(0, part.config.parent)
    tried = [model(text.strip(), folder) for folder in folders]
    good = [found for found in tried if isinstance(found, str)]
    local = [found for found in good if found.startswith("/")]
    if good:
        return (local or good)[0]
    fault = tried[0]
    assert isinstance(fault, PathFault)  # noqa: S101 - the texts were taken above
    draft.find(("model",), fault.message, fault.remedy)
    return None


def check_data(draft: Draft, part: AxolotlPart) -> dict[str, Any] | None:
    """Return the data section with absolute paths."""
    section = dict(draft.values.get("data", {}))
    if section.get("train") is None:
        if not part.names_file:
            draft.find(("data", "train"), "missing", MISSING["data.train"])
        else:
            for key in ("format", "columns", "validation"):
                if key in section:
                    draft.find(
                        ("data", key),
                        "belongs to data.train, which is not given",
                        f"Say it in {part.document.file if part.document else 'your file'}",
                    )
            section.setdefault("validation", 0.0)
        return section
    for key in ("train", "validation"):
        value = section.get(key)
        if isinstance(value, str):
            path = _record_file(draft, key, value)
            if path is None:
                section.pop(key)
            else:
                section[key] = path
    if section.get("validation") is not None and section.get("validation") == section.get("train"):
        draft.find(
            ("data", "validation"),
            "is the same file as data.train",
            "Held-back records must not be learnt; name another file, or a fraction",
        )
    return section


def check_output(draft: Draft) -> list[str] | None:
    """Return the places of the result, folders as absolute paths, the one it comes to first ahead.

    Where no folder is named, that is `out` beside the job file.
    """
    value = draft.get("output")
    named = ["out"] if value is None else value if isinstance(value, list) else [value]
    if not named or not all(isinstance(text, str) and text.strip() for text in named):
        return None  # pydantic says it
    places = [_place(draft, text.strip()) for text in named]
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        return None
    if len(set(found)) < len(found):
        draft.find(("output",), "the same place is named twice", "Keep one of them")
        return None
    folders = [place for place in found if not is_target(place)]
    home = folders[0] if folders else _place(draft, "out")
    return None if home is None else [home, *(place for place in found if place != home)]


def _place(draft: Draft, text: str) -> str | None:
    """Return one place in its one form; None where it can't be used, and found."""
    if is_target(text):
        try:
            return str(target(text))
        except BadTarget as bad:
            draft.find(("output",), str(bad), bad.remedy)
            return None
    if remote_path(text):
        draft.find(("output",), f"{text}: this kind of address is not known", _PLACES)
        return None
    path = absolute(text, draft.folder)
    fault = path if isinstance(path, PathFault) else output(path, text)
    if fault is not None:
        draft.find(("output",), fault.message, fault.remedy)
        return None
    return str(path)


def check_format(draft: Draft, part: AxolotlPart, values: dict[str, Any]) -> None:
    """Find a format that is missing or does not fit the first records; note a missing template."""
    try:
        data = Data.model_validate(values.get("data", {}))
    except ValidationError:
        return  # found where the whole spec is validated
    if data.train is None:
        return
    if data.format is None:
        guess = _guess(first_record(data.train))
        remedy = f"{data.train.name} looks like {guess}" if guess else MISSING["data.format"]
        draft.find(("data", "format"), "missing", remedy)
        return
    for path in (data.train, data.validation):
        if isinstance(path, Path):
            _fits(draft, data, path)
    chat = data.format in (DataFormat.CHAT, DataFormat.SHAREGPT)
    folder = str(values.get("model", ""))
    if chat and folder.startswith("/") and not has_chat_template(Path(folder)):
        said = {**(part.own.base if part.own else {}), **part.keys}
        if not said.get("chat_template") and not said.get("chat_template_jinja"):
            draft.notes.append("the model has no chat template of its own; ChatML is used")


def _fits(draft: Draft, data: Data, path: Path) -> None:
    record = first_record(path)
    if record is None or data.format is None:
        return
    like, guess = recognise(record), _guess(record)
    missing = lacking(record, data)
    if missing:
        draft.find(
            ("data", "format"),
            f"{data.format} needs the column {missing[0]}; the first record of {path.name} "
            f"has {', '.join(list(record)[:8]) or 'none'}",
            f"It looks like {guess}" if guess else "Name your columns with data.columns",
        )
    elif {like, data.format} == {DataFormat.CHAT, DataFormat.SHAREGPT} and not data.columns:
        draft.find(
            ("data", "format"),
            f"is {data.format}, but the turns of {path.name} are not",
            f"It looks like {guess}",
        )


def _guess(record: dict[str, Any] | None) -> str:
    """Return what a record looks like, as a person would write it; "" where nothing is known."""
    like = recognise(record) if record else None
    if record is None or like is None:
        return ""
    if like is DataFormat.CHAT and "messages" not in record:
        return "chat with columns: {messages: conversations}"
    if like is DataFormat.SHAREGPT and "conversations" not in record:
        return "sharegpt with columns: {conversations: messages}"
    return like.value


def _record_file(draft: Draft, key: str, text: str) -> str | None:
    if remote_path(text):
        draft.find(("data", key), f"{text}: only files on this machine are built", "Fetch it first")
        return None
    path = absolute(text.strip(), draft.folder)
    fault = path if isinstance(path, PathFault) else data_file(path, text)
    if fault is not None:
        draft.find(("data", key), fault.message, fault.remedy)
        return None
    return str(path)
