"""metrics.jsonl as the plugin writes it, as a crash leaves it, and as a stranger might."""

from __future__ import annotations

import json
import os
import stat
import time

import pytest

from orchestrator.agent import metrics
from orchestrator.agent.metrics import GpuSampler, read_metrics


def write(path, *events, raw=b""):
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    path.write_bytes(lines + raw)
    return read_metrics(str(path))


def run(steps, *, fp16=False, bad=(), zero=False):
    yield {"event": "train_begin", "step": 0, "max_steps": steps, "fp16": fp16}
    for step in range(1, steps + 1):
        grad = "nan" if step in bad else 0.0 if zero else 0.5
        loss = 0.0 if zero or step in bad else 2.0
        yield {"event": "log", "step": step, "max_steps": steps, "loss": loss, "grad_norm": grad}
    yield {"event": "log", "step": steps, "max_steps": steps, "train_runtime": 2.0}
    yield {"event": "train_end", "step": steps, "max_steps": steps}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_absent(path):
    facts = read_metrics(str(path))
    assert not facts.begun
    assert facts.last_step is None


def test_a_whole_run(path):
    facts = write(path, *run(20))
    assert facts == (True, True, 20, 20, 20, None, False, False)


def test_torn_and_foreign_lines_are_skipped(path):
    facts = write(
        path,
        *run(5),
        raw=b'\xff\xfe\n[]\n"x"\n{"event": "log", "step": true}\n{"event": "other", "step": 99}\n'
        b'{"event": "gpu", "step": 77}\n'
        + b"[" * 50_000
        + b"\n"
        + b"y" * 200_000
        + b'\n{"event": "lo',
    )
    assert (facts.last_step, facts.ended, facts.bad_step) == (5, True, None)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "rubbish", [], float("inf")])
def test_what_is_not_finite(path, value):
    event = {"event": "log", "step": 3, "max_steps": 9, "loss": 1.0, "grad_norm": value}
    assert write(path, event).bad_step == 3


def test_a_bad_step_stays_bad_unless_fp16_recovered(path):
    assert write(path, *run(20, bad={1})).bad_step == 1
    assert not write(path, *run(20, bad={1})).recovered
    assert write(path, *run(20, bad={1}, fp16=True)).recovered
    assert not write(path, *run(20, bad={1, 19}, fp16=True)).recovered


def test_nothing_learnt(path):
    assert write(path, *run(20, zero=True)).all_zero
    assert not write(path, *run(20)).all_zero
    assert not write(path, {"event": "train_begin", "step": 0, "max_steps": 3}).all_zero


def fake_smi(folder, text, *, sleep=0):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nsleep {sleep}\nprintf '{text}'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def reap(sampler):
    """What the agent's loop does."""
    until = time.monotonic() + 15
    while sampler.running and time.monotonic() < until:
        pid, status = os.waitpid(sampler.running.pid, os.WNOHANG)
        if pid:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            sampler.ended(pid, code)
        sampler.tick()
        time.sleep(0.05)


def test_gpu_figures(path, tmp_path, monkeypatch):
    fake_smi(tmp_path, "97, 16500, 24564, 301.55, 71\\n3, 10, 24564, [N/A], 40\\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sampler = GpuSampler(str(path))
    sampler.tick()
    reap(sampler)
    event = json.loads(path.read_text())
    assert event["event"] == "gpu"
    assert event["gpus"][0] == {
        "util_percent": 97.0,
        "memory_used_mib": 16500.0,
        "memory_total_mib": 24564.0,
        "power_w": 301.55,
        "temperature_c": 71.0,
    }
    assert event["gpus"][1]["power_w"] is None


def test_no_nvidia_smi_is_asked_for_once(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    sampler = GpuSampler(str(path))
    sampler.tick()
    assert sampler.absent
    assert sampler.running is None
    assert not path.exists()


def test_a_hanging_nvidia_smi_is_ended(path, tmp_path, monkeypatch):
    fake_smi(tmp_path, "1, 2, 3, 4, 5\\n", sleep="60 & exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(metrics, "GPU_TIMEOUT_S", 0.3)
    sampler = GpuSampler(str(path))
    sampler.tick()
    began = time.monotonic()
    process = sampler.running
    assert process is not None
    assert process.stdout is not None
    until = time.monotonic() + 50
    while sampler.running and time.monotonic() < until:
        pid, _ = os.waitpid(process.pid, os.WNOHANG)
        if pid:
            assert process.stdout is not None
            process.stdout.close()  # its own child holds the other end open
            process.stdout = None
            sampler.ended(pid, -9)
        sampler.tick()
        time.sleep(0.05)
    assert sampler.running is None
    assert time.monotonic() - began < 50  # it would sleep for 60
    assert not path.exists()
