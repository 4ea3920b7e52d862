"""Before an attempt is given up as lost: did its machine deliver its result by itself? Pure.

Asked for only where the training ran and a rescue set was made. The answer costs one look at the
store; a store that is away delays the end of an attempt by RESCUE_S at the most, and never that of
a machine: it is gone, or its deadline has passed and it ends itself.
"""

from __future__ import annotations

from orchestrator import events as ev
from orchestrator.actions import LookForRescue, Record
from orchestrator.attempt import Attempt
from orchestrator.decide_teardown import Due
from orchestrator.observation import Observation, Terms
from orchestrator.states import Reason, State

RESCUE_S = 120.0
# What can be the end of an attempt that nobody saw.
UNSEEN = frozenset({Reason.INSTANCE_LOST, Reason.SSH_LOST, Reason.AGENT_LOST, Reason.DEADLINE})


def rescued(
    wanted: list[Due], attempt: Attempt, seen: Observation, now: float, terms: Terms
) -> list[Due]:
    """Return what is wanted, or a look at the store first, or what was found there."""
    if not terms.rescue or attempt.state not in {State.RUNNING, State.COLLECTING}:
        return wanted
    found = seen.rescued
    if found is not None and attempt.state is State.RUNNING:
        end = ev.TrainerExited(
            now, found.reason, found.evidence, found.rc, found.last_step, found.max_steps,
            found.trainer_starts,
        )  # fmt: skip
        return [(now, Record(end))]
    settled = seen.rescue_over or seen.collected is not None or attempt.reason is not None
    if settled or not any(_is_unseen_end(due) for due in wanted):
        return wanted
    since = seen.rescue_since
    if since is not None and now >= since + RESCUE_S:
        return wanted
    return [(seen.rescue_after, LookForRescue())]


def _is_unseen_end(due: Due) -> bool:
    action = due[1]
    if not isinstance(action, Record) or not isinstance(action.event, ev.Aborted):
        return False
    return action.event.reason in UNSEEN
