"""What an action needs beside its case: the process's hands, the lease, the way to write."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from orchestrator import events as ev
from orchestrator.attempt import Attempt
from orchestrator.plan import JobRecord
from orchestrator.reads import Reads
from orchestrator.store_rows import Lease
from providers.base import Provider

if TYPE_CHECKING:
    from orchestrator.runner import Runner


class Commit(Protocol):
    """Commits events of the case's attempt in one transaction."""

    def __call__(self, *happened: ev.AttemptEvent) -> None:
        """Commit; raises LeaseLost."""
        ...


@dataclass(frozen=True, slots=True)
class Hands:
    """What an action needs beside the case."""

    runner: Runner
    lease: Lease
    reads: Reads
    commit: Commit
    record: JobRecord
    left_usd: Decimal | None
    attempts: tuple[Attempt, ...] = ()  # of the job, oldest first

    @property
    def provider(self) -> Provider:
        """Return the attempt's provider."""
        return self.reads.provider

    def check_lease(self) -> None:
        """Raise LeaseLost unless the job is still ours, immediately before an effect."""
        runner = self.runner
        if runner.rules.fence_calls:
            runner.store.journal.check(self.lease, runner.limits.lease_s)
