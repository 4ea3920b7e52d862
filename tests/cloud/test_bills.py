"""The billed column on the simulated RunPod: it equals the pod's bill, and may be switched off."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from pathlib import Path

from orchestrator import events as ev
from orchestrator.billed import Bill
from orchestrator.bills import read_bills
from orchestrator.home import open_home
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.runner import Runner
from orchestrator.states import Reason
from orchestrator.store import Store
from providers.base import LaunchRequest, Wish
from providers.runpod import RunPodProvider
from tests.support.cloud import Cloud, cloud
from tests.support.stub_site import Stub

LABEL = "gpujob-4c1029b6-b111ed-1-abcdef"


class Ahead:
    """The simulator's time: real time, and what it was moved on by."""

    def __init__(self, running: Cloud) -> None:
        self.cloud = running
        self.jumped = 0.0

    def jump(self, seconds: float) -> None:
        self.cloud.jump(seconds)
        self.jumped += seconds

    def now(self) -> float:
        return time.time() + self.jumped

    def monotonic(self) -> float:
        return time.monotonic() + self.jumped

    def sleep(self, seconds: float) -> None:
        self.jump(seconds)


def lived_and_gone(runpod: RunPodProvider, runner: Runner, clock: Ahead) -> None:
    """Leave a job on record whose pod lived for half an hour and is proven gone."""
    offer = runpod.offers_for(Wish())[0]
    now = clock.now()
    folder = str(runner.home.root)
    spec = LaunchSpec("ssh-ed25519 AAAA", disk_gib=60)
    new = NewJob("b111ed", "bill", {}, (offer,), spec, Caps(), folder)
    runner.store.create_job(new, now=now)
    driver = runner.take("b111ed")
    assert driver is not None
    made = runpod.launch(LaunchRequest(LABEL, "owner", offer, "ssh-ed25519 AAAA", now + 7200))
    clock.jump(1800.0)
    runpod.terminate(made.id)
    ended = clock.now()
    driver.begin([
        ev.Opened(now, "b111ed", 1, LABEL, "runpod", offer, 60, 60.0, 10.0, now + 7200, bills=True),
        ev.LaunchAsked(now),
        ev.MachineSeen(now, made.id, "answered"),
        ev.Launched(now, made.id),
        ev.Aborted(ended, Reason.CANCELLED, ""),
        ev.MachineGone(ended, made.id),
        ev.InstanceGone(ended, "reads"),
    ])  # fmt: skip
    driver.release()


def test_the_bill_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    with cloud(tmp_path / "cloud", pods="none") as running:
        clock, home = Ahead(running), open_home(tmp_path / "home")
        store = Store.open(home.database_url)
        runpod = RunPodProvider(running.key, running.url, clock)
        site = Stub(clock, log=b"")
        draw = random.Random(1)
        runner = Runner(
            store, {"runpod": runpod}, site.make, home, clock, "owner",
            draw=lambda: f"{draw.randrange(16**6):06x}",
        )  # fmt: skip
        lived_and_gone(runpod, runner, clock)
        true = running.bill()
        running.set(billing="off")
        clock.jump(2 * 3600.0)
        assert read_bills(runner) == 1
        assert store.job("b111ed", now=clock.now()).billed.state is Bill.UNANSWERED
        running.set(billing="on")
        for state in (Bill.PENDING, Bill.WHOLE):
            clock.jump(3601.0)
            assert read_bills(runner) == 1
            job = store.job("b111ed", now=clock.now())
            assert job.billed.state is state
        assert job.billed.usd.quantize(Decimal("0.0001")) == true.quantize(Decimal("0.0001"))
        assert job.billed.estimate_usd == job.cost_usd >= job.billed.usd
        assert not job.billed.differs
        store.close()
