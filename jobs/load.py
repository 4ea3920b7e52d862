"""A job file -> JobSpec, with every fault found in one pass and each at its line.

Effects: reads the job file, the Axolotl file it names, small files of a local model, the first
record of the data. Writes nothing, calls nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jobs import load_set
from jobs.axolotl import Layout, axolotl_config
from jobs.axolotl_fold import effective
from jobs.axolotl_rules import check_config
from jobs.findings import Finding, JobFileError
from jobs.load_axolotl import AxolotlPart, take_axolotl
from jobs.load_draft import Draft
from jobs.load_limits import check_limits
from jobs.load_places import check_data, check_format, check_model, check_output
from jobs.load_secrets import MESSAGE, REMEDY, secrets_of
from jobs.load_words import MISSING, known_keys, unknown, words
from jobs.load_yaml import MAX_BYTES, KeyPath, parse
from jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job file that can be used. `notes` tell what was put right or left out, for the screen."""

    spec: JobSpec
    path: Path
    text: str
    lines: Mapping[KeyPath, int] = field(repr=False)
    notes: tuple[str, ...] = ()

    def line_of(self, name: str) -> int | None:
        """Return the line of a key like `training.lora_r`; None where the file does not say it."""
        return self.lines.get(tuple(name.split(".")))


def load_job(path: Path, overrides: Sequence[str] = ()) -> LoadedJob:
    """Return the job that the file describes, `--set` overrides laid over it.

    Raises JobFileError, and nothing else, with every finding. Relative paths count from the file.
    """
    text = _read(path)
    document = parse(text, str(path))
    if document.findings and document.value is None:
        raise JobFileError(document.findings)
    if document.value is None and not overrides:
        raise JobFileError([Finding(str(path), None, "", "the file is empty", _START)])
    if not isinstance(document.value, dict | None):
        raise JobFileError(
            [
                Finding(
                    str(path),
                    1,
                    "",
                    "a job file is made of keys and values, like name: my-job",
                    _START,
                )
            ]
        )
    origins = load_set.apply(document, tuple(overrides))
    draft = Draft(document, path.absolute().parent, origins)
    draft.values = _known(draft)
    part = take_axolotl(draft)
    spec = _spec(draft, part)
    if spec is None or document.findings:
        raise JobFileError(document.findings)
    return LoadedJob(spec, path, text, document.lines, tuple(draft.notes))


_START = "`gpujob init` writes one to start from"


def _read(path: Path) -> str:
    """Return the file's text; raises JobFileError where it can't be had."""

    def fail(message: str, remedy: str = "", line: int | None = None) -> JobFileError:
        return JobFileError([Finding(str(path), line, "", message, remedy)])

    try:
        if path.is_dir():
            raise fail("is a folder, not a file", "Name the job file in it")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise fail("no such file", _START) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail(f"can't be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise fail("is larger than 1 MiB", "A job file is a page; is this the data?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise fail("is not UTF-8 text", "Save it as UTF-8", line) from None


def _known(draft: Draft) -> dict[str, Any]:
    """Return the values without unknown keys, nulls and wrong sections, each of them found."""
    known = known_keys()
    result: dict[str, Any] = {}
    for key, value in (draft.document.value or {}).items():
        if key not in known[""]:
            draft.find((key,), *unknown((key,)))
        elif value is None:
            continue  # a section whose keys are all commented out
        elif key not in known:
            result[key] = value
        elif not isinstance(value, dict):
            draft.find((key,), "is a section with keys of its own", "Write them below, indented")
        else:
            result[key] = {}
            for name, item in value.items():
                if name not in known[key]:
                    draft.find((key, name), *unknown((key, name)))
                elif item is not None:
                    result[key][name] = item
    return result


def _spec(draft: Draft, part: AxolotlPart) -> JobSpec | None:
    """Return the spec with effective values; None where something is wrong, and found."""
    _contradictions(draft)
    for path in secrets_of({key: v for key, v in draft.values.items() if key != "axolotl"}):
        draft.find(path, MESSAGE, REMEDY)
    if draft.get("name") is None:
        draft.find(("name",), "missing", MISSING["name"])
    if draft.get("method") is None and not part.names_file:
        draft.find(("method",), "missing", MISSING["method"])
    places = {
        "model": check_model(draft, part),
        "data": check_data(draft, part),
        "output": check_output(draft),
    }
    values = {**draft.values, **{key: value for key, value in places.items() if value is not None}}
    check_format(draft, part, values)
    spec = _validated(draft, values, part)
    if spec is None:
        return None
    spec = part.finish(spec, draft)
    wrong = bool(draft.document.findings)  # then what was derived says nothing new
    for fault in check_config(axolotl_config(spec, layout=Layout("/"), stack="cuda")):
        if part.says(fault) or not wrong:
            part.find(draft, fault)
    if draft.document.findings:
        return None
    try:
        return effective(spec)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            draft.find(("axolotl",), *words(found))
        return None


def _validated(draft: Draft, values: dict[str, Any], part: AxolotlPart) -> JobSpec | None:
    """Return the spec; where it is wrong, one without the wrong values: the rest is still checked.

    What it lacks is filled with stand-ins. The findings keep such a spec from being used.
    """
    whole = {**values, "axolotl": part.section}
    try:
        return JobSpec.model_validate(whole)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path = _path_of(fault["loc"])
            absent = fault["type"] == "missing" and part.names_file  # found in that file
            if not absent and not draft.has(path):
                draft.find(path, *words({**fault, "loc": path}))
            _remove(whole, path)
    try:
        return JobSpec.model_validate({**_STAND_INS, **whole})
    except ValidationError:
        return None


_STAND_INS = {"name": "unnamed", "model": "owner/name", "method": "lora"}


def _remove(values: dict[str, Any], path: KeyPath) -> None:
    here: Any = values
    for part in path[:2][:-1]:
        here = here.get(part) if isinstance(here, dict) else None
    if path and isinstance(here, dict):
        here.pop(path[:2][-1], None)


def _path_of(location: tuple[int | str, ...]) -> KeyPath:
    """Return the key's path; pydantic adds names of union members, which no file has."""
    known = known_keys()
    kept: list[str | int] = []
    for part in location:
        allowed = known[""] if not kept else known.get(str(kept[0]), ())
        if isinstance(part, int) or (len(kept) < 2 and part in allowed):
            kept.append(part)
    return tuple(kept)


def _contradictions(draft: Draft) -> None:
    """Find keys that can't stand together; only what the file really says counts."""
    training = draft.values.get("training", {})
    if "epochs" in training and "max_steps" in training:
        by_hand = [key for key in ("epochs", "max_steps") if ("training", key) in draft.origins]
        if len(by_hand) == 1:  # --set training.max_steps=20 means that, and not the file's epochs
            del training["epochs" if by_hand == ["max_steps"] else "max_steps"]
        else:
            draft.find(
                ("training", "max_steps"), "epochs and max_steps are both given", "Keep one of them"
            )
            del training["max_steps"]
    check_limits(draft)
    if draft.get("method") == "full":
        for key in [key for key in training if key.startswith("lora_")]:
            draft.find(("training", key), "method is full, which trains no adapter", "Leave it out")
