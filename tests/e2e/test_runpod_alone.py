"""Pods whose orchestrator was killed for good: they end themselves, or are found and ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.faulty import stage, training
from tests.support.gpujob_process import Gpujob

pytestmark = [pytest.mark.e2e, pytest.mark.prove, pytest.mark.system("openssh-server")]

PATIENCE_S = 300.0  # on a loaded machine; it takes some ten seconds
ALONE = {"GPUJOB_SWEEP": "off", "GPUJOB_RUNPOD_STEP_S": "1"}


def killed_when(
    tool: Gpujob, job: Path, cloud: Cloud, sign: Callable[[], object], what: str
) -> subprocess.Popen[str]:
    """Start a submit, and kill it and all that it started here once the sign is there."""
    process = tool.start("submit", str(job), "--yes")
    cloud.wait(lambda: process.poll() is not None or sign(), what, PATIENCE_S)
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, out + err
    with contextlib.suppress(ProcessLookupError):
        tool.end_all()
    return process


def end_of(cloud: Cloud, patience_s: float = PATIENCE_S) -> str:
    """Return by whom our only pod was ended, once it is."""
    cloud.wait(lambda: not cloud.pods(), "the pod's end", patience_s)
    (ended,) = cloud.lines("ended")
    return str(ended["cause"])


def test_killed_for_good_right_after_create_the_pod_ends_itself(tmp_path: Path) -> None:
    with stage(tmp_path) as (cloud, tool, job):
        tool.environ |= ALONE | {
            "GPUJOB_RUNPOD_BOOT_TIMEOUT_S": "4", "GPUJOB_RUNPOD_CONTACT_MARGIN_S": "2",
        }  # fmt: skip
        killed_when(tool, job, cloud, lambda: cloud.lines("created"), "a pod")
        assert end_of(cloud) == "own key"
        assert len(cloud.requests("create")) == 1


def test_a_leased_pod_outlives_its_lease_only_while_it_is_renewed(tmp_path: Path) -> None:
    with stage(tmp_path) as (cloud, tool, _):
        tool.write_job(seconds_per_step=5.0)
        job = rented(tool)
        tool.environ |= ALONE | {"GPUJOB_MACHINE_LEASE_S": "8"}
        began: list[float] = []

        def two_leases_later() -> bool:
            if not began and training(cloud):
                began.append(cloud.state()["now"])
            return bool(began) and cloud.state()["now"] > began[0] + 17.0

        killed_when(tool, job, cloud, two_leases_later, "a training two leases long")
        (pod,) = cloud.pods()  # renewed so far
        killed_at = cloud.state()["now"]
        assert end_of(cloud) == "own key"
        assert cloud.pod(pod["id"])["ended_at"] < killed_at + 60.0  # its deadline is far away


@pytest.mark.timeout(1800)  # its deadline alone is nine minutes: a shorter job is refused
def test_refused_its_own_end_it_stops_the_training_and_the_next_command_ends_it(
    tmp_path: Path,
) -> None:
    with stage(tmp_path, pod_key="denied") as (cloud, tool, _):
        tool.write_job(seconds_per_step=60.0)
        job = rented(tool)
        job.write_text(job.read_text().replace("hours: 0.2", "hours: 0.15"))  # less is refused
        tool.environ |= ALONE | {"GPUJOB_OWNER": "ada"}
        killed_when(tool, job, cloud, lambda: training(cloud), "training")
        (pod,) = cloud.pods()
        cloud.wait(lambda: refused(cloud), "a refusal", 540.0 + PATIENCE_S, pause_s=1.0)
        cloud.wait(lambda: not training(cloud), "the training's end", PATIENCE_S)
        assert pod["id"] in [p["id"] for p in cloud.pods()]  # nobody let it end itself
        elsewhere = Gpujob(tmp_path / "elsewhere", **tool.environ)
        elsewhere.folder.mkdir()
        elsewhere.environ |= {"GPUJOB_HOME": str(elsewhere.home)}
        elsewhere.environ.pop("GPUJOB_SWEEP")
        try:
            assert elsewhere.run("ps").code == 0
            assert end_of(cloud) == "api"
        finally:
            elsewhere.end_all()


def refused(cloud: Cloud) -> bool:
    """Return whether a pod was refused its own end: not before its deadline."""
    return any(request["status"] == 403 for request in cloud.requests("delete"))


def rented(tool: Gpujob) -> Path:
    """Return the job file again, for RunPod, after new switches of the stub were written."""
    from tests.support.faulty import job

    switches = (tool.stub / "bin" / "stub.json").read_text()
    path = job(tool)
    (tool.stub / "bin" / "stub.json").write_text(switches)
    return path
