"""What to take of what the instance offers. Its manifest is untrusted; this module is pure.

Taken: the files by which transformers and peft load a result, by their exact names, in the output
folder itself. Left: what is known to lie beside them and is of no use at home. Refused, so that
nothing is taken: paths that leave the folder or could be read in two ways, pickles (loading one
runs code), and counts or sizes beyond bounds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

GIB = 1 << 30
MAX_LISTED = 2000  # entries; the agent lists no more
MAX_PATH_CHARS = 300
MAX_TEXT_BYTES = 64 << 20  # a tokenizer.json has up to 35 MB (Gemma)
MAX_ADAPTER_BYTES = 64 * GIB  # rank 512 on all layers of a 405B model has some 40 GiB
MAX_MODEL_BYTES = 2048 * GIB  # a 1T model in 16 bits
MAX_SHARDS = 512
MAX_CHECKPOINT_TIMES = 8  # weights, gradients' master copies and two moments in fp32

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
MODEL_WEIGHTS = "model.safetensors"
MODEL_INDEX = "model.safetensors.index.json"
MODEL_CONFIG = "config.json"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")

# Tokenizer and template, of all kinds that transformers 5 writes.
_BESIDE = frozenset({
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
    "chat_template.jinja", "chat_template.json", "preprocessor_config.json",
    "processor_config.json", MODEL_CONFIG, "generation_config.json",
})  # fmt: skip
# What transformers needs beside the weights to go on from a checkpoint (Trainer._save_checkpoint),
# and what Axolotl adds. Pickles among them are carried unread: the next trainer loads them with
# torch's weights_only reader. training_args.bin is not among them, and is not needed.
_STATE = re.compile(
    r"trainer_state\.json|tokens_state\.json|optimizer\.(pt|bin)|scheduler\.pt|scaler\.pt"
    r"|rng_state(_\d{1,4})?\.pth|latest"
    r"|global_step\d{1,9}/[a-z0-9_]{1,80}_states\.pt"  # DeepSpeed ZeRO
    r"|(optimizer|pytorch_model_fsdp)_0/(__\d{1,4}_\d{1,4}\.distcp|\.metadata)"  # FSDP
)
TRAINER_STATE = "trainer_state.json"
_PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy"})
# transformers pickles its arguments beside the weights; harmless where it stays.
_LEFT_PICKLES = frozenset({"training_args.bin"})


class ArtifactsRefused(Exception):  # noqa: N818
    """What is offered is unsafe to take or beyond bounds; nothing is taken."""


class ArtifactsMissing(Exception):  # noqa: N818
    """What makes a result is not there or not whole."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file to bring home: its name in the output folder, and what its manifest promises."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What is taken, and the names of what is left behind."""

    wanted: tuple[Wanted, ...]
    left: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Return the size of what is taken."""
        return sum(file.bytes for file in self.wanted)


def choose(document: Any, *, adapter: bool) -> Choice:
    """Return what to take of a manifest, for an adapter or for a whole model.

    Raises ArtifactsRefused or ArtifactsMissing, in words that name the file.
    """
    entries = _entries(document)
    _check_unique([entry.path for entry in entries])
    wanted, left = [], []
    for entry in entries:
        if _is_taken(entry.path, adapter=adapter):
            _check_size(entry, adapter=adapter)
            wanted.append(entry)
        else:
            _check_left(entry.path)
            left.append(entry.path)
    choice = Choice(tuple(wanted), tuple(left))
    if choice.total_bytes > (MAX_ADAPTER_BYTES if adapter else MAX_MODEL_BYTES):
        raise ArtifactsRefused(f"{choice.total_bytes:,} bytes in all, beyond every bound")
    _check_whole({file.path for file in wanted}, adapter=adapter)
    return choice


def choose_checkpoint(document: Any, *, adapter: bool) -> Choice:
    """Return what to take of a checkpoint's manifest: weights and the trainer's state.

    Raises ArtifactsRefused, and ArtifactsMissing where it is not whole (pruned meanwhile).
    """
    entries = _entries(document)
    _check_unique([entry.path for entry in entries])
    wanted = []
    for entry in entries:
        if _is_taken(entry.path, adapter=adapter):
            _check_size(entry, adapter=adapter)
            wanted.append(entry)
        elif _STATE.fullmatch(entry.path):
            wanted.append(entry)
    choice = Choice(tuple(wanted), ())
    if choice.total_bytes > MAX_CHECKPOINT_TIMES * MAX_MODEL_BYTES:
        raise ArtifactsRefused(f"{choice.total_bytes:,} bytes in all, beyond every bound")
    names = {file.path for file in wanted}
    if TRAINER_STATE not in names:
        raise ArtifactsMissing(f"the checkpoint has no {TRAINER_STATE}")
    if adapter:
        _check_whole(names, adapter=True)
    return choice


