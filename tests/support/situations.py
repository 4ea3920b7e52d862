"""Attempts in every state, and what a process may have seen: words for tests of decide."""

from __future__ import annotations

from typing import Any

from orchestrator import events as ev
from orchestrator.actions import Action, Record
from orchestrator.attempt import Endpoint
from orchestrator.decide import decide
from orchestrator.fold import fold
from orchestrator.observation import Described, Listing, Observation, Terms
from orchestrator.policy import Limits
from orchestrator.states import Reason
from providers.base import Instance, InstanceId, InstanceState
from tests.support.core import LABEL, M1, T0, TRAITS, launched, opened

TERMS = Terms(TRAITS)
LIMITS = Limits()
UNCLEAR: list[Any] = [opened(), ev.LaunchAsked(T0), ev.LaunchUnclear(T0, "Unavailable: 500")]
AT = Endpoint("h", 22, "root")
READY: list[Any] = [*launched(), ev.EndpointSeen(T0 + 5, AT), ev.SshReady(T0 + 5)]
RUNNING: list[Any] = [*READY, ev.StartAsked(T0 + 9), ev.TrainerStarted(T0 + 9)]
TRAINED: list[Any] = [*RUNNING, ev.TrainerExited(T0 + 90, Reason.SUCCEEDED, "")]
FAILED: list[Any] = [
    *RUNNING,
    ev.TrainerExited(T0 + 90, Reason.OUT_OF_MEMORY, "CUDA out of memory"),
]


def ask(history: Any, now: float, terms: Any = TERMS, **seen: Any) -> list[Action]:
    """Return what decide answers to a history and an observation."""
    return decide(fold(history), Observation(**seen), now, terms)


def event(actions: list[Action]) -> Any:
    """Return the one event that is to be recorded."""
    (action,) = actions
    assert isinstance(action, Record), actions
    return action.event


def machine(
    instance_id: InstanceId = M1, state: InstanceState = InstanceState.READY, **more: Any
) -> Instance:
    """Return a sight of a machine under the label."""
    return Instance(instance_id, LABEL, state, **more)


def listing(at: float, *machines: Instance) -> Listing:
    """Return a list that began then."""
    return Listing(at, machines)


def absent(at: float) -> dict[str, Any]:
    """Return what shows the main machine gone."""
    return {"listing": listing(at), "described": {M1: Described(at, None)}}
