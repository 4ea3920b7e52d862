"""What happened: the events of a job and its attempts. `fold.py` makes an attempt of them.

Events are only ever added. `moves` names the arrow of `states.TRANSITIONS` that an event stands
for; events without one leave the state as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from orchestrator.attempt import Endpoint
from orchestrator.states import Event, Reason
from providers.base import InstanceId, Offer


@dataclass(frozen=True, slots=True)
class Opened:
    """The intent, written before anything is asked of anybody."""

    at: float
    job_id: str
    number: int
    label: str
    provider: str
    offer: Offer
    disk_gib: int
    billing_step_s: float
    list_lag_s: float
    deadline_at: float
    bills: bool = False  # the provider can tell what it charged
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class LaunchAsked:
    """The launch call is about to be made. Without a result after it, its outcome is unknown."""

    at: float
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class LaunchDelayed:
    """The launch did nothing and may be asked again after `retry_at`."""

    at: float
    error: str
    retry_at: float
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class LaunchUnclear:
    """The launch gave no usable answer: a machine may exist."""

    at: float
    error: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class SettleRead:
    """A well-formed read after an unclear launch showed no machine of the label."""

    at: float
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """A machine bears the label: `how` is answered, adopted, double or late."""

    at: float
    instance_id: InstanceId
    how: str
    usd_per_hour: Decimal | None = None
    created_at: float | None = None
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class Launched:
    """The attempt has its machine."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = Event.LAUNCHED


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider definitely made nothing."""

    at: float
    reason: Reason
    evidence: str
    moves: ClassVar[Event | None] = Event.REFUSED


@dataclass(frozen=True, slots=True)
class PriceSeen:
    """The provider names another price for a machine than before."""

    at: float
    instance_id: InstanceId
    usd_per_hour: Decimal
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class EndpointSeen:
    """Where the machine is reached, from now on."""

    at: float
    endpoint: Endpoint
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class SshReady:
    """A login succeeded."""

    at: float
    moves: ClassVar[Event | None] = Event.SSH_READY


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step of the preparation is done."""

    at: float
    step: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class StartAsked:
    """The agent is about to be started; it starts the trainer once, however often it is asked."""

    at: float
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class TrainerStarted:
    """The agent said that the trainer runs, or ran."""

    at: float
    moves: ClassVar[Event | None] = Event.TRAINER_STARTED


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """A checkpoint lies whole at home: another machine can go on from it."""

    at: float
    step: int
    bytes: int
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """The agent's verdict; SUCCEEDED here means trained, not yet at home."""

    at: float
    reason: Reason
    evidence: str
    rc: int | None = None
    last_step: int | None = None
    max_steps: int | None = None
    trainer_starts: int = 1
    moves: ClassVar[Event | None] = Event.TRAINER_EXITED


@dataclass(frozen=True, slots=True)
class ArtifactsPushed:
    """What there is to bring home is home: (path, bytes, sha256) each; nothing after a failure."""

    at: float
    files: tuple[tuple[str, int, str], ...] = ()
    folder: str = ""  # where they lie; another than was wished for if that was taken
    moves: ClassVar[Event | None] = Event.ARTIFACTS_PUSHED


@dataclass(frozen=True, slots=True)
class PushVerified:
    """A place that the job names has the whole result, read back: `where` it lies there."""

    at: float
    target: str
    where: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class PushFailed:
    """A place did not take the result. final: it is not tried again by itself."""

    at: float
    target: str
    error: str
    remedy: str = ""
    final: bool = True
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """The attempt ends early, for this reason."""

    at: float
    reason: Reason
    evidence: str
    moves: ClassVar[Event | None] = Event.ABORTED


@dataclass(frozen=True, slots=True)
class TerminateAsked:
    """A terminate call is about to be made."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class TerminateAccepted:
    """The provider took the call. That proves nothing."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class TerminateFailed:
    """The call failed; `definite`: for a cause that will not pass by itself (key, account)."""

    at: float
    instance_id: InstanceId
    error: str
    definite: bool = False
    retry_at: float = 0.0
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class AbsenceRead:
    """describe said gone and find did not show the machine; `at` is the later of the two reads."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class AbsenceDenied:
    """A later read showed the machine again: what was read before counts no more."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class MachineGone:
    """Proof of absence of one machine: its meter stops here."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class InstanceGone:
    """The attempt holds nothing any more. proof: reads, never asked, never came, suspect, yours."""

    at: float
    proof: str
    suspect_until: float | None = None
    moves: ClassVar[Event | None] = Event.INSTANCE_GONE


@dataclass(frozen=True, slots=True)
class EndDeclared:
    """A word that the machine ended at `ended_at`; by: owner, or check_command."""

    at: float
    instance_id: InstanceId
    ended_at: float
    by: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class BillRead:
    """The provider was asked what it charged for a machine that is gone.

    usd None: it could not say yet, or (error) did not answer. whole: it grows no more.
    """

    at: float
    instance_id: InstanceId
    usd: Decimal | None = None
    whole: bool = False
    error: str = ""
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class Resurfaced:
    """A machine bears the label of a CLOSED attempt: it must be ended, and billed."""

    at: float
    instance_id: InstanceId
    moves: ClassVar[Event | None] = Event.RESURFACED


@dataclass(frozen=True, slots=True)
class StillBilling:
    """The alarm: a machine past its end is not proven gone."""

    at: float
    text: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class Noted:
    """Something a person may want to know: an error that is being retried."""

    at: float
    text: str
    moves: ClassVar[Event | None] = None


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """The job was accepted and stored."""

    at: float
    name: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants it to end."""

    at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class JobClosed:
    """Nothing more will be tried."""

    at: float
    reason: Reason
    evidence: str = ""


AttemptEvent = (
    Opened | LaunchAsked | LaunchDelayed | LaunchUnclear | SettleRead | MachineSeen | Launched
    | Refused | PriceSeen | EndpointSeen | SshReady | StepDone | StartAsked | TrainerStarted
    | CheckpointKept | TrainerExited | ArtifactsPushed | Aborted | TerminateAsked
    | TerminateAccepted | TerminateFailed | AbsenceRead | AbsenceDenied | MachineGone | InstanceGone
    | EndDeclared | BillRead
    | Resurfaced | StillBilling | Noted | PushVerified | PushFailed
)  # fmt: skip
JobEvent = JobSubmitted | CancelAsked | JobClosed
AnyEvent = AttemptEvent | JobEvent
EVENTS: dict[str, type[Any]] = {
    cls.__name__: cls for cls in (*AttemptEvent.__args__, *JobEvent.__args__)
}
