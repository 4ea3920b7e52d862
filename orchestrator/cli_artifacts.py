"""`gpujob artifacts` and `gpujob download`: what a job left, where it lies, and a copy of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Exit, Refused
from orchestrator.opened import opened, out
from orchestrator.report_text import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.attempt import Attempt
    from orchestrator.opened import Opened
    from orchestrator.plan import JobRecord

ASK_S = 60.0  # of a store: which checkpoints it has
FETCH_S = 24 * 3600.0  # a large model over a home line; it is watched
S3 = "s3://"


@dataclass(frozen=True, slots=True)
class Left:
    """What one job left behind. result: the attempt that brought it home."""

    record: JobRecord
    attempts: Sequence[Attempt]
    result: Attempt | None

    @property
    def id(self) -> str:
        """Return the job's id."""
        return self.record.new.id


def artifacts(word: str, *, as_json: bool) -> int:
    """Print what a job left and where it lies; exit 0."""
    with opened() as state:
        left = _left(word, state)
        body = {
            "job": {"id": left.id, "name": left.record.new.name},
            "result": _result(left),
            "places": _places(left),
            "checkpoints": _checkpoints(left, state),
        }
        if as_json:
            from orchestrator.report_json import document, dumps

            out([dumps(document("artifacts", state.now(), **body))])
        else:
            out(lines_of(body))
    return Exit.OK


def download(word: str, folder: Path | None, *, as_json: bool) -> int:
    """Put a checked copy of a job's result into a folder of its own; exit 0."""
    with opened() as state:
        left = _left(word, state)
        if left.result is None:
            raise Refused(
                f"#{left.id} brought no result home; there is nothing to download",
                remedy=f"gpujob artifacts {left.id} lists its checkpoints.",
            )
        target = (folder or Path(f"{left.record.new.name}-{left.id}")).absolute()
        source = copy_result(left, target)
        if as_json:
            from orchestrator.report_json import document, dumps

            files = [file_body(file) for file in left.result.files]
            body = {"job": {"id": left.id}, "folder": str(target), "from": source, "files": files}
            out([dumps(document("download", state.now(), **body))])
        else:
            total = sum(bytes_ for _, bytes_, _ in left.result.files)
            count = len(left.result.files)
            out([f"{target}: {count} files, {size(total)}, from {source}, each checked by sha256"])
    return Exit.OK


def copy_result(left: Left, target: Path) -> str:
    """Return where the result was taken from: its folder at home, else a store that has it.

    Everything lands in `<target>.part` and appears by one rename. Raises Refused.
    """
    assert left.result is not None  # noqa: S101 - the caller looked
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target} is not empty", remedy="Name another folder: --to FOLDER.")
    part = target.with_name(target.name + ".part")
    why = []
    places = [left.result.folder, *(place for push in left.result.pushes if (place := push.where))]
    for place in places:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        said = _from_folder(left, place, part) if "://" not in place else _from(left, place, part)
        if not said:
            if target.exists():
                target.rmdir()
            part.rename(target)
            return place
        why.append(f"{place}: {said}")
    shutil.rmtree(part, ignore_errors=True)
    raise Refused("the result is nowhere whole\n" + "\n".join(why), code=Exit.ARTIFACTS)


def _from_folder(left: Left, folder: str, part: Path) -> str:
    """Copy the result from a folder; return why not, "" where it worked."""
    from orchestrator.artifacts.push import MANIFEST, sha256_of

    assert left.result is not None  # noqa: S101
    for name, bytes_, sha256 in left.result.files:
        path = Path(folder) / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != bytes_:
            return f"{name} is not there any more"
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, part / name)
        if sha256_of(part / name) != sha256:
            return f"{name} was changed"
    if (Path(folder) / MANIFEST).is_file():
        shutil.copyfile(Path(folder) / MANIFEST, part / MANIFEST)
    return ""


def _from(left: Left, place: str, part: Path) -> str:
    """Fetch the result from a store; return why not, "" where it worked."""
    from orchestrator.artifacts.bucket_process import start
    from orchestrator.artifacts.push import PushFault

    assert left.result is not None  # noqa: S101
    if not place.startswith(S3):
        return "not fetched from here; its own tool does it"
    files = [{"path": n, "bytes": b, "sha256": s, "parts": []} for n, b, s in left.result.files]
    try:
        start(place, "", "pull", files=files, folder=str(part)).wait(FETCH_S)
    except PushFault as fault:
        return str(fault)
    return ""


def _left(word: str, state: Opened) -> Left:
    from orchestrator.push_state import is_home

    job_id = state.store.find_job(word)
    record, attempts = state.store.load(job_id)
    home = [attempt for attempt in attempts if is_home(attempt)]
    return Left(record, attempts, home[-1] if home else None)


def file_body(file: tuple[str, int, str]) -> dict[str, Any]:
    """Return one file as --json tells it."""
    return {"path": file[0], "bytes": file[1], "sha256": file[2]}


def _result(left: Left) -> dict[str, Any] | None:
    found = left.result
    if found is None:
        return None
    there = all((Path(found.folder) / name).is_file() for name, _, _ in found.files)
    return {
        "attempt": found.number,
        "folder": found.folder,
        "is_there": there,
        "files": [file_body(file) for file in found.files],
    }


def _places(left: Left) -> list[dict[str, Any]]:
    from orchestrator.push_state import state_of

    if left.result is None:
        return []
    pushes = [left.result.push(target) for target in left.record.new.pushes]
    return [
        {"target": p.target, "state": str(state_of(p, home=True)), "where": p.where} for p in pushes
    ]


def _checkpoints(left: Left, state: Opened) -> list[dict[str, Any]]:
    """Return the whole checkpoints at home and at the target, oldest first."""
    from orchestrator.artifacts import checkpoint
    from orchestrator.compose_store import checkpoints_at

    folder = state.home.checkpoints(left.id)
    found = []
    for step in sorted(checkpoint.steps_in(folder)):
        path = folder / f"checkpoint-{step}"
        total = sum(file.stat().st_size for file in checkpoint.files_of(path))
        found.append({"step": step, "bytes": total, "where": str(path)})
    return found + checkpoints_at(left.record.new, ASK_S)


def lines_of(body: dict[str, Any]) -> list[str]:
    """Return the screen."""
    lines = [f"{body['job']['name']} #{body['job']['id']}"]
    result = body["result"]
    if result is None:
        lines.append("  result       none came home")
    else:
        gone = "" if result["is_there"] else "  (no longer there; gpujob download fetches it)"
        lines.append(f"  result       {result['folder']}{gone}")
        lines += [f"    {size(file['bytes']):>9}  {file['path']}" for file in result["files"]]
    lines += [
        f"  {place['state']:<12} {place['where'] or place['target']}" for place in body["places"]
    ]
    lines += [
        f"  checkpoint   step {point['step']}, {size(point['bytes'])}, {point['where']}"
        for point in body["checkpoints"]
    ]
    return lines
