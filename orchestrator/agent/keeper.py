"""The keeper: waits for the agent, and takes its place should it die. And what both of them do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Callable

from orchestrator.agent.files import (
    CLAIM,
    EXIT,
    METRICS,
    SCHEMA,
    STARTS,
    Document,
    publish_exit,
    read_document,
    size_of,
)
from orchestrator.agent.metrics import read_metrics
from orchestrator.agent.order import Order
from orchestrator.agent.procs import end_tree, send, steady_s
from orchestrator.agent.rescue import rescue

TICK_MAX_S = 1.0
LEFTOVER_GRACE_S = 1.0  # for what a finished trainer leaves behind
KEEPER_MARGIN_S = 60.0  # the keeper ends an agent that hangs so long past deadline and grace
DESTRUCT_FIRST_S = 5.0
DESTRUCT_LONGEST_S = 300.0
DESTRUCT_TIMEOUT_S = 120.0


def keep(order: Order, deadline: float, agent: int) -> None:
    """Wait for the agent; end what it leaves, and speak for it if it could not."""
    signal.signal(signal.SIGTERM, lambda *_: send((agent,), signal.SIGTERM))
    exit_path = os.path.join(order.folder, EXIT)
    margin = order.stop_grace_s + KEEPER_MARGIN_S
    while True:
        if os.waitpid(agent, os.WNOHANG)[0]:
            break
        late = steady_s() > deadline + margin
        if late and (order.self_destruct is not None or not os.path.exists(exit_path)):
            send((agent,), signal.SIGKILL)
        time.sleep(0.5)
    claim = read_document(os.path.join(order.folder, CLAIM)) or {}
    if claim.get("pid") != agent:
        return  # it was refused: the folder is another's
    left = end_tree(os.getpid(), grace_s=LEFTOVER_GRACE_S, spare=(), reap=reap_all)
    document = orphan_document(order.folder)
    if steady_s() > deadline:
        document.update(verdict="stopped", reason="DEADLINE", evidence="the agent hung past it")
    if left:
        document["evidence"] += "; %d processes could not be killed" % len(left)
    with contextlib.suppress(OSError):
        publish_exit(order.folder, document)
    linger(order, deadline, lambda: None)


def reap_all() -> None:
    """Collect every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def exit_document(folder: str, verdict: str, reason: str, evidence: str) -> Document:
    """Return the verdict's document with all its fields, those unknown as null."""
    claim = read_document(os.path.join(folder, CLAIM)) or {}
    return {
        "schema": SCHEMA,
        "token": claim.get("token"),
        "trainer_starts": size_of(os.path.join(folder, STARTS)),
        "rc": None,
        "signal": None,
        "started_at": claim.get("at"),
        "ended_at": time.time(),
        "verdict": verdict,
        "reason": reason,
        "evidence": evidence,
        "last_step": None,
        "max_steps": None,
        "adapter": None,
    }


def orphan_document(folder: str) -> Document:
    """Return the verdict on a training whose agent was killed."""
    words = "the agent on the instance was killed, and the training with it"
    document = exit_document(folder, "failed", "TRAINER_KILLED", words)
    seen = read_metrics(os.path.join(folder, METRICS))
    document.update(last_step=seen.last_step, max_steps=seen.max_steps)
    return document


def linger(order: Order, deadline: float, tick: Callable[[], None]) -> None:
    """Stay until the deadline where the machine can end itself, and then see that it does.

    Nobody may ever come for the result: then it is delivered where it was agreed, and the machine
    need not wait. Repeated with longer and longer pauses, for ever.
    """
    if order.self_destruct is None:  # it stays, and so does what lies on it
        return
    delivered = False
    with contextlib.suppress(Exception):  # whatever it is, the machine must end
        delivered = rescue(order.folder, deadline, tick)
    pause = DESTRUCT_FIRST_S
    while True:
        if delivered or steady_s() >= deadline:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    ["/bin/sh", "-c", order.self_destruct],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=DESTRUCT_TIMEOUT_S,
                    check=False,
                )
            time.sleep(pause)
            pause = min(2 * pause, DESTRUCT_LONGEST_S)
        else:
            time.sleep(min(TICK_MAX_S, max(0.0, deadline - steady_s())))
        tick()
