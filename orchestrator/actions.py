"""What `decide` may ask of the runner: reads, effects, and events to record."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.events import AttemptEvent
from providers.base import InstanceId


@dataclass(frozen=True, slots=True)
class Record:
    """Commit an event; the attempt is decided upon anew at once."""

    event: AttemptEvent


@dataclass(frozen=True, slots=True)
class Find:
    """Have a listing that began at or after `newer_than`; a shared one will do."""

    newer_than: float


@dataclass(frozen=True, slots=True)
class Describe:
    """Ask the provider about one machine."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Launch:
    """Commit LaunchAsked, call launch once, commit what it answered."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Commit TerminateAsked, call terminate once, commit what it answered."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to log in."""


@dataclass(frozen=True, slots=True)
class Peek:
    """Ask the agent how it is, before anything is prepared: it may have been started long ago."""


@dataclass(frozen=True, slots=True)
class PrepareNext:
    """Perform the next missing step of the preparation."""


@dataclass(frozen=True, slots=True)
class StartTrainer:
    """Have the agent start the trainer, if it has not already."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Pull log and metrics, ask the agent how it is."""


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Bring a checkpoint home, a bounded part of it at a time."""

    step: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Pull what is left of log and metrics."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Bring the adapter home and check it."""


@dataclass(frozen=True, slots=True)
class LookForRescue:
    """See whether the machine, left alone, delivered its result to the store."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """Stop the trainer and pull the log's tail, once and briefly, before the machine is ended."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due before `until`."""

    until: float


Action = (
    Record | Find | Describe | Launch | Terminate | Probe | Peek | PrepareNext | StartTrainer
    | Follow | KeepCheckpoint | Drain | Collect | Farewell | LookForRescue | Wait
)  # fmt: skip
