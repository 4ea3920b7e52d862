"""The watchdog beside the instance: the agent's own judgement, made once more from outside. Pure.

The agent acts first, and also when nobody is there. Should it fail to, the orchestrator ends the
attempt a while later, from what it sees itself: the log and the records that it pulls, the age of
the heartbeat, and the newest sample in it while that is fresh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.agent.watchdog import (
    EVERY_S,
    FRESH_S,
    Memory,
    Sample,
    Watch,
    take,
    verdict,
)
from orchestrator.states import Reason

__all__ = ["UNWATCHED", "Beside", "Watch", "as_order", "limits_of", "read_sample", "words"]

UNWATCHED = Watch(None, None)
GRACE_S = 300.0  # after which the agent had its turn, its trainer's farewell included


def limits_of(spec: Mapping[str, Any], *, speed: float = 1.0) -> Watch:
    """Return the limits that a stored job file asks for; {} (an adopted machine) has none.

    A guard that is not shorter than the machine's life is none: the deadline comes first.
    """
    limits = spec.get("limits")
    if not isinstance(limits, Mapping):
        return UNWATCHED
    life_s = float(limits.get("hours") or 24.0) * 3600.0

    def guard(name: str) -> float | None:
        seconds = float(limits.get(name) or 30.0) * 60.0
        return seconds / speed if seconds < life_s else None

    return Watch(guard("idle_minutes"), guard("stall_minutes"), EVERY_S / speed)


def as_order(watch: Watch) -> dict[str, float | None]:
    """Return the limits as the agent's order has them."""
    return {"idle_s": watch.idle_s, "stall_s": watch.stall_s, "every_s": watch.every_s}


def words(watch: Watch, *, hours: float) -> str:
    """Return the limits in force, for a person: "ends when idle 30 min, stalled 30 min, ..."."""
    parts = [
        f"{name} {seconds / 60:g} min"
        for name, seconds in (("idle", watch.idle_s), ("stalled", watch.stall_s))
        if seconds is not None
    ]
    return ", ".join([*parts, "diverged, disk full", f"at {hours:g} h"])


def read_sample(value: object) -> Sample | None:
    """Return the sample of a heartbeat, which is not trusted; None where it is none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(_KINDS):
        return None
    for item, (name, kind, optional) in zip(value, _KINDS, strict=True):
        if item is None and optional:
            continue
        if name == "phase":
            good = item in ("setup", "train", "after")
        elif kind is bool:
            good = isinstance(item, bool)
        else:
            good = isinstance(item, int | float) and not isinstance(item, bool)
            good = good and math.isfinite(item) and 0 <= item < 1e18
        if not good:
            return None
    return Sample(*value)


_INTEGERS = ("step", "marks", "log_bytes", "moved_bytes", "dead_workers", "free_bytes", "gpu_count")
_FLAGS = ("has_gpu", "fp16")
_OPTIONAL = (
    "step", "gpu_percent", "gpu_idlest_percent", "gpu_used_mib", "cpu_s", "moved_bytes",
    "free_bytes",
)  # fmt: skip
_KINDS = tuple(
    (name, bool if name in _FLAGS else float, name in _OPTIONAL) for name in Sample._fields
)


class Beside:
    """What one driver remembers of one training. `look` is called with each status."""

    def __init__(self, watch: Watch) -> None:
        grace_s = min(GRACE_S, 20 * watch.every_s)
        self._watch = watch._replace(
            idle_s=None if watch.idle_s is None else watch.idle_s + grace_s,
            stall_s=None if watch.stall_s is None else watch.stall_s + grace_s,
        )
        self._memory: Memory | None = None

    def look(
        self, now: float, *, log_bytes: int, heartbeat_age_s: float | None, sample: object
    ) -> tuple[Reason, str] | None:
        """Return why the training comes to nothing; None while it may come to something.

        Looks more often than every_s are left out.
        """
        if self._memory is None and read_sample(sample) is None:
            return None  # an agent without a watchdog has nobody to stand beside
        if self._memory is not None and now - self._memory.last.at < self._watch.every_s:
            return None
        age_s = math.inf if heartbeat_age_s is None else heartbeat_age_s
        seen = read_sample(sample) if age_s <= FRESH_S else None
        seen = Sample(now, has_gpu=True) if seen is None else seen
        seen = seen._replace(
            at=now,
            log_bytes=log_bytes,
            heartbeat_age_s=age_s,
            bad_records=0,
            high_records=0,
            free_bytes=None,
        )  # fmt: skip - the agent alone ends those, with its own strikes
        if self._memory is not None and read_sample(sample) is None:
            last = self._memory.last
            seen = seen._replace(phase=last.phase, step=last.step, marks=last.marks)
        self._memory = take(self._memory, seen, self._watch)
        found = verdict(self._memory, self._watch)
        return (
            (Reason(found.reason), f"seen from outside: {found.evidence}") if found.reason else None
        )
