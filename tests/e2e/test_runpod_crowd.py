"""Three supervisors with 200 jobs on one SQLite file: one is killed, one sleeps past its lease.

The simulated RunPod answers over HTTP, its pods are paper (`pods=none`) and never get SSH, so each
job ends for that reason; what is at work is leases, takeovers, fences and teardown, 200 times.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.clock import SystemClock
from orchestrator.home import open_home
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.store import Store
from providers.base import Tier, Wish
from providers.clock import Clock
from providers.runpod import RunPodProvider
from tests.support.cloud import Cloud, cloud
from tests.support.faulty import FAST
from tests.support.gpujob_process import Gpujob

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
LIMIT_S = 1500.0
LEASE_S = 20.0  # a machine at its limit renews late; a shorter one would be lost by the living


def store_jobs(folder: Path, found: Gpujob, running: Cloud, count: int, clock: Clock) -> None:
    """Write jobs as `submit` does, each for the one GPU on offer."""
    provider = RunPodProvider(running.key, running.url, clock)
    offer = min(provider.offers_for(Wish(1, (Tier.SECURE,))), key=lambda o: o.price_usd_per_hour)
    store = Store.open(found.environ["GPUJOB_DATABASE_URL"])
    for number in range(count):
        new = NewJob(
            f"{number:06x}", f"job-{number}", {}, (offer,),
            LaunchSpec("ssh-ed25519 AAAA", disk_gib=30), Caps(Decimal(5), 3600.0),
            str(folder / "out"),
        )  # fmt: skip
        store.create_job(new, now=clock.now())
    store.close()


def homes(folder: Path, running: Cloud) -> list[Gpujob]:
    """Return three homes of one owner on one database."""
    database = f"sqlite:///{folder / 'jobs.db'}"
    settings = {
        **FAST, "GPUJOB_RUNPOD_BOOT_TIMEOUT_S": "15", "GPUJOB_LEASE_S": str(LEASE_S),
        "GPUJOB_DATABASE_URL": database, "GPUJOB_OWNER": "the-owner",
        "RUNPOD_API_KEY": running.key, "RUNPOD_API_BASE_URL": running.url,
    }  # fmt: skip
    found = []
    for name in ("one", "two", "three"):
        (folder / name).mkdir(parents=True)
        open_home(folder / name / "home", database_url=database)
        found.append(Gpujob(folder / name, **settings))
    Store.open(database).close()
    return found


def crowd(folder: Path, count: int, clock: Clock) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the jobs and the cloud's state at the end."""
    with cloud(folder / "cloud", pods="none", balance_usd="100000") as running:
        foreign = running.foreign()
        first, second, third = found = homes(folder, running)
        try:
            store_jobs(folder, first, running, count, clock)
            killed, slept, last = [one.start("supervise", "--until-idle") for one in found]
            running.wait(lambda: len(running.pods()) > count // 4, "a quarter", LIMIT_S)
            killed.send_signal(signal.SIGKILL)
            os.kill(slept.pid, signal.SIGSTOP)
            time.sleep(2 * LEASE_S)
            os.kill(slept.pid, signal.SIGCONT)
            for tool, process in ((second, slept), (third, last)):
                done = tool.finish(process, timeout_s=LIMIT_S)
                assert done.code == 0, done.err[-3000:]
                assert "Traceback" not in done.err, done.err[-3000:]
            first.finish(killed)
            jobs = third.run("ps", "--all", "--json", timeout_s=LIMIT_S).json()["jobs"]
            assert [pod["id"] for pod in running.pods()] == [foreign]
            state = running.state()
            state["pods"] = [pod for pod in state["pods"] if pod["id"] != foreign]
        finally:
            for one in found:
                one.end_all()
    return jobs, state


@pytest.mark.parametrize("count", [pytest.param(200, marks=pytest.mark.prove)])
def test_three_processes_share_their_jobs(tmp_path: Path, count: int) -> None:
    jobs, state = crowd(tmp_path, count, SystemClock())
    assert len(jobs) == count
    assert {job["state"] for job in jobs} == {"CLOSED"}
    assert {job["teardown"] for job in jobs} == {"gone"}
    # A launch that died with its process is looked up by name; its job may end for that.
    assert set(Counter(job["reason"] for job in jobs)) <= {"BOOT_TIMEOUT", "LAUNCH_UNKNOWN"}
    by_job: dict[str, list[dict[str, Any]]] = {}
    for pod in state["pods"]:
        by_job.setdefault(pod["name"].split("-")[2], []).append(pod)
    for pods in by_job.values():
        assert len({pod["name"] for pod in pods}) == len(pods), "two pods of one name"
        for before, after in pairwise(sorted(pods, key=lambda pod: pod["created_at"])):
            assert before["ended_at"] <= after["created_at"], "two pods of one job at once"
    assert len(by_job) == count
