"""The verdict: what a training came to. Exit status 0 is only one of its conditions."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Tuple

from orchestrator.agent.failures import Failure, classify
from orchestrator.agent.logs import LogFacts
from orchestrator.agent.metrics import MetricsFacts
from orchestrator.agent.weights import Weights

FULL_DISK_BYTES = 16 << 20
FileStamp = Optional[Tuple[int, int, int]]


class Stopped(NamedTuple):
    """We ended the trainer: why, and in which words."""

    reason: str
    evidence: str


class Case(NamedTuple):
    """All that is known when the trainer is gone."""

    rc: int | None
    stopped: Stopped | None
    log: LogFacts
    metrics: MetricsFacts
    weights: Weights | None
    weights_error: str
    fresh: bool  # the weights were written by this trainer
    out_of_memory_kill: bool
    may_stop_early: bool = False
    free_bytes: int | None = None  # on the folder's disk, when the trainer had ended


class Verdict(NamedTuple):
    """succeeded | failed | stopped, the reason, and the line that shows it."""

    verdict: str
    reason: str
    evidence: str


def judge(case: Case) -> Verdict:
    """Return the verdict. Pure. A log cut at any line never yields `succeeded`."""
    fault = fault_of_success(case) if case.rc == 0 else None
    if case.rc == 0 and fault is None:
        return Verdict("succeeded", "SUCCEEDED", case.log.saved)
    if case.stopped is not None:
        return Verdict("stopped", case.stopped.reason, case.stopped.evidence)
    if fault is None:
        fault = classify(case.log, case.rc, case.out_of_memory_kill)
    unexplained = fault.reason in ("TRAINER_FAILED", "INCOMPLETE")
    if unexplained and case.free_bytes is not None and case.free_bytes < FULL_DISK_BYTES:
        # Its last words had no room in the log.
        words = "%d bytes are free on the disk; %s" % (case.free_bytes, fault.evidence)
        fault = Failure("DISK_FULL", words)
    return Verdict("failed", fault.reason, fault.evidence)


def fault_of_success(case: Case) -> Failure | None:
    """Return what is wrong with a trainer that exited with 0; None where nothing is."""
    metrics, log = case.metrics, case.log
    if metrics.bad_step is not None and not metrics.recovered:
        return Failure(
            "DIVERGED", "loss or gradient was not finite from step %s on" % metrics.bad_step
        )
    if metrics.logged == 0 and log.not_finite:
        return Failure("DIVERGED", "the log shows a loss or gradient of nan or inf")
    step, steps = steps_of(case)
    at = "the last step was %s of %s" % (step, steps)
    if not log.saved or not log.finished:
        return Failure("INCOMPLETE", "exit status 0 without the final line; " + at)
    if metrics.begun and not metrics.ended:
        return Failure("INCOMPLETE", "the trainer never told of its end; " + at)
    early = case.may_stop_early and metrics.ended
    if step is None or steps is None or step > steps or (step < steps and not early) or step < 1:
        return Failure("INCOMPLETE", at)
    if case.weights is None:
        return Failure("INCOMPLETE", case.weights_error)
    if not case.fresh:
        return Failure("INCOMPLETE", "the weights are older than this training")
    if not case.weights.finite:
        return Failure("DIVERGED", "the trained weights hold NaN or infinity")
    if metrics.all_zero:
        return Failure(
            "NOTHING_LEARNED", "loss and gradient were 0 from the first step to the last"
        )
    if case.weights.zero_b:
        return Failure(
            "NOTHING_LEARNED", "every LoRA B matrix is still 0, as before the first step"
        )
    return None


def steps_of(case: Case) -> tuple[int | None, int | None]:
    """Return (last step, steps in all): by the plugin, else by the bar in the log."""
    if case.metrics.begun:
        return case.metrics.last_step, case.metrics.max_steps
    return case.log.last_step, case.log.max_steps


def stamp_of(out: str, *, adapter: bool) -> FileStamp:
    """Return what tells the weights' file from a later one: inode, size, mtime; None if absent.

    Compared before and after, so that no clock need be right.
    """
    names = ["adapter_model.safetensors"]
    if not adapter:
        names = ["model.safetensors.index.json", "model.safetensors"]
    for name in names:
        try:
            found = os.stat(os.path.join(out, name))
        except OSError:
            continue
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None
