"""The watchdog live: the shipped agent, real processes, fast clocks."""

from __future__ import annotations

import json
import sys

import pytest

from orchestrator.states import Reason
from orchestrator.watchdog import read_sample
from tests.support.agent_driver import Attempt

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="CPU and transfers are read from /proc"),
]
FAST = {"idle_s": 1.5, "stall_s": 1.5, "every_s": 0.1}
SPIN = "import time\nprint('spinning', flush=True)\nend = time.monotonic() + {}\n"


@pytest.fixture
def attempt(tmp_path):
    made: list[Attempt] = []

    def make(watch=FAST, **switches):
        job = Attempt(tmp_path / f"attempt{len(made)}", **switches)
        job.order["watch"] = watch
        made.append(job)
        return job

    yield make
    for job in made:
        job.clear()


def ended(job: Attempt) -> tuple[str, str, str]:
    job.start()
    verdict = job.wait()
    assert Reason(verdict["reason"])
    return verdict["verdict"], verdict["reason"], verdict["evidence"]


def script(job: Attempt, text: str) -> Attempt:
    job.order["argv"] = [sys.executable, "-c", text]
    return job


def test_a_hanging_training_is_ended_and_its_checkpoint_kept(attempt):
    job = attempt(steps=40, save_steps=5, fail="hang", fail_at_step=12)
    verdict, reason, evidence = ended(job)
    assert (verdict, reason) == ("stopped", "STALLED")
    assert "after step 12" in evidence
    assert (job.folder / "out" / "checkpoint-10" / "adapter_model.safetensors").exists()


def test_a_training_whose_gradient_is_nan_is_ended(attempt):
    job = attempt(steps=4000, fail="nan", fail_at_step=5)
    verdict, reason, evidence = ended(job)
    assert (verdict, reason) == ("stopped", "DIVERGED")
    assert "no number" in evidence


def test_a_process_that_does_nothing_is_idle(attempt):
    job = script(attempt(), "import time; time.sleep(600)")
    assert ended(job)[:2] == ("stopped", "IDLE")


def test_what_computes_or_moves_bytes_before_the_training_is_left_alone(attempt):
    """Twice the limit long: tokenizing, then a download; it ends by itself."""
    work = SPIN.format(3) + "while time.monotonic() < end: sum(range(1000))\n"
    load = (
        "end = time.monotonic() + 3\n"
        "with open('/dev/zero', 'rb') as a, open('weights', 'wb') as b:\n"
        "    while time.monotonic() < end:\n"
        "        b.write(a.read(40_000)); b.flush(); b.seek(0); time.sleep(0.05)\n"
    )
    job = script(attempt(), work + load)
    assert ended(job)[1] == "INCOMPLETE"  # by itself, with 0, and no training


def test_a_loop_without_steps_is_stalled_though_the_cpu_is_busy(attempt):
    job = attempt(watch={**FAST, "idle_s": None}, steps=1)
    begun = json.dumps({"event": "train_begin", "step": 0, "max_steps": 9, "at": 0})
    text = f"open({str(job.folder / 'metrics.jsonl')!r}, 'w').write({begun!r} + chr(10))\n"
    job = script(job, text + "while True: sum(range(1000))")
    assert ended(job)[:2] == ("stopped", "STALLED")


def test_a_dead_worker_ends_the_wait_early(attempt):
    job = attempt(watch={"idle_s": None, "stall_s": 6.0, "every_s": 0.1})
    text = (
        "import os, time\n"
        "if os.fork() == 0: os._exit(9)\n"  # never asked after: a zombie
        "time.sleep(600)"
    )
    _, reason, evidence = ended(script(job, text))
    assert reason == "STALLED"
    assert "died" in evidence


def test_an_order_without_limits_is_never_ended(attempt):
    job = script(attempt(watch=None), "import time; time.sleep(3)")
    assert ended(job)[1] == "INCOMPLETE"


def test_the_sample_is_in_the_status(attempt):
    job = attempt(steps=60, seconds_per_step=0.05)
    job.start()
    job.until(" 30/60 ")
    status = job.status()
    sample = read_sample(status["sample"])
    job.wait()
    assert sample is None or sample.log_bytes >= 0  # the first beat may precede the first look
    assert read_sample(job.status()["sample"]) is not None
