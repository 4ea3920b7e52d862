"""The vocabulary of a job's life: states, events, reasons, and the tables that bind them. No logic.

A job is a list of attempts; an attempt is one offer, one label, at most one machine. Every state
that may hold a machine leaves only through STOPPING (a definite refusal of the launch aside), and
STOPPING becomes CLOSED only with proof of absence. One arrow leads back: a machine that shows up
under the name of a CLOSED attempt (a launch whose outcome was never learnt) makes it STOPPING
again. Why a job ended is a second axis, `Reason`: the first one wins.
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
    RESURFACED = "resurfaced"


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
    (State.CLOSED, Event.RESURFACED): State.STOPPING,
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
    CLOSED_BY_OWNER = "closed_by_owner"  # the same, and its owner says that it is ended
    HANDED_ON = "handed_on"  # the same, and another job took it over with its meter


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
    NOTHING_LEARNED = "NOTHING_LEARNED"  # loss and gradient 0 throughout
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
    TEAM_BUDGET = "TEAM_BUDGET"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"  # by Ctrl-C or a signal
    ARTIFACTS_FAILED = "ARTIFACTS_FAILED"
    ARTIFACTS_REFUSED = "ARTIFACTS_REFUSED"
    AGENT_LOST = "AGENT_LOST"
    ORPHANED = "ORPHANED"  # a machine of ours without a record: found by the sweep, and ended
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Ending:
    """What a reason means: outcome, exit code, words, and whether the next offer may help.

    next_offer: another machine is worth a try (the fault lies with this one, or there was none).
    """

    outcome: Outcome
    exit_code: int
    cause: str
    next_step: str
    next_offer: bool = False


EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2  # bad input: nothing was launched
EXIT_NO_OFFER = 3  # nothing could be rented
EXIT_JOB_FAILED = 4
EXIT_STILL_BILLING = 5  # a machine is not proven gone
EXIT_DATA_REFUSED = 6
EXIT_NOT_HOME = 7  # trained, but the adapter is not safe at home
EXIT_CANCELLED = 130

# When several apply, the one that needs the person most is shown (first in this tuple).
EXIT_PRECEDENCE = (
    EXIT_STILL_BILLING, EXIT_CANCELLED, EXIT_NOT_HOME, EXIT_JOB_FAILED, EXIT_NO_OFFER,
    EXIT_INTERNAL, EXIT_OK,
)  # fmt: skip


def _failed(cause: str, next_step: str, *, next_offer: bool = False) -> Ending:
    return Ending(Outcome.FAILED, EXIT_JOB_FAILED, cause, next_step, next_offer)


def _unrented(cause: str, next_step: str, *, next_offer: bool = False) -> Ending:
    return Ending(Outcome.FAILED, EXIT_NO_OFFER, cause, next_step, next_offer)


def _not_home(cause: str, next_step: str) -> Ending:
    return Ending(Outcome.FAILED, EXIT_NOT_HOME, cause, next_step)


def _cancelled(cause: str, next_step: str) -> Ending:
    return Ending(Outcome.CANCELLED, EXIT_CANCELLED, cause, next_step)


ENDINGS: dict[Reason, Ending] = {
    Reason.SUCCEEDED: Ending(
        Outcome.SUCCEEDED,
        EXIT_OK,
        "The training finished and the adapter is at home, checked.",
        "Load it with peft; `gpujob cost` shows what it came to.",
    ),
    Reason.OUT_OF_MEMORY: _failed(
        "The GPU ran out of memory.",
        "Halve training.micro_batch_size or training.sequence_len, or ask for a larger GPU.",
    ),
    Reason.GPU_FAULT: _failed(
        "The GPU or its driver reported a hardware fault.",
        "Submit again: another machine will do.",
        next_offer=True,
    ),
    Reason.DRIVER_MISMATCH: _failed(
        "The machine's NVIDIA driver is too old for the installed CUDA build.",
        "Submit again on another machine, or name an image built for an older CUDA.",
        next_offer=True,
    ),
    Reason.KERNEL_MISMATCH: _failed(
        "The installed kernels do not support this GPU's generation.",
        "Choose another gpu.types entry, or an image built for this GPU.",
    ),
    Reason.BF16_UNSUPPORTED: _failed(
        "This GPU cannot compute in bfloat16.",
        "Set axolotl.bf16 to false and axolotl.fp16 to true, or choose a newer GPU.",
    ),
    Reason.BITSANDBYTES_SETUP: _failed(
        "bitsandbytes could not set itself up on this machine.",
        "Use method lora instead of qlora, or another image.",
    ),
    Reason.NCCL_TIMEOUT: _failed(
        "The GPUs of the machine stopped answering each other.",
        "Submit again on another machine, or with gpu.count 1.",
        next_offer=True,
    ),
    Reason.EVAL_SPLIT_TOO_SMALL: _failed(
        "The validation split is too small for the batch.",
        "Raise data.validation or lower training.micro_batch_size.",
    ),
    Reason.NO_STEPS: _failed(
        "The data yields not one optimizer step.",
        "Give more examples, or lower gradient_accumulation_steps or sequence_len.",
    ),
    Reason.DATA_FORMAT: _failed(
        "The training data does not have the form that data.format names.",
        "Compare a line of the file with the format's description in the docs.",
    ),
    Reason.DATA_MISSING: _failed(
        "A data file or data set was not found on the machine.",
        "Check data.train and data.validation.",
    ),
    Reason.MODEL_MISSING: _failed(
        "The base model was not found.",
        "Check the spelling of `model` (owner/name on the hub, or a folder).",
    ),
    Reason.MODEL_GATED: _failed(
        "The base model is gated: its owner must let you in first.",
        "Accept its terms on its hub page; set `gated: true`, and a token that may read it.",
    ),
    Reason.HUB_UNREACHABLE: _failed(
        "The model hub did not answer.",
        "Submit again later.",
        next_offer=True,
    ),
    Reason.BATCH_SHAPE: _failed(
        "Two tensors of a batch did not fit together.",
        "Look at the log's last lines; often a chat template or packing does not fit the model.",
    ),
    Reason.DIVERGED: _failed(
        "The training diverged: loss or gradient became NaN or infinite.",
        "Lower training.learning_rate, or use warm-up and gradient clipping.",
    ),
    Reason.NOTHING_LEARNED: _failed(
        "Loss and gradient were 0 throughout: the model learned nothing.",
        "Check that the data has answers to learn from, and training.train_on_inputs.",
    ),
    Reason.CHECKPOINT_BROKEN: _failed(
        "A checkpoint could not be read.",
        "Submit again without resuming, or from an older checkpoint.",
    ),
    Reason.CONFIG_REFUSED: _failed(
        "Axolotl refused the configuration.",
        "The log names the key; mend it in the job file.",
    ),
    Reason.HOST_OUT_OF_MEMORY: _failed(
        "The machine ran out of main memory (not GPU memory).",
        "Choose a machine with more RAM, or stream the data set.",
    ),
    Reason.DISK_FULL: _failed(
        "The machine's disk is full.",
        "Ask for more disk, or keep fewer checkpoints.",
    ),
    Reason.INCOMPLETE: _failed(
        "The trainer ended without an error, but the training is not finished.",
        "Look at the log's last lines; a signal or an early exit stopped it.",
    ),
    Reason.TRAINER_KILLED: _failed(
        "The trainer was killed from outside, most often for want of memory.",
        "Choose a machine with more RAM, and look at the log's last lines.",
    ),
    Reason.TRAINER_FAILED: _failed(
        "The trainer failed for a cause that gpujob does not know.",
        "Look at the log's last lines with `gpujob logs`.",
    ),
    Reason.NO_CAPACITY: _unrented(
        "The provider had none of these machines left.",
        "Try later, or allow more types or providers under gpu.",
        next_offer=True,
    ),
    Reason.AUTH: _unrented(
        "The provider refused the API key.",
        "Make a new key, and check it with `gpujob doctor`.",
    ),
    Reason.QUOTA: _unrented(
        "The account's limit or balance forbids this machine.",
        "Add funds or raise the limit at the provider.",
        next_offer=True,
    ),
    Reason.LAUNCH_REFUSED: _unrented(
        "The provider refused the request for a machine.",
        "Its own words are shown above; mend what they name.",
    ),
    Reason.LAUNCH_UNKNOWN: _unrented(
        "The provider never said whether the machine was made, and none has appeared.",
        "Nothing to do: the name is watched for 24 hours and ended if it appears.",
        next_offer=True,
    ),
    Reason.PRICE_ABOVE_QUOTE: _unrented(
        "The machine came dearer than quoted, and was ended at once.",
        "Submit again, or raise gpu.max_price_usd_per_hour.",
        next_offer=True,
    ),
    Reason.BOOT_TIMEOUT: _failed(
        "The machine did not become reachable in time.",
        "Submit again; raise limits.boot_minutes if its image is very large.",
        next_offer=True,
    ),
    Reason.HOST_KEY_MISMATCH: _failed(
        "The machine showed another SSH host key than the provider vouched for.",
        "Nothing was sent to it. Submit again; if it recurs, ask the provider.",
    ),
    Reason.PREPARE_FAILED: _failed(
        "The machine could not be prepared for the training.",
        "The step that failed is shown above.",
        next_offer=True,
    ),
    Reason.PREPARE_TIMEOUT: _failed(
        "Preparing the machine took too long.",
        "Submit again; a smaller upload or an image with Axolotl helps.",
        next_offer=True,
    ),
    Reason.SSH_LOST: _failed(
        "The machine runs, but could not be reached over SSH for too long.",
        "Submit again; check that this network lets SSH out.",
        next_offer=True,
    ),
    Reason.INSTANCE_LOST: _failed(
        "The machine vanished or was stopped by its provider.",
        "Submit again, on a tier that is not interruptible.",
        next_offer=True,
    ),
    Reason.IDLE: _failed(
        "The training did nothing for too long.",
        "Look at the log; raise limits.idle_minutes if this was wanted.",
    ),
    Reason.STALLED: _failed(
        "The training made no step for too long.",
        "Look at the log's last lines.",
    ),
    Reason.DEADLINE: _failed(
        "The time limit of the job was reached.",
        "Raise limits.hours, or make the job smaller.",
    ),
    Reason.BUDGET: _failed(
        "The budget of the job was reached.",
        "Raise limits.budget_usd, or make the job smaller.",
    ),
    Reason.TEAM_BUDGET: _unrented(
        "What the team may spend in a day is used up or spoken for.",
        "Submit again tomorrow (UTC), cancel another job, or raise the setting named above.",
    ),
    Reason.CANCELLED: _cancelled("You cancelled it.", "Submit again when you like."),
    Reason.INTERRUPTED: _cancelled(
        "It was interrupted by Ctrl-C or a signal.", "Submit again when you like."
    ),
    Reason.ARTIFACTS_FAILED: _not_home(
        "The training finished, but its result did not get to every place it was meant for.",
        "Mend what is named. What is at home stays; `gpujob push JOB` sends what is missing.",
    ),
    Reason.ARTIFACTS_REFUSED: _not_home(
        "The training finished, but what it left is not what an adapter may be.",
        "Nothing of it was kept; the file is named above.",
    ),
    Reason.AGENT_LOST: _failed(
        "The program that watches the training on the machine died.",
        "Submit again; the machine may have run out of memory or been restarted.",
        next_offer=True,
    ),
    Reason.ORPHANED: _failed(
        "A machine of yours had no open job; it was ended.",
        "Nothing to do; `gpujob cost` shows what it cost.",
    ),
    Reason.INTERNAL: _failed(
        "gpujob itself made a mistake, and ended the machine to be safe.",
        "Please report it, with the output of `gpujob status`.",
    ),
}
