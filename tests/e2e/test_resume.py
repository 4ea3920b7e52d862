"""A machine that goes in the middle: the job goes on elsewhere from the newest whole checkpoint."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from providers import local_tree
from tests.support.gpujob_process import Gpujob

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]


def lose_the_machine(tool: Gpujob) -> None:
    """Kill the instance with all that runs on it, as a host fault does."""
    marked = local_tree.marked(str(tool.home.resolve() / "instances"))
    for pid in {pid for pids in marked.values() for pid in pids}:
        os.kill(pid, signal.SIGKILL)


def _steps(tool: Gpujob, job_id: str, attempt: int) -> list[int]:
    path = tool.home / "jobs" / job_id / f"attempt-{attempt}" / "metrics.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event["step"] for event in events if event["event"] == "log" and "loss" in event]


def test_a_lost_machine_is_gone_on_from(gpujob):
    path = gpujob.write_job(steps=40, save_steps=10, hold_at_step=25)
    gpujob.run("submit", str(path), "--yes", "--detach")
    job = gpujob.wait_for(lambda job: (job["checkpoint_step"] or 0) == 20, "a checkpoint at home")
    lose_the_machine(gpujob)
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["teardown"], job["attempt"]) == ("SUCCEEDED", "gone", 2), job
    body = gpujob.run("status", job["id"], "--json").json()["job"]
    first, second = body["attempts"]
    assert first["reason"] == "INSTANCE_LOST"
    steps = _steps(gpujob, job["id"], 2)
    assert steps[0] == first["checkpoint_step"] + 1 == 21
    assert steps[-1] == second["step"] == 40
    assert sorted(set(_steps(gpujob, job["id"], 1)) | set(steps)) == list(range(1, 41))
    assert not gpujob.processes()


def test_a_cancelled_job_is_resumed_by_hand(gpujob):
    path = gpujob.write_job(steps=40, save_steps=10, hold_at_step=25)
    gpujob.run("submit", str(path), "--yes", "--detach")
    first = gpujob.wait_for(lambda job: (job["checkpoint_step"] or 0) == 20, "a checkpoint at home")
    running = gpujob.run("resume", first["id"], "--yes")
    assert running.code == 2
    assert "is not over" in running.err
    assert gpujob.run("cancel", first["id"]).code == 0
    first = gpujob.job()
    done = gpujob.run("resume", first["id"], "--yes")
    assert done.code == 0, done.out + done.err
    assert f"goes on from step {first['checkpoint_step']} of #{first['id']}" in done.out
    job = gpujob.job()
    assert job["id"] != first["id"]
    assert job["outcome"] == "SUCCEEDED"
    assert _steps(gpujob, job["id"], 1)[0] == first["checkpoint_step"] + 1
    again = gpujob.run("resume", job["id"], "--yes")
    assert again.code == 2
    assert "never trained again" in again.err
    gone = gpujob.run("resume", first["id"], "--yes", "--gpu", "H100 80")
    assert gone.code == 3, gone.err
