"""The clock. The only file (beside the agent and the local server) that may read the time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Time as an argument: tests and the simulator pass their own."""

    def now(self) -> float:
        """Return UNIX seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for that long."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return UNIX seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block for that long."""
        time.sleep(seconds)


class WakeableClock(SystemClock):
    """A system clock whose sleeps end early once `wake` is called (signals, new work)."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """End the current and all later sleeps at once until `rest`."""
        self._event.set()

    def rest(self) -> None:
        """Let sleeps be sleeps again."""
        self._event.clear()

    def sleep(self, seconds: float) -> None:
        """Block for that long, or until woken."""
        self._event.wait(seconds)
