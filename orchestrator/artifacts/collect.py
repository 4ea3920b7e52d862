"""Bringing a result home: fetch, compare hashes, check the weights, describe, put in place whole.

Everything happens in `<folder>.part`, which a later call continues; the folder itself appears by
one rename. What is already in the person's way is never touched: the next free name is taken.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.weights import BadWeights, check_weights
from orchestrator.artifacts.manifest import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    ArtifactsMissing,
    ArtifactsRefused,
    Choice,
    Wanted,
    choose,
    choose_checkpoint,
)
from orchestrator.artifacts.scrub import scrub
from orchestrator.remote import Progress, RemoteFailed, Shell, shifted
from orchestrator.site import Collected

log = logging.getLogger("gpujob.collect")

MANIFEST = "manifest.json"
BEST = "best"  # the folder of the adapter with the best evaluation, beside the last one
SCHEMA = 1
SPARE_BYTES = 64 << 20  # left free on the person's disk
NAMES = 100  # out, out-2, ... out-100

File = tuple[str, int, str]  # path, bytes, sha256


@dataclass(frozen=True, slots=True)
class Result:
    """What a result is made of.

    own: returns the files of ours that go with it, by name, told the step of the adapter that lies
    in BEST, None where none does. best_step: the step of the best evaluation, if not the last's.
    """

    job: str
    adapter: bool
    base_model: str  # as the person named it; a bare name for a folder
    own: Callable[[int | None], Mapping[str, bytes]] | None = None
    best_step: Callable[[], int | None] | None = None


def collect(
    shell: Shell,
    remote: str,
    folder: Path,
    manifest: Any,
    result: Result,
    *,
    progress: Progress | None = None,
    listed: Callable[[int], Any] | None = None,
) -> Collected:
    """Bring home what `manifest` offers of the output folder `remote`.

    `folder` is the place wished for; the answer names the one taken. Idempotent. listed: returns
    the manifest of a checkpoint, from which the best adapter is fetched beside the last. Raises
    ArtifactsRefused, ArtifactsMissing, ShellError, and OSError for trouble with the local disk.
    """
    choice = choose(manifest, adapter=result.adapter)
    target = folder
    for target in _names(folder):
        done = _finished(target, choice, result)
        if done is not None:
            return Collected(target, done)
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            break
    else:
        raise FileExistsError(f"{folder} and {NAMES - 1} names after it are taken")
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():
        raise ArtifactsRefused(f"{part} is a symlink")
    _check_room(part, choice)
    before = 0
    for wanted in choice.wanted:
        step = shifted(progress, before, choice.total_bytes)
        fetch(shell, f"{remote}/{wanted.path}", part / wanted.path, wanted, step)
        before += wanted.bytes
    _check_weights(part, choice, result)
    best = _bring_best(shell, remote, part, result, listed)
    files = _finish(part, choice, result, remote, best)
    if target.exists():
        target.rmdir()
    part.rename(target)
    sync(target.parent)
    return Collected(target, files)


def _names(folder: Path) -> Iterator[Path]:
    yield folder
    for number in range(2, NAMES + 1):
        yield folder.with_name(f"{folder.name}-{number}")


def _finished(folder: Path, choice: Choice, result: Result) -> tuple[File, ...] | None:
    """Return the files of a folder that was finished from the same choice before, else None."""
    try:
        document = json.loads((folder / MANIFEST).read_bytes())
        listed = [(file["path"], file["bytes"], file["sha256"]) for file in document["files"]]
        sources = {file["path"]: file.get("source_sha256") for file in document["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    wanted = {file.path: file.sha256 for file in choice.wanted}
    if document.get("job") != result.job or any(sources.get(p) != s for p, s in wanted.items()):
        return None
    whole = all(_is_there(folder / path, size, sha256) for path, size, sha256 in listed)
    return tuple(listed) if whole else None


def _is_there(path: Path, size: int, sha256: str) -> bool:
    regular = path.is_file() and not path.is_symlink()
    return regular and path.stat().st_size == size and _sha256(path) == sha256


def _check_room(part: Path, choice: Choice) -> None:
    have = sum(path.stat().st_size for path in part.iterdir() if path.is_file())
    need, free = choice.total_bytes - have + SPARE_BYTES, shutil.disk_usage(part).free
    if need > free:
        message = f"the result needs {need:,} bytes here, {part.parent} has {free:,} free"
        raise OSError(28, message)


def fetch(
    shell: Shell, remote: str, local: Path, wanted: Wanted, progress: Progress | None
) -> None:
    """Fetch one file, unless it is there; a second time if it came otherwise than promised.

    Raises ArtifactsRefused, ArtifactsMissing, ShellError.
    """
    if _is_there(local, wanted.bytes, wanted.sha256):
        return
    for _ in range(2):
        try:
            sha256 = shell.get(remote, local, max_bytes=wanted.bytes, progress=progress)
        except RemoteFailed as failure:
            raise _meaning(failure, wanted) from failure
        if sha256 == wanted.sha256 and local.stat().st_size == wanted.bytes:
            return
        local.unlink()
    raise ArtifactsRefused(f"{wanted.path}: its content is not what the manifest promises")


def _bring_best(
    shell: Shell,
    remote: str,
    part: Path,
    result: Result,
    listed: Callable[[int], Any] | None,
) -> int | None:
    """Fetch the adapter of the best evaluation into BEST; return its step.

    None where it is the last one's, or is not to be had: that never costs the result itself.
    """
    step = result.best_step() if result.best_step is not None and result.adapter else None
    document = listed(step) if step is not None and listed is not None else None
    place = part / BEST
    if step is None or document is None:
        return None
    try:
        choice = choose_checkpoint(document, adapter=True)
        for wanted in choice.wanted:
            if wanted.path in {ADAPTER_WEIGHTS, ADAPTER_CONFIG}:
                place.mkdir(exist_ok=True)
                far = f"{remote}/checkpoint-{step}/{wanted.path}"
                fetch(shell, far, place / wanted.path, wanted, None)
        good = check_weights(str(place), adapter=True).finite
    except (ArtifactsRefused, ArtifactsMissing, BadWeights) as error:
        log.warning("the adapter of step %s was not kept: %s", step, error)
        good = False
    return step if good else None


def _meaning(failure: RemoteFailed, wanted: Wanted) -> Exception:
    if failure.code == "absent":
        return ArtifactsMissing(f"{wanted.path} is listed, but not there")
    if failure.code in {"irregular", "too_big"}:
        return ArtifactsRefused(f"{wanted.path}: {failure}")
    return failure


def _check_weights(part: Path, choice: Choice, result: Result) -> None:
    """Read the weights at home, whatever the instance said of them."""
    stray = {path.name for path in part.glob("*.safetensors*")} - {f.path for f in choice.wanted}
    for name in stray:
        (part / name).unlink()
    try:
        weights = check_weights(str(part), adapter=result.adapter)
    except BadWeights as bad:
        raise ArtifactsRefused(f"the weights are damaged: {bad}") from bad
    if not weights.finite:
        raise ArtifactsRefused("the weights hold NaN or infinite values")


def _finish(
    part: Path, choice: Choice, result: Result, remote: str, best: int | None
) -> tuple[File, ...]:
    """Scrub, add the card and the manifest, set modes, sync; returns the files."""
    sources = {wanted.path: wanted.sha256 for wanted in choice.wanted}
    beside = [f"{BEST}/{name}" for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if best is not None]
    for name in [*sources, *beside]:
        raw = (part / name).read_bytes() if name.endswith(".json") else None
        if raw is not None:
            folder = remote.rpartition("/")[0]
            kind = name.rpartition("/")[2]
            _write(part / name, scrub(kind, raw, base_model=result.base_model, folder=folder))
    own = dict(result.own(best)) if result.own is not None else {}
    for name, data in own.items():
        _write(part / name, data)
    names = [*sources, *own, *beside]
    for path in part.iterdir():
        if path.name not in {name.partition("/")[0] for name in names}:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    files = []
    for name in sorted(names):
        path = part / name
        path.chmod(0o644)
        sync(path)
        files.append((name, path.stat().st_size, _sha256(path)))
    document = {
        "schema": SCHEMA,
        "job": result.job,
        "files": [
            {"path": path, "bytes": size, "sha256": sha256}
            | ({"source_sha256": sources[path]} if path in sources else {})
            for path, size, sha256 in files
        ],
    }
    _write(part / MANIFEST, (json.dumps(document, indent=2) + "\n").encode())
    (part / MANIFEST).chmod(0o644)
    part.chmod(0o755)
    sync(part / MANIFEST)
    if beside:
        (part / BEST).chmod(0o755)
        sync(part / BEST)
    sync(part)
    return tuple(files)


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file's or folder's state durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
