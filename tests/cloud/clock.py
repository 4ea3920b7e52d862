"""The simulator's time: real time from its start, faster by a factor, with jumps, and what is due.

Everything that shall happen later (a boot's next stage, a container's restart, the end of a notice)
stands in one list and is done by one thread. That thread also starts every process of a pod: the
kernel ties "die with your parent" to the thread that started a child.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime


class SimClock:
    """`now()` is UNIX seconds of the simulated world."""

    def __init__(self, speed: float = 1.0) -> None:
        self._wake = threading.Condition()
        self._speed = speed
        self._real = time.monotonic()
        self._base = time.time()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._ended = False

    def now(self) -> float:
        with self._wake:
            return self._now()

    def _now(self) -> float:
        return self._base + (time.monotonic() - self._real) * self._speed

    def change(self, *, jump_s: float = 0.0, speed: float | None = None) -> None:
        with self._wake:
            self._base, self._real = self._now() + jump_s, time.monotonic()
            self._speed = self._speed if speed is None else speed
            self._wake.notify_all()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Let the clock's own thread call `act` in that many simulated seconds."""
        with self._wake:
            heapq.heappush(self._due, (self._now() + seconds, next(self._count), act))
            self._wake.notify_all()

    def sleep(self, seconds: float) -> None:
        """Block the caller for that long; a jump shortens it."""
        passed = threading.Event()
        self.later(seconds, passed.set)
        passed.wait()

    def run(self) -> None:
        """Do what is due until `end`."""
        while True:
            with self._wake:
                while not self._ended and (not self._due or self._due[0][0] > self._now()):
                    left = (self._due[0][0] - self._now()) / self._speed if self._due else None
                    self._wake.wait(left)
                if self._ended:
                    return
                act = heapq.heappop(self._due)[2]
            try:
                act()
            except Exception:
                traceback.print_exc()

    def end(self) -> None:
        with self._wake:
            self._ended = True
            self._wake.notify_all()


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_fine(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
