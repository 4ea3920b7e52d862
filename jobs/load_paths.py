"""Paths of a job file: relative to it, `~` for the home folder, nothing else expanded.

Every check here looks at the disk and leaves nothing on it.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jobs.axolotl_data import DS_TYPES
from jobs.spec import HUB_ID

Kind = Literal["file", "folder", "other"]
WEIGHTS = (".safetensors", ".bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


@dataclass(frozen=True, slots=True)
class PathFault:
    """What is wrong with a path, and what to do."""

    message: str
    remedy: str = ""


def absolute(text: str, folder: Path) -> Path | PathFault:
    """Return the absolute path for a text of the job file that lies in `folder`."""
    if "\0" in text:
        return PathFault("a path can't hold a NUL character")
    if "$" in text:
        return PathFault(
            f"{text}: environment variables are not expanded", "Write the path out, or use ~"
        )
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        return PathFault(f"{text}: no such user", "Write the path out")
    # Not resolve(): links stay, so that messages show the path that the person knows.
    return Path(os.path.abspath(folder / path))  # noqa: PTH100


def kind(path: Path) -> Kind | None:
    """Return what lies at the path, symlinks followed; None where nothing can be seen."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def data_file(path: Path, shown: str) -> PathFault | None:
    """Return what keeps the path from being a file of records."""
    found = kind(path)
    if found is None:
        return PathFault(f"{shown}: no such file", f"Looked for {path}")
    if found != "file":
        return PathFault(f"{shown} is a {found}, not a file", "Name one file of records")
    if path.suffix.lower() not in DS_TYPES:
        return PathFault(
            f"{shown}: the kind of file is not known", f"Known are {', '.join(DS_TYPES)}"
        )
    if not os.access(path, os.R_OK):
        return PathFault(f"{shown} can't be read", "Check its permissions")
    if path.stat().st_size == 0:
        return PathFault(f"{shown} is empty", "Put records into it")
    return None


def model(text: str, folder: Path) -> str | PathFault:
    """Return the model's id on the hub, or its folder as an absolute path."""
    looks_local = text.startswith((".", "/", "~")) or text.endswith("/") or "\\" in text
    path = absolute(text, folder)
    if isinstance(path, PathFault):
        return path
    found = kind(path)
    if not looks_local and found != "folder":
        if HUB_ID.fullmatch(text):
            return text
        return PathFault(
            f"{text} is neither a folder nor an id of Hugging Face", "Ids look like owner/name"
        )
    if found is None:
        return PathFault(f"{text}: no such folder", f"Looked for {path}")
    if found != "folder":
        return PathFault(f"{text} is a {found}, not a folder", "Name the folder of the model")
    fault = _model_folder(path, text)
    return str(path) if fault is None else fault


def output(path: Path, shown: str) -> PathFault | None:
    """Return what keeps the folder from being made or written."""
    for place in (path, *path.parents):
        found = kind(place)
        if found is None and not os.path.lexists(place):
            continue
        where = shown if place == path else f"{shown}: {place}"
        if found != "folder":
            return PathFault(f"{where} is a {found or 'broken link'}, not a folder", "Name another")
        why = _unwritable(place)
        if why is None:
            return None
        return PathFault(f"{where} can't be written{why}", "Check its permissions, or name another")
    return PathFault(f"{shown} can't be made", "Name another folder")


def _unwritable(folder: Path) -> str | None:
    """Return why nothing can be made in a folder (": read-only"), None where something can.

    Tried, since permissions do not tell all: not for root, nor on a file system of its own kind.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        return ""
    try:
        Path(tempfile.mkdtemp(prefix=".gpujob-", dir=folder)).rmdir()
    except OSError as error:
        return f": {error.strerror}" if error.strerror else ""
    return None


def _model_folder(path: Path, shown: str) -> PathFault | None:
    try:
        text = (path / "config.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return PathFault(
            f"{shown} has no config.json", "Name a folder in the format of Hugging Face"
        )
    try:
        valid = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        valid = False
    if not valid:
        return PathFault(f"{shown}/config.json is not valid JSON", "Fetch the model anew")
    names = list(_names(path))
    if not any(name.endswith(WEIGHTS) for name in names):
        return PathFault(f"{shown} has no weights", "A *.safetensors file must lie in it")
    if not any(name in names for name in TOKENIZERS):
        return PathFault(f"{shown} has no tokenizer", "Put the model's tokenizer files into it")
    return None


def _names(folder: Path) -> Iterator[str]:
    try:
        for entry in folder.iterdir():
            yield entry.name
    except OSError:
        return
