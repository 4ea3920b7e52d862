"""The exit codes of gpujob, and the one exception that carries one to the top. Data only."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a finished `gpujob` process says by its exit code. `docs/operating.md` repeats the table."""

    OK = 0
    FAULT = 1  # gpujob itself failed (a bug): says nothing of any job
    USAGE = 2
    NO_OFFER = 3
    NOT_FINISHED = 4
    STILL_BILLING = 5
    DATA_GATE = 6
    ARTIFACTS = 7
    INTERRUPTED = 130


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

# When several apply, the one that costs money or attention first. The rest keep their order.
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

    `launched` is True where a machine may exist, so that the message never says "nothing was launched".
    """

    def __init__(
        self, message: str, *, code: Exit = Exit.USAGE, remedy: str = "", launched: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy
        self.launched = launched
