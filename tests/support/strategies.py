"""Hypothesis strategies made from our own annotations: any record, any attempt, any observation."""

from __future__ import annotations

import dataclasses
import types
import typing
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any

from hypothesis import strategies as st

from orchestrator import events as ev
from orchestrator.attempt import Attempt
from orchestrator.fold import apply
from orchestrator.observation import Described, Listing, Observation
from orchestrator.site import AgentStatus
from orchestrator.states import TRANSITIONS, State
from providers.base import Instance, InstanceState
from tests.support.core import LABEL, M1, M2, T0, opened

times = st.floats(min_value=T0 - 100.0, max_value=T0 + 100_000.0)
money = st.decimals(min_value=0, max_value=1000, places=6)
words = st.text(max_size=12)
ids = st.sampled_from([M1, M2])


@cache
def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for any annotation that codec.py knows."""
    if isinstance(annotation, typing.NewType):
        return ids if annotation.__name__ == "InstanceId" else words
    if annotation is str:
        return words
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(-(2**40), 2**40)
    if annotation is float:
        return times
    if annotation is Decimal:
        return money
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        return st.builds(
            typing.cast("typing.Any", annotation),
            **{f.name: of_type(hints[f.name]) for f in dataclasses.fields(annotation)},
        )
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return st.none() | of_type(next(a for a in args if a is not type(None)))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(of_type(arg) for arg in args))
    if origin is dict:
        return st.dictionaries(words, of_type(args[1]), max_size=3)
    return st.none()


KINDS: list[typing.Any] = list(ev.EVENTS.values())
any_event = st.one_of(*(of_type(cls) for cls in KINDS))

NEEDS_KNOWN = (ev.TerminateAsked, ev.Launched)


def possible(attempt: Attempt, event: Any) -> bool:
    """Return whether a runner could have recorded this event now."""
    if event.moves is not None and (attempt.state, event.moves) not in TRANSITIONS:
        return False
    if isinstance(event, ev.MachineSeen):
        asked = attempt.launch_asked_at is not None
        return asked and attempt.machine(event.instance_id) is None
    if isinstance(event, ev.LaunchAsked):
        return attempt.state is State.INTENDED and not attempt.launch_open and not attempt.machines
    if isinstance(event, (ev.LaunchDelayed, ev.LaunchUnclear, ev.SettleRead, ev.Refused)):
        return attempt.launch_open
    if isinstance(event, ev.InstanceGone):
        return not attempt.living
    if isinstance(event, ev.Resurfaced):
        return True
    named = getattr(event, "instance_id", None)
    return named is None or attempt.machine(named) is not None


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Draw a history that could have happened: each event possible where it stands.

    Half of the steps take the attempt further, so that the late states are reached as well.
    """
    history: list[Any] = [opened()]
    attempt = apply(None, history[0])
    at = T0
    for _ in range(draw(st.integers(0, 30))):
        at += draw(st.floats(0.0, 600.0))
        kinds = [kind for kind in KINDS if kind is not ev.Opened and _fits(attempt, kind)]
        moving = [kind for kind in kinds if kind.moves is not None or kind in FURTHER]
        further: bool = draw(st.booleans())
        kind: Any = draw(st.sampled_from(moving if moving and further else kinds))
        event = dataclasses.replace(draw(of_type(kind)), at=at)
        if hasattr(event, "instance_id") and attempt.living and kind is not ev.MachineSeen:
            known = draw(st.sampled_from(attempt.living))
            event = dataclasses.replace(event, instance_id=known.id)
        if possible(attempt, event):
            attempt = apply(attempt, event)
            history.append(event)
    return history


FURTHER = (ev.LaunchAsked, ev.MachineSeen, ev.TerminateAsked, ev.AbsenceRead, ev.MachineGone)


def _fits(attempt: Attempt, kind: Any) -> bool:
    """Return whether an event of this kind may come next, whatever it holds."""
    if not hasattr(kind, "moves"):
        return False  # of the job, not of an attempt
    return kind.moves is None or (attempt.state, kind.moves) in TRANSITIONS


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Draw a machine under the attempt's label, in any state."""
    known = draw(st.booleans())
    return Instance(
        draw(ids),
        LABEL,
        draw(st.sampled_from(InstanceState)),
        "h" if known else None,
        22 if known else None,
        "root",
        price_usd_per_hour=draw(st.none() | money),
        created_at=draw(st.none() | times),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Draw anything that a process may believe to know."""
    listing = draw(
        st.none() | st.builds(Listing, times, st.lists(instances(), max_size=2).map(tuple))
    )
    described = draw(
        st.dictionaries(ids, st.builds(Described, times, st.none() | instances()), max_size=2)
    )
    hints = typing.get_type_hints(Observation)
    rest = {
        name: draw(of_type(hint))
        for name, hint in hints.items()
        if name not in {"listing", "described", "status"}
    }
    return Observation(
        listing=listing, described=described, status=draw(st.none() | of_type(AgentStatus)), **rest
    )
