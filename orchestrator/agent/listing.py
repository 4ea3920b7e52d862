"""What lies below the output folder: path, size, hashes. No symlink is followed, no name is odd."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Any, Iterator

from orchestrator.agent.carrier import part_bytes
from orchestrator.agent.files import ORDER, Document, read_document

MANIFEST_FILES = 2000
MANIFEST_DEPTH = 8
NOT_LISTED = re.compile(r"checkpoint-\d+\Z|debug\.log\Z")  # the latter repeats train.log


class TooMany(Exception):  # noqa: N818 - as the house names its errors
    """More files than anybody would take."""


def manifest(folder: str, checkpoint: str | None = None) -> Document:
    """Return path, size and sha256 of the regular files below out/, no symlinks, no checkpoints.

    With a step: of that checkpoint's, with the hashes of the parts in which a store takes them; no
    files where it was pruned, or never was.
    """
    order = read_document(os.path.join(folder, ORDER)) or {}
    out = os.path.join(folder, str(order.get("out") or "out"))
    if checkpoint is not None:
        out = os.path.join(out, "checkpoint-%d" % int(checkpoint))
    files = []
    for path in _walk(out, "", 0):
        entry = _hashed(out, path, parted=checkpoint is not None)
        if entry is not None:
            files.append(entry)
        if len(files) > MANIFEST_FILES:
            raise TooMany("more than %d files below out/" % MANIFEST_FILES)
    files.sort(key=lambda entry: str(entry["path"]))
    return {"files": files}


def _walk(root: str, below: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(os.path.join(root, below)))
    except OSError:
        return
    for entry in entries:
        path = os.path.join(below, entry.name)
        if NOT_LISTED.match(entry.name) or not _plain(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False) and depth < MANIFEST_DEPTH:
            yield from _walk(root, path, depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield path


def _plain(name: str) -> bool:
    """Return whether a name can be said in JSON and on a terminal."""
    return name.isprintable() and "\\" not in name


def _hashed(root: str, path: str, *, parted: bool) -> dict[str, Any] | None:
    """Return the entry of one file, as opened: what a symlink points at is never read."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(os.path.join(root, path), flags)
    except OSError:
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        return None
    part = part_bytes(status.st_size)
    whole, of_part = hashlib.sha256(), hashlib.sha256()
    parts: list[str] = []
    total = filled = 0
    with os.fdopen(fd, "rb") as file:
        while True:
            chunk = file.read(1 << 20)
            if not chunk:
                break
            total += len(chunk)
            whole.update(chunk)
            if not parted or status.st_size <= part:
                continue
            of_part.update(chunk)
            filled += len(chunk)
            if filled == part or total == status.st_size:
                parts.append(of_part.hexdigest())
                of_part, filled = hashlib.sha256(), 0
    entry = {"path": path, "bytes": total, "sha256": whole.hexdigest()}
    return dict(entry, parts=parts) if parts else entry
