"""What runs on a machine rented by hand: one question on standard input, one JSON answer.

Standard library only, Python 3.8; it is sent along with every question and leaves nothing behind.
Linux only: processes are found in /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Collection, Dict, Iterator

Document = Dict[str, Any]

CLAIM = "claim.json"
ENVIRONMENTS = "environments"
HUB_CACHE = "huggingface"  # what the trainer downloaded: HF_HOME
PASSES = 50
PAUSE_S = 0.1
CONNECT_S = 5.0
SMI = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used,driver_version"]


def main(question: Document) -> Document:
    """Return the answer to one question; `error` names what went wrong."""
    folder = os.path.join(os.path.expanduser("~"), question["folder"])
    try:
        return DO[question["do"]](folder, question)
    except OSError as error:
        return {"error": "%s: %s" % (error.filename or folder, error.strerror or error)}


def look(folder: str, _: Document) -> Document:
    """Return the claim that lies in the folder, if any."""
    return {"folder": folder, "claim": read_claim(folder)}


def read_claim(folder: str) -> Document | None:
    """Return the claim; {} for one that can't be read, which is a claim all the same."""
    try:
        with open(os.path.join(folder, CLAIM), encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def claim(folder: str, question: Document) -> Document:
    """Write the claim, whole, unless there is one."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, CLAIM)
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "w", encoding="utf-8") as file:
        json.dump(question["claim"], file)
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        os.unlink(part)
    return look(folder, question)


def end(folder: str, question: Document) -> Document:
    """End every process of the attempt, wipe its files, give the claim up."""
    own = os.path.join(folder, question["label"])
    built = [os.path.join(folder, name) for name in (ENVIRONMENTS, HUB_CACHE)]
    left = kill([own, *built])
    shutil.rmtree(own, ignore_errors=True)
    if not question["keep_environment"]:
        for place in built:
            shutil.rmtree(place, ignore_errors=True)
    found = read_claim(folder)
    rest = os.path.lexists(own)
    if found is not None and found.get("label") == question["label"] and not left and not rest:
        os.unlink(os.path.join(folder, CLAIM))
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return {"processes": left, "files": rest}


def kill(folders: list[str]) -> int:
    """Return how many processes that use one of the folders could not be ended."""
    marks = [os.fsencode(os.path.realpath(folder)) for folder in folders]
    marks += [os.fsencode(folder) for folder in folders]
    left = []
    for _ in range(PASSES):
        left = [pid for pid in users_of(marks) if pid != os.getpid()]
        if not left:
            return 0
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
    return len(left)


def users_of(marks: Collection[bytes]) -> Iterator[int]:
    """Yield the processes whose command, environment or working folder names one of the marks."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        text = b""
        for part in ("cmdline", "environ"):
            with contextlib.suppress(OSError), open("/proc/%s/%s" % (name, part), "rb") as file:
                text += file.read() + b"\0"
        with contextlib.suppress(OSError):  # a zombie has none: it is over, only not yet buried
            text += os.fsencode(os.readlink("/proc/%s/cwd" % name)) + b"\0"
        if any(mark in text for mark in marks):
            yield int(name)


def check(folder: str, question: Document) -> Document:
    """Return what a person should know before a job is sent here."""
    parent = folder
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    speed, why = write_speed(parent, question["write_bytes"])
    return {
        "folder": folder,
        "claim": read_claim(folder),
        "python": list(sys.version_info[:2]),
        "system": sys.platform,
        "now": time.time(),
        "gpus": graphics(),
        "free_bytes": shutil.disk_usage(parent).free,
        "write_mb_per_s": speed,
        "write_error": why,
        "egress": [[host, port, reach(host, port)] for host, port in question["egress"]],
    }


def graphics() -> list[list[str]] | None:
    """Return [name, MiB, MiB used, driver] of each GPU; None without a working nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        done = subprocess.run(
            [*SMI, "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [
        [cell.strip() for cell in line.split(",")] for line in done.stdout.decode().splitlines()
    ]
    return [row for row in rows if len(row) == 4]


def write_speed(folder: str, size: int) -> tuple[float | None, str]:
    """Return MB/s of a write that reaches the disk, or the error's words."""
    path = os.path.join(folder, ".gpujob-probe-%d" % os.getpid())
    block = os.urandom(1 << 20)
    began = time.monotonic()
    try:
        with open(path, "wb") as file:
            file.writelines(block for _ in range(max(1, size >> 20)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return None, error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return size / 1e6 / max(time.monotonic() - began, 1e-6), ""


def reach(host: str, port: int) -> str:
    """Return "" where a connection can be made, else why not."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


DO = {"look": look, "claim": claim, "end": end, "check": check}
