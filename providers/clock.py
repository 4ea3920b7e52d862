"""Time as an argument, in the shape that adapters need; `orchestrator.clock.Clock` fits it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where adapters and the fake cloud get the time from."""

    def now(self) -> float:
        """Return UNIX seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for that long."""
        ...
