"""`gpujob submit` on the simulated RunPod, killed at 40 points, and put to sleep at 10.

Real processes, real HTTP and SSH, real pods; the trainer is a stub. Whoever comes by next (a `ps`)
starts what brings the job to its true end. The points are those of test_kill_points.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_kill_points import KILLER, POINTS, UNCLEAR, shared
from tests.support.cloud import Cloud
from tests.support.faulty import stage
from tests.support.gpujob_process import Gpujob

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server"), pytest.mark.timeout(900)]
NEAR_ANOTHER = {  # hardly a moment from the one beside it
    "journal.before:EndpointSeen#1", "journal.after:EndpointSeen#1", "journal.before:pulled#1",
    "provider.before:describe#1",
}  # fmt: skip
KILLS = [point for point in POINTS if point not in NEAR_ANOTHER]
STOPS = [
    "journal.after:Opened#1", "journal.after:LaunchAsked#1", "provider.before:launch#1",
    "provider.after:launch#1", "journal.after:Launched#1", "journal.before:StartAsked#1",
    "journal.after:TrainerStarted#1", "journal.before:ArtifactsPushed#1",
    "provider.before:terminate#1", "journal.after:AbsenceRead#1",
]  # fmt: skip
GATE_KILLS = {"provider.after:launch#1"}  # the pod is there, and no record has its id
ASLEEP_S = 12.0  # the lease is 5 s
LIMIT_S = 300.0
# Asleep between its last look at the lease and the call itself, nobody can hold it back (docs).
TOO_LATE = {"provider.before:launch#1"}


def test_there_are_forty_and_ten() -> None:
    assert (len(set(KILLS)), len(set(STOPS))) == (40, 10)


def closed(found: Gpujob) -> dict[str, Any] | None:
    """Return the job once it is closed; each look is a command, and so may start the daemon."""
    jobs = found.run("ps", "--all", "--json", timeout_s=LIMIT_S).json()["jobs"]
    assert len(jobs) <= 1
    return dict(jobs[0]) if jobs and jobs[0]["state"] == "CLOSED" else None


def judge(running: Cloud, found: Gpujob, foreign: str, *, pods: int) -> dict[str, Any]:
    """Return the job at its end: nothing is left, nothing was doubled, the reason is true."""
    job: dict[str, Any] = running.wait(lambda: closed(found), "the end", LIMIT_S, pause_s=0.5)
    assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "gone"), job
    assert list(found.out.rglob("adapter_model.safetensors")), "the adapter is at home"
    assert [pod["id"] for pod in running.pods()] == [foreign]
    ours = [pod for pod in running.pods(living=False) if pod["id"] != foreign]
    assert len(ours) <= pods, ours
    assert len({pod["name"] for pod in ours}) == len(ours), "two pods of one name"
    ours.sort(key=lambda pod: pod["created_at"])
    for before, after in pairwise(ours):
        assert before["ended_at"] <= after["created_at"], "two pods of ours at once"
    return job


@pytest.mark.parametrize("point", shared(KILLS, GATE_KILLS))
def test_killed_there_nothing_is_left_and_nothing_doubled(tmp_path: Path, point: str) -> None:
    with stage(tmp_path) as (running, found, path):
        foreign = running.foreign()
        found.environ["GPUJOB_TEST_KILL_AT"] = point
        done = found.finish(
            found.start("submit", str(path), "--yes", by=[str(KILLER)]), timeout_s=LIMIT_S
        )
        assert done.code == -signal.SIGKILL, done
        del found.environ["GPUJOB_TEST_KILL_AT"]
        if point == "journal.before:JobSubmitted#1":
            assert found.run("ps", "--all", "--json").json()["jobs"] == []
            assert running.requests("create") == []
            return
        job = judge(running, found, foreign, pods=1)
        status = found.run("status", job["id"], "--json").json()["job"]
        assert len(status["attempts"]) == 1 + (point in UNCLEAR), status


@pytest.mark.prove
@pytest.mark.parametrize("point", STOPS)
def test_asleep_past_its_lease_it_does_no_harm_when_it_wakes(tmp_path: Path, point: str) -> None:
    with stage(tmp_path) as (running, found, path):
        foreign = running.foreign()
        found.environ["GPUJOB_TEST_STOP_AT"] = point
        sleeper = found.start("submit", str(path), "--yes", by=[str(KILLER)])
        del found.environ["GPUJOB_TEST_STOP_AT"]
        running.wait(lambda: asleep(sleeper), "asleep", LIMIT_S, pause_s=0.1)
        daemon = found.start("supervise", "--until-idle")  # another process takes over
        time.sleep(ASLEEP_S)
        os.kill(sleeper.pid, signal.SIGCONT)
        found.finish(daemon, timeout_s=LIMIT_S)
        done = found.finish(sleeper, timeout_s=LIMIT_S)
        assert "Traceback" not in done.err, done.err
        judge(running, found, foreign, pods=2 if point in TOO_LATE else 1)


def asleep(process: subprocess.Popen[str]) -> bool:
    """Return whether the process is stopped; fails where it has ended."""
    assert process.poll() is None, process.communicate()
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
