"""When nobody comes: the result goes to URLs that were made at the launch, then the machine ends.

rescue.json was written with the order: one URL for each of some numbered objects and one for the
index, good until the deadline. Whoever looks after the training holds a lock for as long as its
connection lives (`be_near`), so that nothing is done behind the back of somebody who is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from typing import Callable

from orchestrator.agent.carrier import CarryFailed, Item, Throttle, send_item
from orchestrator.agent.files import EXIT, Document, read_document, write_durably
from orchestrator.agent.listing import TooMany, manifest
from orchestrator.agent.procs import steady_s

RESCUE = "rescue.json"
RESCUE_INDEX = "rescue-index.json"
NEAR = "near"
CHUNK_LEAST_BYTES = 8 << 20
LEAVE_S = 120.0  # before the deadline: what is not sent by then is not begun
RESCUE_PAUSE_S = 30.0  # between two rounds of a store that is away
LOOK_NEAR_S = 0.5
HELD: dict[str, int] = {}  # folder -> the lock's descriptor, for as long as this process lives


def be_near(folder: str) -> None:
    """Say that somebody looks after the training, until this process ends."""
    if folder in HELD:
        return
    with contextlib.suppress(OSError):
        fd = os.open(os.path.join(folder, NEAR), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            HELD[folder] = fd
        finally:
            if folder not in HELD:  # the agent is just looking: the next status says it again
                os.close(fd)


def is_anybody_near(folder: str) -> bool:
    """Return whether a process holds the lock of `be_near`."""
    try:
        fd = os.open(os.path.join(folder, NEAR), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def rescue(folder: str, deadline: float, tick: Callable[[], None]) -> bool:
    """Wait until nobody was near for long, deliver; return whether it is delivered and still so.

    False: there is nothing to deliver to, or it did not get through before the deadline.
    """
    plan = read_document(os.path.join(folder, RESCUE))
    if plan is None:
        return False
    after_s = float(plan.get("after_s", 0))
    alone_since, delivered, again_at = steady_s(), False, 0.0
    while steady_s() < deadline - (0 if delivered else min(LEAVE_S, after_s)):
        tick()
        now = steady_s()
        if is_anybody_near(folder):
            alone_since = now
        if now - alone_since >= after_s and now >= again_at:
            if delivered:
                return True
            delivered = deliver(folder, plan, tick)
            again_at = 0.0 if delivered else steady_s() + RESCUE_PAUSE_S
            if not delivered and read_document(os.path.join(folder, RESCUE_INDEX)) is None:
                return False  # there is nothing to be delivered
        time.sleep(LOOK_NEAR_S)
    return delivered


def deliver(folder: str, plan: Document, tick: Callable[[], None]) -> bool:
    """Send the adapter of a training that succeeded, else its newest checkpoint; the index last."""
    ended = read_document(os.path.join(folder, EXIT)) or {}
    step = None if ended.get("verdict") == "succeeded" else newest_step(folder)
    urls = [str(url) for url in plan.get("urls", [])]
    if ended.get("verdict") != "succeeded" and step is None:
        return False
    try:
        files = manifest(folder, None if step is None else str(step))["files"]
        items = share_out(files, urls, "out" if step is None else "out/checkpoint-%d" % step)
    except (TooMany, CarryFailed):
        return False
    index = {"schema": 1, "exit": ended, "step": step, "files": files}
    write_durably(os.path.join(folder, RESCUE_INDEX), json.dumps(index).encode())
    size = os.path.getsize(os.path.join(folder, RESCUE_INDEX))
    last = Item(RESCUE_INDEX, 0, size, str(plan.get("index")), {})
    try:
        for item in [*items, last]:
            tick()
            send_item(folder, item, Throttle(None))
    except CarryFailed:
        return False
    return True


def share_out(files: list[Document], urls: list[str], place: str) -> list[Item]:
    """Return the ranges in order, one URL each, and note with each file which objects hold it."""
    total = sum(file["bytes"] for file in files)
    room = len(urls) - len(files)
    if room < 1 or not files:
        raise CarryFailed("refused", "%d files, %d URLs" % (len(files), len(urls)))
    chunk = max(CHUNK_LEAST_BYTES, -(-total // room))
    items: list[Item] = []
    for file in files:
        file.pop("parts", None)
        first = len(items)
        path = "%s/%s" % (place, file["path"])
        for at in range(0, max(1, file["bytes"]), chunk):
            size = min(chunk, file["bytes"] - at)
            items.append(Item(path, at, size, urls[len(items)], {}))
        file["objects"] = list(range(first, len(items)))
    return items


def newest_step(folder: str) -> int | None:
    """Return the step of the newest checkpoint that has the trainer's state, or None."""
    out = os.path.join(folder, "out")
    steps = []
    for name in os.listdir(out) if os.path.isdir(out) else ():
        found = re.match(r"checkpoint-(\d{1,9})\Z", name)
        if found and os.path.isfile(os.path.join(out, name, "trainer_state.json")):
            steps.append(int(found.group(1)))
    return max(steps) if steps else None
