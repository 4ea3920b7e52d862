"""The exit codes of gpujob with their meanings, and the one exception that carries one to the top.

The numbers are those of `states.py`, where each Reason has its own.
"""

from __future__ import annotations

from enum import IntEnum

from orchestrator import states


class Exit(IntEnum):
    """What a finished `gpujob` process says by its exit code. `docs/operating.md` has the table."""

    OK = states.EXIT_OK
    FAULT = states.EXIT_INTERNAL  # gpujob itself failed (a bug): says nothing of any job
    USAGE = states.EXIT_USAGE
    NO_OFFER = states.EXIT_NO_OFFER
    NOT_FINISHED = states.EXIT_JOB_FAILED
    STILL_BILLING = states.EXIT_STILL_BILLING
    DATA_GATE = states.EXIT_DATA_REFUSED
    ARTIFACTS = states.EXIT_NOT_HOME
    INTERRUPTED = states.EXIT_CANCELLED


MEANING: dict[Exit, str] = {
    Exit.OK: "ok",
    Exit.FAULT: "gpujob itself failed; a crash file says where",
    Exit.USAGE: "usage, or a bad job file",
    Exit.NO_OFFER: "nothing fits, or nothing is for hire",
    Exit.NOT_FINISHED: "the job ended without a finished training",
    Exit.STILL_BILLING: "a machine is past its end and not proven gone",
    Exit.DATA_GATE: "the data gate refused the data",
    Exit.ARTIFACTS: "the artifacts did not come home",
    Exit.INTERRUPTED: "interrupted or cancelled",
}

# When several apply, the one that needs the person most; usage errors never meet a job's own code.
PRECEDENCE: tuple[Exit, ...] = (
    Exit.STILL_BILLING,
    Exit.INTERRUPTED,
    Exit.ARTIFACTS,
    Exit.NOT_FINISHED,
    Exit.DATA_GATE,
    Exit.NO_OFFER,
    Exit.USAGE,
    Exit.FAULT,
    Exit.OK,
)


def worst(*codes: int) -> Exit:
    """Return the code that wins when several apply; OK for none."""
    present = {Exit(code) for code in codes} | {Exit.OK}
    return next(code for code in PRECEDENCE if code in present)


class Refused(Exception):  # noqa: N818 - it is an answer to the user, not an error of ours
    """A command that cannot go on, in words for a person: what is wrong, and what to do about it.

    `launched` is True where a machine may exist: the message then never says "nothing was
    launched".
    """

    def __init__(
        self, message: str, *, code: Exit = Exit.USAGE, remedy: str = "", launched: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy
        self.launched = launched
