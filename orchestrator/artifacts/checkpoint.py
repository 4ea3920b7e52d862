"""Checkpoints at home: each is there whole or not at all, and the newest whole one is found again.

A checkpoint is fetched into `checkpoint-<step>.part`, its manifest is written last, and it appears
under its name by one rename. An older one goes only after a newer one is whole. What is pickled in
it is carried unread: nothing here loads it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.agent.weights import BadWeights, check_weights
from orchestrator.artifacts.collect import SPARE_BYTES, fetch, sync
from orchestrator.artifacts.manifest import ArtifactsRefused, Choice, choose_checkpoint
from orchestrator.clock import Clock
from orchestrator.remote import Shell

MANIFEST = "gpujob-manifest.json"
SCHEMA = 1
_NAME = re.compile(r"checkpoint-(\d{1,9})")


class NotYetWhole(Exception):  # noqa: N818 - no error: the rest comes with the next call
    """The time of one call is used up; what came so far stays."""


def bring(
    shell: Shell,
    remote: str,
    folder: Path,
    step: int,
    document: Any,
    *,
    adapter: bool,
    enough: Callable[[], bool],
) -> int:
    """Bring the checkpoint of `step` from the folder `remote` into `folder`; returns its bytes.

    document: the instance's manifest of it. enough: asked now and then; when it says so
    NotYetWhole is raised, and a later call goes on. Raises ArtifactsRefused, ArtifactsMissing,
    ShellError, OSError.
    """
    choice = choose_checkpoint(document, adapter=adapter)
    part = folder / f"checkpoint-{step}.part"
    part.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_room(part, choice)

    def progress(_done: int, _total: int) -> None:
        if enough():
            raise NotYetWhole

    for wanted in choice.wanted:
        place = part / wanted.path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fetch(shell, f"{remote}/{wanted.path}", place, wanted, progress)
        sync(place)
    try:
        finite = check_weights(str(part), adapter=adapter).finite
    except BadWeights as bad:
        raise ArtifactsRefused(f"checkpoint {step} is damaged: {bad}") from bad
    if not finite:
        raise ArtifactsRefused(f"checkpoint {step} holds NaN or infinite values")
    publish(part, folder / f"checkpoint-{step}", step, choice)
    return choice.total_bytes


def pace(clock: Clock, at_least_s: float) -> Callable[[], bool]:
    """Return an `enough` for one call of `bring`: asked whenever bytes moved.

    What is there already is hashed anew before a byte moves. As much time as that took is given to
    moving, so that a large checkpoint comes home however little of it fits into `at_least_s`.
    """
    began = clock.monotonic()
    first: list[float] = []

    def enough() -> bool:
        now = clock.monotonic()
        first[:] = first or [now]
        return now - first[0] >= max(at_least_s, first[0] - began)

    return enough


def newest(folder: Path) -> Path | None:
    """Return the newest checkpoint in `folder` that is whole by its manifest, or None.

    One that is not whole is passed over: the one before it serves. Reads every byte.
    """
    for step in sorted(steps_in(folder), reverse=True):
        path = folder / f"checkpoint-{step}"
        if is_whole(path):
            return path
    return None


def is_whole(path: Path) -> bool:
    """Return whether every file that the manifest of a checkpoint lists is there, by its hash."""
    try:
        document = json.loads((path / MANIFEST).read_bytes())
        listed = [(str(f["path"]), int(f["bytes"]), str(f["sha256"])) for f in document["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(listed) and all(_matches(path / name, size, sha) for name, size, sha in listed)


def files_of(path: Path) -> list[Path]:
    """Return the files of a checkpoint, without its manifest, which is ours alone."""
    return sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)


def step_of(path: Path) -> int:
    """Return the step of a checkpoint's folder."""
    return int(path.name.removeprefix("checkpoint-"))


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what is left of unfinished older ones."""
    steps = sorted(steps_in(folder))
    for step in steps[:-keep] if keep else []:
        shutil.rmtree(folder / f"checkpoint-{step}")
    for path in folder.glob("checkpoint-*.part"):
        name = _NAME.fullmatch(path.stem)
        if steps and name and int(name[1]) <= steps[-1]:
            shutil.rmtree(path)


def publish(part: Path, target: Path, step: int, choice: Choice) -> None:
    """Write the manifest of what lies whole in `part`, last, and give it its name."""
    names = {wanted.path for wanted in choice.wanted}
    for path in sorted(part.rglob("*"), reverse=True):  # left by a call with another manifest
        if path.is_file() and path.relative_to(part).as_posix() not in names:
            path.unlink()
    files = [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in choice.wanted]
    document = {"schema": SCHEMA, "step": step, "files": files}
    (part / MANIFEST).write_text(json.dumps(document, indent=1) + "\n")
    sync(part / MANIFEST)
    sync(part)
    if target.exists():  # of an attempt that had to begin anew: this one is newer
        shutil.rmtree(target)
    part.rename(target)
    sync(target.parent)


def steps_in(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder."""
    if not folder.is_dir():
        return []
    named = [_NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()]
    return [int(name[1]) for name in named if name]


def _check_room(part: Path, choice: Choice) -> None:
    have = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    need, free = choice.total_bytes - have + SPARE_BYTES, shutil.disk_usage(part).free
    if need > free:
        message = f"the checkpoint needs {need:,} bytes here, {part.parent} has {free:,} free"
        raise OSError(28, message)


def _matches(path: Path, size: int, sha256: str) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
