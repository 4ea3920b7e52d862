"""The watchdog's verdict: right on every trace, at the right time, and never on what is unknown."""

from __future__ import annotations

import random

import pytest

from orchestrator.agent.watchdog import (
    BUSY,
    IDLE,
    STRIKES,
    UNKNOWN,
    Finding,
    Memory,
    Sample,
    Watch,
    is_end,
    take,
    verdict,
)
from orchestrator.states import ENDINGS, Reason
from tests.support.traces import NAMES, trace

LATEST_SAMPLES = 5  # after the moment: the strikes, and where the grid of samples lies
LIMIT_S = 60.0
WATCH = Watch(idle_s=LIMIT_S, stall_s=LIMIT_S, every_s=1.0)


def run(samples, watch: Watch) -> tuple[float | None, Finding]:
    """Return when the first end came (seconds from the start), and the last verdict."""
    memory: Memory | None = None
    start = None
    found = Finding(BUSY)
    for sample in samples:
        start = sample.at if start is None else start
        memory = take(memory, sample, watch)
        found = verdict(memory, watch)
        if is_end(found):
            return sample.at - start, found
    return None, found


@pytest.mark.parametrize("name", NAMES)
def test_each_trace_gets_its_verdict_at_its_time(name):
    one = trace(name)
    at, found = run(one.samples(), one.watch)
    assert found.kind == one.expect["kind"], (found, at)
    assert found.reason == one.expect.get("reason", "")
    if "at_s" in one.expect:
        assert at is not None
        late_s = at - one.expect["at_s"]
        assert 0 <= late_s <= LATEST_SAMPLES * one.watch.every_s, (found, at)
        assert Reason(found.reason) in ENDINGS
        assert found.evidence
    else:
        assert at is None


def test_there_are_enough_traces_of_both_kinds():
    ends = [name for name in NAMES if "at_s" in trace(name).expect]
    assert len(ends) >= 7
    assert len(NAMES) - len(ends) >= 7


def idle(at: float, **changes) -> Sample:
    return Sample(at=at, cpu_s=1.0, moved_bytes=5, free_bytes=1 << 40)._replace(**changes)


def test_idle_needs_several_strikes():
    memory = take(None, idle(0.0), WATCH)
    for second in range(1, 60):
        memory = take(memory, idle(float(second)), WATCH)
    kinds = []
    for second in range(60, 60 + STRIKES):
        memory = take(memory, idle(float(second)), WATCH)
        kinds.append(verdict(memory, WATCH).kind)
    assert kinds == [BUSY] * (STRIKES - 1) + [IDLE]
    memory = take(memory, idle(100.0, phase="train", step=3), WATCH)
    assert verdict(memory, WATCH).kind == BUSY


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"gpu_percent": 1.0}, BUSY),  # any GPU use
        ({"gpu_used_mib": 1024.0}, BUSY),
        ({"gpu_used_mib": 1023.0}, IDLE),
        ({"gpu_used_mib": 1024.0, "heartbeat_age_s": 61.0}, IDLE),  # nobody vouches for it
        ({"gpu_percent": None}, UNKNOWN),
        ({"cpu_s": None}, UNKNOWN),
    ],
)
def test_what_vetoes_idle(change, kind):
    watch = Watch(idle_s=60.0, stall_s=None, every_s=1.0)
    on_gpu = {"has_gpu": True, "gpu_percent": 0.0, "gpu_used_mib": 3.0, **change}
    assert run((idle(float(s), **on_gpu) for s in range(200)), watch)[1].kind == kind


def test_one_sign_of_life_begins_the_time_anew():
    watch = Watch(idle_s=60.0, stall_s=None, every_s=1.0)
    samples = [idle(float(s), log_bytes=1 if s >= 58 else 0) for s in range(200)]
    at, _ = run(samples, watch)
    assert at is not None
    assert at >= 58 + 60


def test_a_hole_in_the_samples_proves_nothing():
    samples = [idle(0.0), idle(1.0), idle(5000.0), idle(5001.0)]
    assert run(samples, WATCH) == (None, Finding(BUSY))


def test_limits_that_are_off_never_fire():
    off = Watch(idle_s=None, stall_s=None, every_s=1.0)
    assert run((idle(float(s)) for s in range(1000)), off) == (None, Finding(BUSY))


def random_sample(draw: random.Random, at: float) -> Sample:
    return Sample(
        at=at,
        phase=draw.choice(["setup", "train", "after"]),
        step=draw.choice([None, 1, 2]),
        log_bytes=draw.choice([0, 0, 1]),
        has_gpu=draw.random() < 0.5,
        gpu_percent=draw.choice([None, 0.0, 0.0, 50.0]),
        gpu_used_mib=draw.choice([None, 0.0, 2000.0]),
        cpu_s=draw.choice([None, 1.0, 1.0, 50.0]),
        moved_bytes=draw.choice([None, 5, 5, 1 << 30]),
    )


def test_nothing_ends_before_its_limit_and_never_while_a_gpu_works():
    """Long stretches of the same, changed at random, with uneven pauses."""
    draw = random.Random(20)
    ends = 0
    for _ in range(150):
        memory, at, moved_at, sample = None, 0.0, 0.0, random_sample(draw, 0.0)
        for _ in range(200):
            at += draw.uniform(0.1, 3.0)
            if draw.random() < 0.01:
                sample, moved_at = random_sample(draw, at), at
            memory = take(memory, sample._replace(at=at), WATCH)
            found = verdict(memory, WATCH)
            if found.kind == IDLE:
                assert not sample.gpu_percent
                assert at - moved_at >= LIMIT_S - 3.0
            if is_end(found):
                ends += 1
                assert at >= LIMIT_S
                break
    assert ends > 20
