"""The orders an agent is given, checked, and the deadline that follows from them."""

from __future__ import annotations

import os
from typing import NamedTuple

from orchestrator.agent.files import SCHEMA, Document, read_document
from orchestrator.agent.watchdog import EVERY_S, Watch

CLOCKS_AGREE_S = 600.0  # beyond that the instance's wall clock is wrong, not late
GRACE_S = 10.0


class BadOrder(Exception):  # noqa: N818 - as the house names its errors
    """The order can't be followed; the text says why."""


class Order(NamedTuple):
    """order.json, checked. Times in UNIX seconds and seconds."""

    folder: str
    token: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    out: str
    deadline_at: float
    deadline_in_s: float
    stop_grace_s: float
    expect_adapter: bool
    may_stop_early: bool
    self_destruct: str | None
    written_at: float  # by the instance's clock
    watch: Watch | None  # None: nobody asked for one


def read_order(path: str) -> Order:
    """Return the order; raises BadOrder, which names the field."""
    document = read_document(path)
    if document is None:
        raise BadOrder("%s is no JSON object" % path)
    if document.get("schema") != SCHEMA:
        raise BadOrder("schema %r is not %d" % (document.get("schema"), SCHEMA))
    folder = os.path.dirname(os.path.abspath(path))
    argv, env = document.get("argv"), document.get("env", {})
    if not _strings(argv) or not argv:
        raise BadOrder("argv is no list of strings")
    if not isinstance(env, dict) or not _strings(list(env.values())):
        raise BadOrder("env is no object of strings")
    token = document.get("token")
    if not isinstance(token, str) or not token:
        raise BadOrder("token is no string")
    line = document.get("self_destruct")
    if line is not None and not isinstance(line, str):
        raise BadOrder("self_destruct is neither null nor a string")
    return Order(
        folder=folder,
        token=token,
        argv=list(argv),
        env=dict(env),
        cwd=os.path.join(folder, str(document.get("cwd") or ".")),
        out=os.path.join(folder, str(document.get("out") or "out")),
        deadline_at=_number(document, "deadline_at", None),
        deadline_in_s=_number(document, "deadline_in_s", None),
        stop_grace_s=_number(document, "stop_grace_s", GRACE_S),
        expect_adapter=document.get("expect_adapter", True) is not False,
        may_stop_early=document.get("may_stop_early") is True,
        self_destruct=line or None,
        written_at=os.stat(path).st_mtime,
        watch=_watch(document),
    )


def _watch(document: Document) -> Watch | None:
    """Return the watchdog's limits, each null where it shall never fire."""
    limits = document.get("watch")
    if limits is None:
        return None
    if not isinstance(limits, dict):
        raise BadOrder("watch is no object")
    idle = stall = None
    if limits.get("idle_s") is not None:
        idle = _number(limits, "idle_s", None)
    if limits.get("stall_s") is not None:
        stall = _number(limits, "stall_s", None)
    every = _number(limits, "every_s", EVERY_S)
    if every <= 0:
        raise BadOrder("watch.every_s is 0")
    return Watch(idle, stall, every)


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _number(document: Document, name: str, default: float | None) -> float:
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise BadOrder("%s is no number of seconds" % name)
    return float(value)


def seconds_left(order: Order, wall_s: float) -> float:
    """Return the seconds until the deadline: by the wall clock or by what was left, the less.

    What was left when the order was written shrinks by the order's age. Where the wall clock
    disagrees with that by more than CLOCKS_AGREE_S it is wrong, by an hour or a day, and does not
    count. From here on only the steady clock does, so a step of the wall clock can neither end nor
    prolong a run.
    """
    left = order.deadline_in_s - max(0.0, wall_s - order.written_at)
    by_wall = order.deadline_at - wall_s
    if abs(by_wall - left) <= CLOCKS_AGREE_S:
        left = min(left, by_wall)
    return max(0.0, left)
