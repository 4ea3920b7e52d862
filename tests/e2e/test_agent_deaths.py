"""The shipped agent when things die: deadline, signals, a hang, want of disk and of memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from orchestrator.agent.bundle import AGENT_FILE
from tests.support.agent_driver import Attempt

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.name != "posix", reason="POSIX")]


@pytest.fixture
def attempt(tmp_path):
    made = []

    def make(name="job", **switches):
        made.append(Attempt(tmp_path / name, **switches))
        return made[-1]

    yield make
    for one in made:
        one.clear()


def gone(attempt, seconds=60):
    """Wait until nothing of the attempt lives; return what does."""
    end = time.monotonic() + seconds
    while attempt.processes() and time.monotonic() < end:
        time.sleep(0.05)
    return attempt.processes()


def until(done, seconds=60):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def stubs(attempt):
    """Return the trainer's own processes."""
    found = []
    for one in attempt.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "stub_trainer.py" in " ".join(one.cmdline()):
                found.append(one.pid)
    return found


def test_deadline_in_mid_training(attempt):
    job = attempt(steps=1000, seconds_per_step=0.1, ignore_term=True, children=4)
    job.deadline(2)
    began = time.monotonic()
    job.start()
    verdict = job.wait()
    assert (verdict["verdict"], verdict["reason"]) == ("stopped", "DEADLINE")
    assert verdict["last_step"] > 0
    assert 2 <= time.monotonic() - began < 60  # its steps would take 100 s
    assert gone(job) == []


def test_after_the_deadline_the_machine_ends_itself_again_and_again(attempt):
    job = attempt(steps=3)
    job.deadline(12)
    mark = job.folder / "destructed"
    job.order["self_destruct"] = f"echo x >> {mark}; exit 1"
    job.start()
    assert job.wait()["verdict"] == "succeeded"  # the result waits for whoever may come
    assert job.status()["alive"] is True
    assert not mark.exists()
    end = time.monotonic() + 120
    while not mark.exists() or mark.read_text().count("x") < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    # With the agent dead, its keeper goes on.
    os.kill(job.claim()["pid"], signal.SIGKILL)
    seen = mark.read_text().count("x")
    while mark.read_text().count("x") == seen:
        assert time.monotonic() < end + 60
        time.sleep(0.1)


@pytest.mark.parametrize("who", ["agent", "keeper", "both", "trainer"])
def test_whoever_is_killed_nothing_is_left(attempt, who):
    job = attempt(steps=40, seconds_per_step=0.05, children=4, ignore_term=True)
    job.start()
    job.until("3/40")
    claim = job.claim()
    pids = {"agent": [claim["pid"]], "keeper": [claim["keeper"]]}
    pids["both"] = pids["keeper"] + pids["agent"]
    pids["trainer"] = stubs(job)
    for pid in pids[who]:
        os.kill(pid, signal.SIGKILL)
    if who == "both":
        until(lambda: job.status()["alive"] is False)
        assert job.status()["exit"] is None
        # The kernel ends the trainer with its parent; its children are left until somebody asks.
        until(lambda: not stubs(job))
        verdict = job.stop()["exit"]
    else:
        verdict = job.wait()
    if who == "keeper":
        assert verdict["verdict"] == "succeeded"
    else:
        assert (verdict["verdict"], verdict["reason"]) == ("failed", "TRAINER_KILLED")
        assert verdict["last_step"] >= 3
    assert verdict["trainer_starts"] == 1
    assert gone(job) == []


def test_a_hanging_agent_does_not_outlive_the_deadline(attempt):
    """The keeper's margin is a minute: shortened here in the shipped file."""
    job = attempt(steps=1000)
    path = job.folder / AGENT_FILE
    text = path.read_text()
    assert "KEEPER_MARGIN_S = 60.0" in text
    path.write_text(text.replace("KEEPER_MARGIN_S = 60.0", "KEEPER_MARGIN_S = 0.5"))
    job.deadline(2)
    job.start()
    os.kill(job.claim()["pid"], signal.SIGSTOP)
    verdict = job.wait()
    assert (verdict["verdict"], verdict["reason"]) == ("stopped", "DEADLINE")
    assert gone(job) == []


def test_a_signal_to_the_agent_is_a_stop(attempt):
    job = attempt(steps=1000)
    job.start()
    job.until("3/1000")
    os.kill(job.claim()["keeper"], signal.SIGTERM)  # passed on
    assert job.wait()["reason"] == "INTERRUPTED"
    assert gone(job) == []


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of 1 MiB; only root may."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_does_not_keep_the_verdict_back(attempt, small_disk):
    job = attempt("disk/job", steps=1000, log_bytes_per_step=200_000)
    job.start()
    verdict = job.wait()
    assert (verdict["verdict"], verdict["reason"]) == ("failed", "DISK_FULL"), verdict
    assert verdict["trainer_starts"] == 1
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "more").write_bytes(b"x" * 8192)
    end = time.monotonic() + 60
    heartbeat = job.folder / "heartbeat.json"
    while json.loads(heartbeat.read_text())["phase"] != "done":  # it too is overwritten in place
        assert time.monotonic() < end
        time.sleep(0.05)
    assert job.stop()["exit"] == verdict
    assert gone(job) == []


@pytest.fixture
def small_memory():
    """Make a control group of 150 MiB, version 1 or 2; only root may."""
    group = Path("/sys/fs/cgroup/memory/gpujob-test")
    limit = "memory.limit_in_bytes"
    if not group.parent.exists():
        group, limit = Path("/sys/fs/cgroup/gpujob-test"), "memory.max"
    try:
        group.mkdir(exist_ok=True)
        (group / limit).write_text(str(150 << 20))
    except OSError:
        pytest.skip("making a control group needs root")
    yield group
    end = time.monotonic() + 10
    while time.monotonic() < end and (group / "cgroup.procs").read_text():
        time.sleep(0.05)
    group.rmdir()


def test_the_kernel_takes_the_trainer_not_the_agent(attempt, small_memory):
    job = attempt()
    hog = "x = [bytearray(1 << 20) for _ in range(400)]; print('not reached')"
    job.order["argv"] = [sys.executable, "-c", hog]

    def enter():
        (small_memory / "cgroup.procs").write_text(str(os.getpid()))

    job.start(preexec_fn=enter)
    verdict = job.wait()
    assert (verdict["verdict"], verdict["signal"]) == ("failed", 9)
    assert verdict["reason"] == "HOST_OUT_OF_MEMORY"
    assert gone(job) == []


@pytest.mark.parametrize(
    ("takes_s", "killed_after_s", "saved"), [(0, None, True), (60, 0.5, False)]
)
def test_before_a_machine_is_called_back_a_checkpoint_is_asked_for(
    attempt, takes_s, killed_after_s, saved
):
    job = attempt(steps=1000, seconds_per_step=0.05, save_takes_s=takes_s)
    job.start()
    job.until("5/1000")
    keeper, agent = job.claim()["keeper"], job.claim()["pid"]
    os.kill(agent, signal.SIGTERM)
    if not saved:  # the notice is over before the checkpoint is there
        for pid in (keeper, agent):
            os.kill(pid, signal.SIGKILL)
        job.stop()
    else:
        assert job.wait()["reason"] == "INTERRUPTED"
    found = list((job.folder / "out").glob("checkpoint-*/trainer_state.json"))
    assert bool(found) is saved
