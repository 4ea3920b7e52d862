"""The vocabulary of a job's life: states, events, reasons, and the tables that bind them. No logic.

A job is a list of attempts; an attempt is one offer, one label, at most one machine. Every state that may
hold a machine leaves only through STOPPING (a definite refusal of the launch aside), and STOPPING becomes
CLOSED only with proof of absence. Why a job ended is a second axis, `Reason`: the first one wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where an attempt is."""

    INTENDED = "INTENDED"
    BOOTING = "BOOTING"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    COLLECTING = "COLLECTING"
    STOPPING = "STOPPING"
    CLOSED = "CLOSED"


class Event(StrEnum):
    """What moves it."""

    LAUNCHED = "launched"
    REFUSED = "refused"
    SSH_READY = "ssh_ready"
    TRAINER_STARTED = "trainer_started"
    TRAINER_EXITED = "trainer_exited"
    ARTIFACTS_PUSHED = "artifacts_pushed"
    ABORTED = "aborted"
    INSTANCE_GONE = "instance_gone"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.INTENDED, Event.LAUNCHED): State.BOOTING,
    (State.INTENDED, Event.REFUSED): State.CLOSED,
    (State.INTENDED, Event.ABORTED): State.STOPPING,
    (State.BOOTING, Event.SSH_READY): State.PREPARING,
    (State.BOOTING, Event.ABORTED): State.STOPPING,
    (State.PREPARING, Event.TRAINER_STARTED): State.RUNNING,
    (State.PREPARING, Event.ABORTED): State.STOPPING,
    (State.RUNNING, Event.TRAINER_EXITED): State.COLLECTING,
    (State.RUNNING, Event.ABORTED): State.STOPPING,
    (State.COLLECTING, Event.ARTIFACTS_PUSHED): State.STOPPING,
    (State.COLLECTING, Event.ABORTED): State.STOPPING,
    (State.STOPPING, Event.INSTANCE_GONE): State.CLOSED,
}

MAY_HOLD_A_MACHINE = frozenset(State) - {State.CLOSED}
HOLDS_A_MACHINE = MAY_HOLD_A_MACHINE - {State.INTENDED, State.STOPPING}


class Outcome(StrEnum):
    """What the training came to, as the user sees it. RUNNING until it is known."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Teardown(StrEnum):
    """What is known of the machine, as the user sees it."""

    NONE = "none"  # none was ever launched
    LIVING = "living"  # needed, and paid for
    STOPPING = "stopping"  # asked to end, not yet proven
    STILL_BILLING = "still_billing"  # past its end and not proven gone
    SUSPECT = "suspect"  # the launch's outcome was never learnt; watched for 24 h
    GONE = "gone"  # proven by reads
    YOURS_TO_CLOSE = "yours_to_close"  # rented by hand; only its owner can end it


class Reason(StrEnum):
    """Why an attempt ended. The first one recorded wins."""

    SUCCEEDED = "SUCCEEDED"
    # the training's own failures
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    GPU_FAULT = "GPU_FAULT"
    DRIVER_MISMATCH = "DRIVER_MISMATCH"
    KERNEL_MISMATCH = "KERNEL_MISMATCH"
    BF16_UNSUPPORTED = "BF16_UNSUPPORTED"
    BITSANDBYTES_SETUP = "BITSANDBYTES_SETUP"
    NCCL_TIMEOUT = "NCCL_TIMEOUT"
    EVAL_SPLIT_TOO_SMALL = "EVAL_SPLIT_TOO_SMALL"
    NO_STEPS = "NO_STEPS"
    DATA_FORMAT = "DATA_FORMAT"
    DATA_MISSING = "DATA_MISSING"
    MODEL_MISSING = "MODEL_MISSING"
    MODEL_GATED = "MODEL_GATED"
    HUB_UNREACHABLE = "HUB_UNREACHABLE"
    BATCH_SHAPE = "BATCH_SHAPE"
    DIVERGED = "DIVERGED"
    CHECKPOINT_BROKEN = "CHECKPOINT_BROKEN"
    CONFIG_REFUSED = "CONFIG_REFUSED"
    HOST_OUT_OF_MEMORY = "HOST_OUT_OF_MEMORY"
    DISK_FULL = "DISK_FULL"
    INCOMPLETE = "INCOMPLETE"  # rc 0 without a finished training
    TRAINER_KILLED = "TRAINER_KILLED"
    TRAINER_FAILED = "TRAINER_FAILED"  # none of the above
    # the machine's and ours
    NO_CAPACITY = "NO_CAPACITY"
    AUTH = "AUTH"
    QUOTA = "QUOTA"
    LAUNCH_REFUSED = "LAUNCH_REFUSED"
    LAUNCH_UNKNOWN = "LAUNCH_UNKNOWN"
    PRICE_ABOVE_QUOTE = "PRICE_ABOVE_QUOTE"
    BOOT_TIMEOUT = "BOOT_TIMEOUT"
    HOST_KEY_MISMATCH = "HOST_KEY_MISMATCH"
    PREPARE_FAILED = "PREPARE_FAILED"
    PREPARE_TIMEOUT = "PREPARE_TIMEOUT"
    SSH_LOST = "SSH_LOST"
    INSTANCE_LOST = "INSTANCE_LOST"
    IDLE = "IDLE"
    STALLED = "STALLED"
    DEADLINE = "DEADLINE"
    BUDGET = "BUDGET"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"  # by Ctrl-C or a signal
    ARTIFACTS_FAILED = "ARTIFACTS_FAILED"
    ARTIFACTS_REFUSED = "ARTIFACTS_REFUSED"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Ending:
    """What a reason means: the outcome, the exit code, and the words (cause, next step)."""

    outcome: Outcome
    exit_code: int
    cause: str
    next_step: str
