"""What is known when a world has come to rest, or has not: the truth, and the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator import events as ev
from orchestrator.attempt import Attempt
from orchestrator.store_rows import JobRow, Recorded
from providers.fake import Machine
from tests.sim.world import LIMITS, START, World

SLACK_S = 120.0  # a call that hangs, a beat, a back-off


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    checker: str
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """All that is known when the world came to rest, or did not."""

    world: World
    rested: bool
    rows: tuple[JobRow, ...]
    history: dict[str, list[Recorded]]
    broken: str | None = None

    @property
    def machines(self) -> list[Machine]:
        """Return our machines, dead and alive."""
        mine = self.world.cloud.machines.values()
        return [m for m in mine if m.id not in self.world.foreign]

    def attempts(self) -> Iterator[Attempt]:
        """Yield every attempt on record."""
        for row in self.rows:
            yield from row.attempts

    def of_attempt(self, attempt: Attempt) -> list[ev.AnyEvent]:
        """Return its events."""
        history = self.history[attempt.job_id]
        return [r.event for r in history if r.attempt == attempt.number]

    def down_s(self, begin: float, finish: float) -> float:
        """Return for how long processes were dead or asleep, and their leases in the way."""
        lost = 0.0
        for since, until in self.world.down:
            overlap = min(until + START, finish) - max(since + START, begin)
            if overlap > 0:
                lost += overlap + LIMITS.lease_s
        return lost

    def clock(self) -> float:
        """Return UNIX seconds."""
        return START + self.world.time
