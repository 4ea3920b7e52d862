"""The carrier: sends ranges of files to presigned URLs, beside a training and behind it in line.

It knows no key: each URL is good for one object and until the deadline. What is asked of it comes
over standard input and stays in memory; how far it is stands in carry.json. One carrier a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import ssl
import stat
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Iterator, NamedTuple

from orchestrator.agent.files import Document, read_document, write_durably
from orchestrator.agent.procs import identity, steady_s

CARRY = "carry.json"
CARRY_LOCK = "carry.lock"
GRANTS_BYTES = 32 << 20  # 10,000 parts at some 600 bytes
PART_BYTES = 16 << 20
MAX_PARTS = 10_000  # by S3's rule
PIECE_BYTES = 1 << 18
SEND_TIMEOUT_S = 60.0  # of one read or write of the connection
TRIES = 6  # of one item, with doubling pauses: half a minute of a store that is away
PAUSE_S = 1.0
TELL_S = 0.5
DONE_BEFORE = 412  # If-None-Match: the object is there already
PASSING = (408, 409, 425, 429)  # beside 5xx: worth another try


class Item(NamedTuple):
    """One range of one file below the folder, and the URL that takes it."""

    path: str
    offset: int
    size: int
    url: str
    headers: dict[str, str]


class CarryFailed(Exception):  # noqa: N818 - as the house names its errors
    """An item can't be sent; code is one word: absent, refused, away, changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def part_bytes(size: int) -> int:
    """Return the size of a part: a function of the file's size alone, so that a retry has it."""
    least = -(-size // MAX_PARTS)
    return max(PART_BYTES, -(-least // (1 << 20)) * (1 << 20))


def carry(folder: str, text: bytes) -> Document:
    """Start sending what the grants say, detached; one at a time. Raises ValueError for bad ones.

    grants: {"id", "bytes_per_s": null or a number, "items": [{"path", "offset", "bytes", "url",
    "headers"}]}, paths below `folder`.
    """
    grants = json.loads(text.decode("utf-8"))
    items = [_item(entry) for entry in grants["items"]]
    lock = _alone(folder)
    if lock is None:
        return {"started": False, "already": True}
    state = {"id": str(grants["id"]), "done": 0, "of": sum(item.size for item in items)}
    _tell(folder, dict(state, over=False, pid=os.getpid(), pid_started=identity(os.getpid())))
    if os.fork() == 0:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            be_humble()
            mine = dict(state, pid=os.getpid(), pid_started=identity(os.getpid()))
            send_all(folder, items, grants.get("bytes_per_s"), lambda now: _tell(folder, now), mine)
        finally:
            os._exit(0)
    os.close(lock)
    return {"started": True, "already": False}


def carried(folder: str) -> Document:
    """Return carry.json, with whether a carrier is at work; {} where none ever was."""
    state = read_document(os.path.join(folder, CARRY)) or {}
    if state and not state.get("over"):
        lock = _alone(folder)
        state["alive"] = lock is None
        if lock is not None:
            os.close(lock)
    return state


def send_all(
    folder: str,
    items: list[Item],
    bytes_per_s: float | None,
    tell: Callable[[Document], None],
    state: Document,
) -> Document:
    """Send item after item and return the state at the end; it is told on the way.

    What fails for good is noted, and the others are sent: whoever asked sees what is missing.
    """
    throttle = Throttle(bytes_per_s)
    state = dict(state, over=False, failed=0, said="", code="")
    told_at = steady_s()
    for item in items:
        try:
            send_item(folder, item, throttle)
        except CarryFailed as failure:
            state.update(failed=state["failed"] + 1, said=str(failure)[:300], code=failure.code)
            if failure.code == "absent":
                break
        else:
            state["done"] += item.size
        if steady_s() - told_at > TELL_S:
            told_at = steady_s()
            tell(state)
    state["over"] = True
    tell(state)
    return state


def send_item(folder: str, item: Item, throttle: Throttle) -> None:
    """Send one item, with retries; raises CarryFailed."""
    pause, left = PAUSE_S, TRIES
    while left:
        left -= 1
        try:
            _put(folder, item, throttle)
        except CarryFailed as failure:
            if failure.code != "away" or not left:
                raise
            time.sleep(pause)
            pause *= 2
        else:
            return


def _put(folder: str, item: Item, throttle: Throttle) -> None:
    name = os.path.basename(item.path)
    try:
        fd = os.open(os.path.join(folder, item.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise CarryFailed("absent", "%s: %s" % (name, error.strerror)) from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size < item.offset + item.size:
            raise CarryFailed("changed", "%s is not the file that it was" % name)
        file.seek(item.offset)
        headers = dict(item.headers)
        headers["Content-Length"] = str(item.size)
        headers.setdefault("Content-Type", "application/octet-stream")
        body = _pieces(file, item.size, throttle) if item.size else b""
        url = item.url  # http or https: _item saw to it
        request = urllib.request.Request(url, data=body, headers=headers, method="PUT")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=SEND_TIMEOUT_S) as answer:  # noqa: S310
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            if error.code == DONE_BEFORE:
                return
            code = "away" if error.code >= 500 or error.code in PASSING else "refused"
            why = _reason(error)
            raise CarryFailed(code, "%s: HTTP %d %s" % (name, error.code, why)) from None
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            said = getattr(error, "reason", None) or error
            raise CarryFailed("away", "%s: %s" % (name, said)) from None


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the store's word for it; never the URL."""
    try:
        found = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", error.read(1 << 14))
    except (OSError, http.client.HTTPException):
        return ""
    return found.group(1).decode() if found else ""


def _pieces(file: Any, size: int, throttle: Throttle) -> Iterator[bytes]:
    while size > 0:
        piece = file.read(min(PIECE_BYTES, size))
        if not piece:
            return  # shorter than announced: the connection ends, the store refuses
        size -= len(piece)
        throttle.wait(len(piece))
        yield piece


class Throttle:
    """Lets so many bytes a second through, with no burst above a second's worth."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self.rate = bytes_per_s
        self.free_at = steady_s()

    def wait(self, size: int) -> None:
        """Return when that many more may go."""
        if not self.rate:
            return
        now = steady_s()
        self.free_at = max(self.free_at, now - 1.0) + size / self.rate
        if self.free_at > now:
            time.sleep(self.free_at - now)


def be_humble() -> None:
    """Take the lowest priority there is: a training comes first."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _item(entry: dict[str, Any]) -> Item:
    path = str(entry["path"])
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError("a path that leaves the folder")
    headers = {str(name): str(value) for name, value in entry.get("headers", {}).items()}
    url = str(entry["url"])
    if not url.startswith(("https://", "http://")):
        raise ValueError("a URL of another kind")
    return Item(path, int(entry.get("offset", 0)), int(entry["bytes"]), url, headers)


def _alone(folder: str) -> int | None:
    """Return the lock's descriptor, which a child inherits; None where another holds it."""
    fd = os.open(os.path.join(folder, CARRY_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _tell(folder: str, state: Document) -> None:
    with contextlib.suppress(OSError):  # a full disk: the bytes themselves count
        write_durably(os.path.join(folder, CARRY), json.dumps(state).encode())
