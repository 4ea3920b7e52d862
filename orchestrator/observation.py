"""What one process knows at this moment about one attempt: the newest answers, each with its time.

All of it lives in memory and may be lost at any moment; what must not be lost is an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from orchestrator.attempt import Machine
from orchestrator.policy import ALL_RULES, DEFAULT_LIMITS, Limits, Rules
from orchestrator.site import AgentStatus, Collected, ExitReport
from orchestrator.states import Reason
from providers.base import Instance, InstanceId, Traits


@dataclass(frozen=True, slots=True)
class Listing:
    """A well-formed answer of find: the machines that bear the attempt's label or a known id.

    at: when the read began; what it shows may be as old as that, and as the provider's list lag.
    """

    at: float
    machines: tuple[Instance, ...]

    def get(self, instance_id: InstanceId) -> Instance | None:
        """Return the machine of that id, if it is listed."""
        return next((m for m in self.machines if m.id == instance_id), None)


@dataclass(frozen=True, slots=True)
class Described:
    """A well-formed answer of describe; instance None: the provider knows no such id."""

    at: float
    instance: Instance | None


@dataclass(slots=True)
class Observation:
    """See the module. `*_after`: no such read before that moment (the bucket, a back-off)."""

    listing: Listing | None = None
    find_after: float = 0.0
    described: dict[InstanceId, Described] = field(default_factory=dict)
    describe_after: float = 0.0
    site_ok_at: float | None = None
    site_down_since: float | None = None  # None: the newest call succeeded, or none was made
    site_error_at: float | None = None
    site_error: str = ""
    site_after: float = 0.0
    refused: tuple[Reason, str] | None = None  # the instance itself said no, definitely
    known_fresh: bool = False  # nothing can be on it yet: this process launched it, or looked
    prepared: bool = False
    status: AgentStatus | None = None
    dead_since: float | None = None  # the agent is not alive and left no verdict
    saved_step: int | None = None  # of the newest checkpoint that is whole on the instance
    keep_after: float = 0.0  # no transfer of a checkpoint before that moment
    tried_step: int | None = None  # of the newest one that is not worth another try
    nothing: tuple[Reason, str] | None = None  # the watchdog beside: the training comes to nothing
    drained: bool = False  # nothing of the log is left to pull
    collected: Collected | None = None
    rescued: ExitReport | None = None  # the verdict that the machine delivered with its result
    rescue_over: bool = False  # nothing was delivered, or it is settled what was
    rescue_since: float | None = None  # the first look that failed
    rescue_after: float = 0.0
    farewell_done: bool = False
    cancel: Reason | None = None
    cost_usd: Decimal = Decimal(0)  # of the whole job, now; kept only where there is a budget


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for the attempt however it goes: traits, the job's caps, limits, rules."""

    traits: Traits
    limits: Limits = DEFAULT_LIMITS
    rules: Rules = ALL_RULES
    budget_usd: Decimal | None = None
    reserve_usd: Decimal = Decimal(0)
    boot_timeout_s: float | None = None  # None: the trait's
    keep_checkpoints: int = 0  # how many are kept at home; 0: none is brought
    rescue: bool = False  # the machine can deliver its result by itself
    keep_on_failure_s: float = 0.0  # a machine whose training failed is left for so long

    @property
    def boot_s(self) -> float:
        """Return how long a boot may take."""
        return self.traits.boot_timeout_s if self.boot_timeout_s is None else self.boot_timeout_s


def backoff_s(machine: Machine, limits: Limits) -> float:
    """Return the pause after the n-th terminate call of a machine: doubling, bounded."""
    doublings = max(0, min(machine.terminate_calls - 1, 16))
    return min(limits.terminate_first_s * float(1 << doublings), limits.terminate_max_s)
