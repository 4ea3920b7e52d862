"""How far the pushes of a job are, told from its newest attempt. Pure.

The order is fixed: the adapter comes home, the machine is ended, and from there the result goes to
the places that the job names. So a push never keeps a machine waiting, and what fails can be
pushed again from home.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from orchestrator.attempt import Attempt, Push
from orchestrator.states import Reason

# A job that ended so may still become whole: `gpujob push JOB`.
MENDABLE = frozenset({Reason.ARTIFACTS_FAILED, Reason.CANCELLED, Reason.INTERRUPTED})


class PushState(StrEnum):
    """What a person is told of one place."""

    WAITING = "waiting"  # for the training, or for its turn
    PUSHING = "pushing"
    RETRYING = "retrying"
    VERIFIED = "verified"
    FAILED = "failed"


def is_home(attempt: Attempt | None) -> bool:
    """Return whether the attempt brought a whole result home."""
    return attempt is not None and attempt.reason is Reason.SUCCEEDED and bool(attempt.files)


def state_of(push: Push, *, home: bool) -> PushState:
    """Return the state of one place."""
    if push.where:
        return PushState.VERIFIED
    if push.failed:
        return PushState.FAILED
    if push.error:
        return PushState.RETRYING
    return PushState.PUSHING if home else PushState.WAITING


def open_targets(targets: Sequence[str], attempt: Attempt) -> tuple[str, ...]:
    """Return the places that are neither verified nor given up."""
    found = [attempt.push(target) for target in targets]
    return tuple(push.target for push in found if not push.where and not push.failed)


def missing_targets(targets: Sequence[str], attempt: Attempt) -> tuple[str, ...]:
    """Return the places that do not have the whole result."""
    return tuple(target for target in targets if not attempt.push(target).where)


def failures(targets: Sequence[str], attempt: Attempt) -> str:
    """Return what went wrong, a sentence a place; "" where nothing did."""
    pushes = [attempt.push(target) for target in targets]
    said = [f"{push.target}: {push.error}. {push.remedy}".strip() for push in pushes if push.failed]
    if not said:
        return ""
    return "; ".join(said) + f". The result is safe in {attempt.folder}"
