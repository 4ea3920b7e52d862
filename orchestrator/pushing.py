"""The pushes of one job as its driver sees them: started, looked at, retried, written down.

Each place has a child process of its own, so all go on beside each other and beside the end of the
machine; none of it may stop the driver. What the child knows is lost with it: a new one looks at
what the place has and sends what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator import events as ev
from orchestrator.artifacts.push import Order, Outcome
from orchestrator.push_state import is_home, missing_targets, open_targets
from orchestrator.redact import redact, told

if TYPE_CHECKING:
    from orchestrator.attempt import Attempt
    from orchestrator.case import Case
    from orchestrator.plan import JobRecord
    from orchestrator.runner import Runner
    from orchestrator.states import Reason

LOOK_S = 0.2  # at the children; costs one poll each
LONGEST_PAUSE_S = 60.0
BYTES_PER_S = 100_000  # the slowest link worth waiting for


class Running(Protocol):
    """A push under way."""

    def poll(self) -> Outcome | None:
        """Return how it ended; None while it goes on."""
        ...

    def stop(self) -> None:
        """End it; returns when its process is gone."""
        ...


StartPush = Callable[[Order], Running]


def start_push(order: Order) -> Running:
    """Start a push in a process of its own."""
    from orchestrator.artifacts.push_process import start

    return start(order)


@dataclass(slots=True)
class _Place:
    running: Running | None = None
    began_at: float = 0.0  # the first try of this process
    try_until: float = 0.0
    tries: int = 0
    again_at: float = 0.0


class Pushing:
    """See the module. `step` and `stop` belong to the driver's thread."""

    def __init__(
        self,
        runner: Runner,
        record: JobRecord,
        commit: Callable[[Case, ev.AttemptEvent], None],
        start: StartPush = start_push,
    ) -> None:
        self._runner = runner
        self._record = record
        self._commit = commit
        self._start = start
        self._places: dict[str, _Place] = {}
        self._again: set[str] | None = None  # the places still to try, where a person asked

    def step(self, cases: Sequence[Case], cancel: Reason | None) -> list[float]:
        """Do what is due; return when to come again, nothing where there is nothing to push."""
        targets, last = self._record.new.pushes, cases[-1] if cases else None
        over = self._record.closed_at is not None and self._again is None
        if not targets or last is None or over:
            return []
        if cancel is not None or not is_home(last.attempt):
            self.stop()
            return []
        if self._again is None:
            wanted = open_targets(targets, last.attempt)
        else:
            wanted = tuple(target for target in targets if target in self._again)
        due = [self._one(last, target) for target in wanted]
        return [at for at in due if at is not None]

    def reopen(self, cases: Sequence[Case]) -> None:
        """Push once more what is missing, also of a job that is over: what a person asked for."""
        if cases:
            self._again = set(missing_targets(self._record.new.pushes, cases[-1].attempt))

    def stop(self) -> None:
        """End all children; whoever drives the job next starts them anew."""
        for place in self._places.values():
            if place.running is not None:
                place.running.stop()
        self._places.clear()

    def _one(self, case: Case, target: str) -> float | None:
        runner, now = self._runner, self._runner.clock.now()
        place = self._places.setdefault(target, _Place(began_at=now))
        if place.running is None:
            if now < place.again_at:
                return place.again_at
            order = order_of(self._record, case.attempt, target)
            place.tries += 1
            place.try_until = now + runner.limits.push_try_s + order.total_bytes / BYTES_PER_S
            try:
                place.running = self._start(order)
            except OSError as error:  # no process, no memory: it passes
                return self._ended(case, place, Outcome.failed(target, told(error), retry=True))
            return now + LOOK_S
        outcome = place.running.poll()
        if outcome is None and now >= place.try_until:
            place.running.stop()
            outcome = Outcome.failed(target, "it took too long", retry=True)
        if outcome is None:
            return now + LOOK_S
        place.running = None
        return self._ended(case, place, outcome)

    def _ended(self, case: Case, place: _Place, outcome: Outcome) -> float | None:
        """Write down how a try ended; return when the next one is due, None for none."""
        limits, now = self._runner.limits, self._runner.clock.now()
        if outcome.where:
            self._done_with(outcome.target)
            self._commit(case, ev.PushVerified(now, outcome.target, outcome.where))
            return None
        pause_s = min(limits.push_retry_s * 2 ** min(place.tries - 1, 10), LONGEST_PAUSE_S)
        again = outcome.retry and now + pause_s < place.began_at + limits.push_timeout_s
        said = redact(outcome.error)
        if not again or case.attempt.push(outcome.target).error != said:
            remedy = redact(outcome.remedy)
            self._commit(case, ev.PushFailed(now, outcome.target, said, remedy, final=not again))
        if not again:
            self._done_with(outcome.target)
            return None
        place.again_at = now + pause_s
        return place.again_at

    def _done_with(self, target: str) -> None:
        if self._again is not None:
            self._again.discard(target)


def order_of(record: JobRecord, attempt: Attempt, target: str) -> Order:
    """Return what a child is told to do: no secret in it."""
    new = record.new
    folder = attempt.folder or new.output_folder
    return Order(target, new.id, new.name, attempt.number, str(Path(folder)), attempt.files)
