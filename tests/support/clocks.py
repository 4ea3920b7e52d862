"""A clock that only moves when it is told to, for tests."""

from __future__ import annotations

import threading


class VirtualClock:
    """Time stands still until `sleep` or `advance`; safe for many threads."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._lock = threading.Lock()
        self._start = start
        self._passed = 0.0

    def now(self) -> float:
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        with self._lock:
            return self._passed

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._passed += seconds
