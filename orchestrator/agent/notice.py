"""The machine is about to be called back: a checkpoint first, if the trainer gets that far."""

from __future__ import annotations

import contextlib
import os
from typing import Callable

from orchestrator.agent.files import size_of
from orchestrator.agent.procs import steady_s

NOTICE_S = 25.0  # clouds give 30 s and less before a machine is called back
SAVE_NOW = "axolotl_checkpoint.save"  # Axolotl's own name (dynamic_checkpoint)


def save_first(out: str, metrics: str, wait: Callable[[], bool]) -> bool:
    """Ask the trainer for a checkpoint; return whether it says that it is there.

    wait: passes some time; False ends the waiting. How long the machine has left, nobody says: a
    checkpoint that is cut off is not whole, and the one before it serves.
    """
    until, seen = steady_s() + NOTICE_S, size_of(metrics)
    if not seen:
        return False  # no step was made yet
    with contextlib.suppress(OSError), open(os.path.join(out, SAVE_NOW), "wb"):
        pass
    while not _was_saved(metrics, seen):
        if steady_s() >= until or not wait():
            return False
    return True


def _was_saved(metrics: str, offset: int) -> bool:
    """Return whether the trainer tells of a save beyond an offset of its metrics."""
    try:
        with open(metrics, "rb") as file:
            file.seek(offset)
            return b'"event": "save"' in file.read(1 << 20)
    except OSError:
        return False