def _entries(document: Any) -> list[Wanted]:
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, list):
        raise ArtifactsRefused("the manifest has no list of files")
    if len(files) > MAX_LISTED:
        raise ArtifactsRefused(f"the manifest lists {len(files):,} files, at most {MAX_LISTED:,}")
    return [_entry(file) for file in files]


def _entry(file: Any) -> Wanted:
    if not isinstance(file, Mapping):
        raise ArtifactsRefused("an entry of the manifest is no object")
    path, size, sha256 = file.get("path"), file.get("bytes"), file.get("sha256")
    if not isinstance(path, str):
        raise ArtifactsRefused("an entry of the manifest has no path")
    _check_path(path)
    if type(size) is not int or size < 0:
        raise ArtifactsRefused(f"{path}: its size is no number")
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ArtifactsRefused(f"{path}: its sha256 is none")
    return Wanted(path, size, sha256)


def _check_path(path: str) -> None:
    """Refuse a path that could leave the folder, or mean different things to different readers."""
    shown = ascii(path[:80])
    if not path or len(path) > MAX_PATH_CHARS:
        raise ArtifactsRefused(f"a path of {len(path):,} characters: {shown}")
    if "\\" in path or ":" in path:
        raise ArtifactsRefused(f"a path with a backslash or a colon: {shown}")
    if any(unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" for char in path):
        raise ArtifactsRefused(f"a path with control characters: {shown}")
    parts = path.split("/")
    if path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        raise ArtifactsRefused(f"a path that leaves its folder: {shown}")
    if any(part != part.strip() or part.endswith(".") for part in parts):
        raise ArtifactsRefused(f"a path with blanks or dots at an end: {shown}")


def _check_unique(paths: list[str]) -> None:
    """Refuse names that a file system without case, or with normal forms, would take as one."""
    seen: dict[str, str] = {}
    for path in paths:
        key = unicodedata.normalize("NFKC", path).casefold()
        if key in seen:
            raise ArtifactsRefused(f"two files of one name: {seen[key]!a} and {path!a}")
        seen[key] = path


def _is_taken(path: str, *, adapter: bool) -> bool:
    if path in _BESIDE:
        return True
    if adapter:
        return path in {ADAPTER_WEIGHTS, ADAPTER_CONFIG}
    return path in {MODEL_WEIGHTS, MODEL_INDEX} or bool(_SHARD.fullmatch(path))


def _check_size(entry: Wanted, *, adapter: bool) -> None:
    weights = entry.path.endswith(".safetensors")
    limit = (MAX_ADAPTER_BYTES if adapter else MAX_MODEL_BYTES) if weights else MAX_TEXT_BYTES
    if entry.bytes > limit:
        raise ArtifactsRefused(f"{entry.path}: {entry.bytes:,} bytes, at most {limit:,}")
    if not entry.bytes:
        raise ArtifactsMissing(f"{entry.path} is empty")


def _check_left(path: str) -> None:
    name = PurePosixPath(path).name
    if PurePosixPath(name).suffix.lower() in _PICKLES and name not in _LEFT_PICKLES:
        message = f"{path}: a pickle, and loading one runs whatever code is in it"
        raise ArtifactsRefused(f"{message}; only safetensors are taken")


def _check_whole(names: set[str], *, adapter: bool) -> None:
    if adapter:
        missing = {ADAPTER_WEIGHTS, ADAPTER_CONFIG} - names
    elif MODEL_INDEX in names:
        missing = {MODEL_CONFIG} - names
        shards = sum(1 for name in names if _SHARD.fullmatch(name))
        if shards > MAX_SHARDS:
            raise ArtifactsRefused(f"{shards:,} shards, at most {MAX_SHARDS}")
    else:
        missing = {MODEL_WEIGHTS, MODEL_CONFIG} - names
    if missing:
        raise ArtifactsMissing(f"the output has no {', no '.join(sorted(missing))}")
