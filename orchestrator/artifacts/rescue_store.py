"""The rescue set: URLs made at a launch, for a machine that is left alone; and what came by them.

`prefix/<job name>-<job id>/rescue/attempt-<n>/` holds numbered objects and, last, index.json, which
says which of them make up which file. All of it comes from the instance and is trusted no more
than the instance: names, sizes and counts are bounded, every file is checked by its hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.artifacts.bucket import LONGEST_URL_S, MANIFEST_BYTES, SHORTEST_URL_S, Source
from orchestrator.artifacts.collect import SPARE_BYTES, sync
from orchestrator.artifacts.manifest import ArtifactsRefused, Wanted, choose, choose_checkpoint
from orchestrator.artifacts.push import CHUNK, PushFault
from orchestrator.artifacts.push_s3 import status_of

OBJECTS = 96  # files and parts of files; the instance makes the parts as large as it takes
INDEX = "index.json"


def grants(s3: Any, source: Source, url_s: float) -> dict[str, Any]:
    """Return {"urls", "index"}: one URL for one object each, until the deadline."""
    lasts = int(max(SHORTEST_URL_S, min(url_s, LONGEST_URL_S)))

    def url(name: str) -> str:
        params = {"Bucket": source.bucket, "Key": source.prefix + name}
        return str(s3.generate_presigned_url("put_object", Params=params, ExpiresIn=lasts))

    return {"urls": [url(f"{number:03d}") for number in range(OBJECTS)], "index": url(INDEX)}


def fetch(s3: Any, source: Source, folder: Path, *, adapter: bool) -> dict[str, Any]:
    """Bring what was delivered into `folder`; returns its index, {} where nothing was.

    Raises PushFault where what is there can't be taken.
    """
    index = _index(s3, source)
    if index is None:
        return {}
    step = index.get("step")
    try:
        if step is not None and (type(step) is not int or not 0 <= step < 10**9):
            raise ArtifactsRefused("the step is none")  # noqa: TRY301
        choice = (choose if step is None else choose_checkpoint)(index, adapter=adapter)
        objects = {file["path"]: file.get("objects") for file in index["files"]}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if choice.total_bytes + SPARE_BYTES > shutil.disk_usage(folder).free:
            raise PushFault(f"{folder} has no room for {choice.total_bytes:,} bytes")
        for wanted in choice.wanted:
            _file(s3, source, wanted, objects[wanted.path], folder)
    except ArtifactsRefused as refused:
        raise PushFault(f"what the machine delivered is refused: {refused}") from refused
    return {"step": step, "exit": index.get("exit"), "files": index["files"]}


def _index(s3: Any, source: Source) -> Mapping[str, Any] | None:
    try:
        answer = s3.get_object(Bucket=source.bucket, Key=source.prefix + INDEX)
    except Exception as error:
        if hasattr(error, "response") and status_of(error) == 404:
            return None
        raise
    with contextlib.closing(answer["Body"]) as body:
        text = body.read(MANIFEST_BYTES)
    try:
        index = json.loads(text)
    except (ValueError, RecursionError):
        index = None
    if not isinstance(index, dict):
        raise PushFault("what the machine delivered has no index that can be read")
    return index


def _file(s3: Any, source: Source, wanted: Wanted, objects: Any, folder: Path) -> None:
    """Put one file together from its objects, and check it."""
    numbers = objects if isinstance(objects, list) else [None]
    if not all(type(n) is int and 0 <= n < OBJECTS for n in numbers) or len(numbers) > OBJECTS:
        raise ArtifactsRefused(f"{wanted.path}: its objects are none")
    target = folder / wanted.path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hasher, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        for number in numbers:
            answer = s3.get_object(Bucket=source.bucket, Key=f"{source.prefix}{number:03d}")
            with contextlib.closing(answer["Body"]) as body:
                for chunk in body.iter_chunks(CHUNK):
                    size += len(chunk)
                    if size > wanted.bytes:
                        raise ArtifactsRefused(f"{wanted.path}: more bytes than it says")
                    hasher.update(chunk)
                    file.write(chunk)
    if hasher.hexdigest() != wanted.sha256:
        raise ArtifactsRefused(f"{wanted.path} is not what its index says")
    sync(target)
