"""One process, one cloud, one machine's side, on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.home import open_home
from orchestrator.runner import Driver, Happening, Runner
from orchestrator.views import JobView
from providers.base import Offer
from providers.fake import DEFAULT_OFFERS, FakeCloud, FakeProvider, FakeSettings, Fault, Phase, Verb
from tests.support.clocks import VirtualClock
from tests.support.core import memory_store, new_job
from tests.support.stub_site import Stub


class Bench:
    """One process, one cloud, one machine's side, on a virtual clock."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.store = memory_store()
        values: dict[str, Any] = {"boot_delay_s": 5.0, "list_lag_s": 3.0, **settings}
        self.cloud = FakeCloud(self.clock, random.Random(1), FakeSettings(**values))
        self.faults: dict[
            tuple[Verb, Phase], list[Fault]
        ] = {}  # (verb, phase) -> list of faults, used up in order
        self.provider = FakeProvider(self.cloud, faults=self._fault)
        self.stub = Stub(self.clock, log=b"line\n" * 1000)
        self.home = open_home(tmp_path)
        self.told: list[Happening] = []
        self.drawn = iter(f"{n:06x}" for n in range(100))

    def _fault(self, verb: Verb, phase: Phase) -> Fault | None:
        waiting = self.faults.get((verb, phase))
        return waiting.pop(0) if waiting else None

    def runner(self, holder: str = "me", **options: Any) -> Runner:
        """Return the hands of one process."""
        return Runner(
            self.store, {"fake": self.provider}, self.stub.make, self.home, self.clock, "owner",
            holder=holder, listeners=[self.told.append], draw=lambda: next(self.drawn), **options,
        )  # fmt: skip

    def submit(self, *offers: Offer, **caps: Any) -> None:
        """Store job abc123."""
        self.store.create_job(
            new_job("abc123", *(offers or DEFAULT_OFFERS[:1]), **caps), now=self.clock.now()
        )

    def drive(
        self,
        driver: Driver | None = None,
        *,
        until: Callable[[], object] | None = None,
        for_s: float = 5000.0,
    ) -> JobView:
        """Tick until the job is closed, `until` holds, or the time is over; return the view."""
        driver = driver or self.runner().take("abc123")
        assert driver is not None
        end = self.clock.now() + for_s
        while self.clock.now() < end:
            again = driver.tick()
            if again is None:
                driver.release()
                break
            if until is not None and until():
                break
            self.clock.advance(max(0.0, again - self.clock.now()))
        return self.view(driver.job_id)

    def view(self, job_id: str = "abc123") -> JobView:
        """Return the job as it stands."""
        return self.store.job(job_id, now=self.clock.now())

    def kinds(self, attempt: int = 1) -> list[str]:
        """Return the names of an attempt's events."""
        return [type(r.event).__name__ for r in self.store.events("abc123") if r.attempt == attempt]

    def fail(self, verb: Verb, *errors: Any, phase: Phase = Phase.BEFORE) -> None:
        """Let the next calls of a verb fail, one error each."""
        self.faults[verb, phase] = [Fault(error=error) for error in errors]
