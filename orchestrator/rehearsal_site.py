"""A made-up machine for rehearsals: it answers as a real one would, on the rehearsal's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.site import AgentStatus, Collected, ExitReport, Kept, SiteError
from orchestrator.site_order import SiteOrder
from orchestrator.states import Reason

STEPS = ("folder", "tools", "environment", "model", "data", "order")
STEP_S = 20.0
WORK_S = 1800.0


class RehearsalClock:
    """Time moves only when somebody sleeps: an hour passes in a moment."""

    def __init__(self, start: float) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> float:
        """Return UNIX seconds of the rehearsal."""
        return self._start + self._passed

    def monotonic(self) -> float:
        """Return seconds since the rehearsal began."""
        return self._passed

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += max(0.0, seconds)


@dataclass
class Theatre:
    """What all made-up machines share: how the training ends, and whether they can be reached."""

    clock: Clock
    ends: Reason = Reason.SUCCEEDED
    evidence: str = ""
    unreachable: bool = False
    lives: Callable[[str], bool] = lambda _label: True  # whether the machine of a label is there
    started: dict[str, float] = field(default_factory=dict)  # label -> when
    done: dict[str, int] = field(default_factory=dict)  # label -> steps of the preparation

    def make(self, order: SiteOrder) -> RehearsalSite:
        """Return the site of one attempt; the runner's factory."""
        return RehearsalSite(self, order)


class RehearsalSite:
    """See `site.Site`. Nothing is connected to and nothing is written."""

    def __init__(self, theatre: Theatre, order: SiteOrder) -> None:
        self._theatre = theatre
        self._label = order.label

    def probe(self) -> None:
        """Answer, or not."""
        if self._theatre.unreachable or not self._theatre.lives(self._label):
            raise SiteError("connection refused")

    def prepare_next(self) -> str | None:
        """Return the next step of a preparation that takes its time."""
        self.probe()
        done = self._theatre.done.get(self._label, 0)
        if done >= len(STEPS):
            return None
        self._theatre.clock.sleep(STEP_S)
        self._theatre.done[self._label] = done + 1
        return STEPS[done]

    def start_trainer(self) -> AgentStatus:
        """Begin what is not a training."""
        self.probe()
        self._theatre.started.setdefault(self._label, self._theatre.clock.now())
        return self.status()

    def status(self) -> AgentStatus:
        """Return how far it is."""
        self.probe()
        theatre = self._theatre
        began, now = theatre.started.get(self._label), theatre.clock.now()
        if began is None:
            return _status("absent")
        if now < began + WORK_S:
            return _status("training")
        good = theatre.ends is Reason.SUCCEEDED
        verdict = ExitReport(
            "succeeded" if good else "failed", theatre.ends, theatre.evidence,
            0 if good else 1, None, began, began + WORK_S, 400 if good else 7, 400, 1,
        )  # fmt: skip
        return _status("done", verdict)

    def pull(self, name: str, local: Path, offset: int) -> int:
        """Return the offset: there is no log."""
        _ = name, local
        self.probe()
        return offset

    def stop_trainer(self, *, now: bool) -> None:
        """End it."""
        _ = now
        self.probe()

    def collect(self, folder: Path) -> Collected:
        """Return what would have come home."""
        self.probe()
        return Collected(folder, (("adapter_model.safetensors", 0, ""),))

    def keep_checkpoint(self, step: int, folder: Path) -> Kept | None:
        """Return nothing kept: there is no checkpoint."""
        _ = folder
        return Kept(step, 0)

    def rescued(self, folder: Path) -> None:
        """Return nothing: there is no store."""
        _ = folder

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _status(phase: str, verdict: ExitReport | None = None) -> AgentStatus:
    alive = phase != "absent"
    return AgentStatus(phase, alive, 0.0 if alive else None, 0, 0, verdict)
