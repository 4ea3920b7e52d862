"""Twenty processes that submit at once cannot pass the team's budget. `make prove`: 50 rounds."""

from __future__ import annotations

import os
import random
import traceback
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.home import open_home
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.runner import Runner
from orchestrator.site import Site
from orchestrator.site_order import SiteOrder
from orchestrator.states import Reason
from orchestrator.store import Store
from orchestrator.team_budget import TEARDOWN_S, TeamBudget
from providers.fake import DEFAULT_OFFERS, FakeCloud, FakeProvider, FakeSettings
from tests.support.clocks import VirtualClock
from tests.support.core import T0

pytestmark = pytest.mark.e2e
ROUNDS = int(os.environ.get("GPUJOB_TEST_ROUNDS", "2"))
PROCESSES = 20
HOURS = 1.0
OFFER = DEFAULT_OFFERS[0]
WORST = OFFER.price_usd_per_hour * (Decimal(3600) + Decimal(str(TEARDOWN_S))) / 3600


def never_reached(order: SiteOrder) -> Site:
    """Stand in for the way to a machine that does not boot here."""
    raise AssertionError(order.host)


def submit(root: Path, number: int, team: TeamBudget, go: int) -> None:
    """What each process does: its own store, provider and runner on the one database."""
    clock = VirtualClock()  # a morning: no midnight in the way
    home = open_home(root)
    store = Store.open(home.database_url)
    provider = FakeProvider(
        FakeCloud(clock, random.Random(number), FakeSettings(boot_delay_s=1000.0))
    )
    runner = Runner(
        store, {"fake": provider}, never_reached, home, clock, f"owner-{number % 2}", team=team,
        holder=f"process-{number}",
    )  # fmt: skip
    job_id = f"{number:06x}"
    new = NewJob(
        job_id, f"job-{number}", {}, (OFFER,), LaunchSpec("ssh-ed25519 AAAA"),
        Caps(max_s=HOURS * 3600), str(root / "out"),
    )  # fmt: skip
    os.read(go, 1)  # all at once
    store.create_job(new, now=clock.now())
    driver = runner.take(job_id)
    assert driver is not None
    driver.tick()
    launched = sum(1 for m in provider.cloud.machines.values() if not m.foreign)
    job = store.job(job_id, now=clock.now())
    assert launched == len(job.attempts), "a machine without an admitted intent"
    store.close()


def run_round(root: Path, team: TeamBudget) -> list[int]:
    """Return the exit codes of twenty processes that began at the same moment."""
    Store.open(open_home(root).database_url).close()
    reading, writing = os.pipe()
    children = []
    for number in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(writing)
                submit(root, number, team, reading)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    os.close(reading)
    os.close(writing)  # the end of the pipe is the start
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_twenty_at_once_stay_within_the_day(tmp_path: Path, round_number: int) -> None:
    room = 3 + round_number % 5
    team = TeamBudget(WORST * room * 2, WORST * room)  # per owner half: both bounds have work
    if round_number % 2:
        team = TeamBudget(WORST * room)
    root = tmp_path / "home"
    assert run_round(root, team) == [0] * PROCESSES
    store = Store.open(open_home(root).database_url)
    jobs = store.jobs(now=T0)
    store.close()
    assert len(jobs) == PROCESSES
    admitted = [job for job in jobs if job.attempts]
    refused = [job for job in jobs if job.reason is Reason.TEAM_BUDGET]
    assert len(admitted) + len(refused) == PROCESSES
    assert {job.exit_code for job in refused} == {3}
    # Not one too many, and not one too few.
    most = room if round_number % 2 else 2 * room
    assert len(admitted) == most, [job.evidence for job in refused]
