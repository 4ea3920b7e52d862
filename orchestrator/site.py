"""What the runner needs of a reachable instance.

One small protocol, so that the runner meets the same face on a real machine and in the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.states import Reason


class SiteError(Exception):
    """The instance could not be reached or did not answer in time. Safe to try again."""


class SiteRefused(Exception):  # noqa: N818
    """A definite failure on the instance (no disk, foreign claim): ends the attempt."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ExitReport:
    """`exit.json` of the agent, checked: a verdict, its reason, and the evidence in one line."""

    verdict: str  # succeeded | failed | stopped
    reason: Reason
    evidence: str
    rc: int | None
    signal: int | None
    started_at: float
    ended_at: float
    last_step: int | None
    max_steps: int | None
    trainer_starts: int


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The agent's answer. phase is "absent" where no agent was ever started."""

    phase: str  # absent | claimed | training | checking | done
    alive: bool
    heartbeat_age_s: float | None
    log_bytes: int
    metrics_bytes: int
    exit: ExitReport | None
    sample: object = None  # the watchdog's newest, unchecked


@dataclass(frozen=True, slots=True)
class Collected:
    """What came home and was checked: relative paths below the job's output folder."""

    folder: Path
    files: tuple[tuple[str, int, str], ...]  # path, bytes, sha256


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint that lies whole at home; bytes 0: it was pruned there before it was fetched."""

    step: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Rescued:
    """What a machine that was left alone delivered: its result at home, or a checkpoint there."""

    ended: ExitReport
    collected: Collected | None
    kept: Kept | None


class Site(Protocol):
    """One attempt's machine.

    Every call is bounded in time, idempotent, and raises only SiteError or SiteRefused.
    """

    def probe(self) -> None:
        """Connect and run `true`."""
        ...

    def prepare_next(self) -> str | None:
        """Perform the next missing bootstrap step, return its name; None when nothing is missing.

        Steps: folder, tools, environment, model, data, order (with agent, plugin, config); one that
        takes long returns now and then as `environment (torch, 12 of 96)`.
        """
        ...

    def start_trainer(self) -> AgentStatus:
        """Start the agent (and so the trainer) once; a second call finds it started."""
        ...

    def status(self) -> AgentStatus:
        """Ask the agent."""
        ...

    def pull(self, name: str, local: Path, offset: int) -> int:
        """Cut `local` back to `offset`, append what the remote `name` has beyond it, fsync.

        Returns the new offset. Bounded per call; call again while it grows.
        """
        ...

    def stop_trainer(self, *, now: bool) -> None:
        """Ask the agent to end the trainer's whole tree."""
        ...

    def collect(self, folder: Path) -> Collected:
        """Bring the adapter home into `folder`, verify size, sha256 and finiteness; atomic."""
        ...

    def keep_checkpoint(self, step: int, folder: Path) -> Kept | None:
        """Bring the checkpoint of a step home into `folder`, whole or not at all.

        Bounded per call; None: there is more of it, call again.
        """
        ...

    def rescued(self, folder: Path) -> Rescued | None:
        """Return what the machine delivered by itself, checked, its result in `folder`.

        Asks no machine, only the job's store. None: nothing was delivered.
        """
        ...

    def close(self) -> None:
        """Drop the connection; a blocked call returns with SiteError."""
        ...
