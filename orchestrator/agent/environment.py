"""Axolotl's environment on an instance: found, or built once, detached, and reused.

    python3 gpujob_environment.py ensure < SPEC

answers at once with one JSON object, and is called again until it says `ready` or `failed`:
{"state": "ready", "axolotl", "python", "source": "given" | "image" | "built", "versions"}
{"state": "missing"}                  the lock files are needed: upload them, name them, ask again
{"state": "building", "step", "done", "of", "bytes", "seconds"}
{"state": "failed", "cause", "message"}

Below `root` each environment has a folder named by its key. A build makes a new venv in there, at
the path where it will stay, for a venv can't be moved; READY.json, written last, names it. What is
not named there was left by a build that was killed, and the next build removes it. A lock that
dies with its holder keeps builds apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Iterator

from orchestrator.agent.builder import BuildFailed, Spec, build_detached, find_python
from orchestrator.agent.files import Document, read_document
from orchestrator.agent.procs import steady_s

BEGINNING = {"state": "building", "step": "begin", "done": 0, "of": 0, "bytes": 0, "seconds": 0}
IMAGE_PLACES = ("/workspace/axolotl-venv/bin/axolotl",)  # axolotlai's images


def ensure(spec: Spec) -> Document:
    """Return the state; starts a build where there is none and none is running."""
    for source, path in _existing(spec):
        found = _describe(path, spec.axolotl if source == "image" else None)
        if found is not None:
            return dict(found, state="ready", source=source)
        if source == "given":
            message = "%s holds no bin/axolotl that can be run" % spec.given
            return {"state": "failed", "cause": "bad_given", "message": message}
    try:
        python, version = find_python()
        variant = _variant(spec)
    except BuildFailed as error:
        return {"state": "failed", "cause": error.cause, "message": str(error)}
    folder = os.path.join(spec.root, key_of(spec.locks_sha256, version, variant))
    ready = _ready(folder)
    if ready is not None:
        return ready
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return _progress(folder)
    failed = read_document(os.path.join(folder, "failed.json"))
    ready = _ready(folder)  # it may have been finished while we looked
    if ready is None and failed is not None and failed.get("asked_by") == spec.asked_by:
        ready = dict(failed, state="failed")
    if ready is None and spec.locks is None:
        ready = {"state": "missing"}
    if ready is None:
        sys.stdout.flush()
        if os.fork() == 0:
            build_detached(spec, folder, python, variant)
        ready = dict(BEGINNING)
    os.close(lock)  # the builder holds it on
    return ready


def _progress(folder: str) -> Document:
    """Return how far a running build is. While pip unpacks it says nothing: then we count."""
    progress = dict(BEGINNING, **read_document(os.path.join(folder, "progress.json")) or {})
    began = progress.pop("began", None)
    if isinstance(began, (int, float)):
        progress["seconds"] = round(max(0.0, steady_s() - began), 1)
    venv = glob.escape(str(progress.pop("venv", "")))
    if str(progress["step"]).startswith("unpack"):
        found = glob.glob(venv + "/lib/python*/site-packages/*.dist-info")
        progress["done"] = min(len(found), progress["of"])
    return progress


def key_of(locks_sha256: str, version: str, variant: str) -> str:
    """Return the name of an environment: the same locks, Python and variant give the same."""
    text = "%s %s %s %s" % (locks_sha256, version, variant, platform.machine())
    return "axolotl-%s-%s" % (variant, hashlib.sha256(text.encode()).hexdigest()[:12])


def _existing(spec: Spec) -> Iterator[tuple[str, str]]:
    if spec.given:
        yield "given", os.path.join(os.path.expanduser(spec.given), "bin", "axolotl")
        return
    on_path = shutil.which("axolotl")
    for path in (*IMAGE_PLACES, *([on_path] if on_path else [])):
        yield "image", path


def _describe(axolotl: str, version: str | None) -> Document | None:
    """Return an installed Axolotl; None where absent or of another minor version than asked."""
    python = os.path.join(os.path.dirname(os.path.realpath(axolotl)), "python")
    if not os.access(axolotl, os.X_OK):
        return None
    versions: dict[str, str] = {}
    if version is not None:
        code = "from importlib.metadata import version; print(version('axolotl'))"
        try:
            asked = subprocess.run(
                [python, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError):
            return None
        versions["axolotl"] = asked.stdout.decode().strip()
        if versions["axolotl"].split(".")[:2] != version.split(".")[:2]:
            return None
    return {"axolotl": axolotl, "python": python, "versions": versions}


def _ready(folder: str) -> Document | None:
    """Return the finished environment of a folder, if it is there."""
    ready = read_document(os.path.join(folder, "READY.json"))
    if ready is None or not os.access(str(ready.get("axolotl")), os.X_OK):
        return None
    return dict(ready, state="ready", source="built")


def _variant(spec: Spec) -> str:
    if sys.platform == "darwin":
        words = "Axolotl imports triton, which has no build for macOS: use a Linux machine"
        raise BuildFailed("no_triton", words)
    if spec.variant in ("cpu", "cuda"):
        return spec.variant
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, timeout=30, check=True)
        if asked.stdout.strip():
            return "cuda"
    return "cpu"


def read_spec(text: str) -> Spec:
    """Return the spec; raises ValueError, KeyError or TypeError."""
    document = json.loads(text)
    return Spec(
        root=os.path.expanduser(str(document["root"])),
        asked_by=str(document["asked_by"]),
        axolotl=str(document["axolotl"]),
        locks_sha256=str(document["locks_sha256"]),
        locks=document.get("locks"),
        given=document.get("given"),
        variant=str(document.get("variant", "auto")),
        env=dict(document.get("env", {})),
    )


def main(argv: list[str]) -> int:
    """Answer one question; return the exit status."""
    if argv != ["ensure"]:
        sys.stderr.write("usage: gpujob_environment.py ensure < SPEC\n")
        return 2
    try:
        answer = ensure(read_spec(sys.stdin.read()))
    except (ValueError, KeyError, TypeError) as error:
        answer = {"state": "failed", "cause": "bad_spec", "message": repr(error)}
    except OSError as error:
        cause = "no_disk" if error.errno == 28 else "install_failed"
        answer = {"state": "failed", "cause": cause, "message": str(error)}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
