"""The supervisor with real threads and real time, on the fake cloud with short limits."""

import random
import threading
import time
from dataclasses import replace

import pytest

from orchestrator.clock import SystemClock, WakeableClock
from orchestrator.holder import new_holder
from orchestrator.home import open_home
from orchestrator.policy import Limits
from orchestrator.runner import Runner
from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.store import Store
from orchestrator.supervisor import Supervisor
from providers.base import OfferKey
from providers.fake import DEFAULT_OFFERS, FakeCloud, FakeProvider, FakeSettings
from tests.support.core import new_job
from tests.support.stub_site import Stub

FAST = Limits(
    site_remote_s=0.05, site_retry_s=0.05, poll_remote_s=0.05, watch_remote_s=0.2,
    absence_gap_s=0.1, terminate_first_s=0.05, requests_per_minute=60_000.0, lease_s=6.0,
    sweep_s=1.0,
)  # fmt: skip


class Office:
    """A database on disk, a cloud, and as many supervisors as a test wants."""

    def __init__(self, tmp_path):
        self.clock = SystemClock()
        self.cloud = FakeCloud(self.clock, random.Random(1), FakeSettings(list_lag_s=0.1))
        self.home = open_home(tmp_path)
        self.store = Store.open(self.home.database_url)
        self.stub = Stub(self.clock, work_s=0.2, log=b"line\n" * 100)
        self.threads = []

    def submit(self, job_id, **changes):
        job = replace(new_job(job_id, DEFAULT_OFFERS[0]), **changes)
        self.store.create_job(job, now=self.clock.now())

    def supervisor(self, *, limits=FAST, stub=None, **options):
        provider = FakeProvider(self.cloud)
        runner = Runner(
            self.store, {"fake": provider}, (stub or self.stub).make, self.home, self.clock,
            "owner", limits=limits, holder=new_holder(),
        )  # fmt: skip
        return Supervisor(runner, WakeableClock(), **options)

    def start(self, supervisor):
        thread = threading.Thread(target=supervisor.run, daemon=True)
        thread.start()
        self.threads.append((supervisor, thread))
        return thread

    def until(self, true, within_s=60.0):
        end = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)

    def view(self, job_id):
        return self.store.job(job_id, now=self.clock.now())


@pytest.fixture
def office(tmp_path):
    made = Office(tmp_path)
    yield made
    for supervisor, _ in made.threads:
        supervisor.detach()
    for _, thread in made.threads:
        thread.join(30.0)
        assert not thread.is_alive()
    made.store.close()


def test_a_foreground_supervisor_drives_its_job_alone_and_returns(office):
    office.submit("aaaaaa")
    office.submit("bbbbbb")
    office.supervisor(only=["aaaaaa"]).run()
    assert (office.view("aaaaaa").outcome, office.view("aaaaaa").teardown) == (
        Outcome.SUCCEEDED, Teardown.GONE,
    )  # fmt: skip
    assert office.view("bbbbbb").attempts == ()
    assert office.view("aaaaaa").supervised_by is None


def test_a_daemon_takes_what_comes_and_goes_on(office):
    office.start(office.supervisor(forever=True))
    for job_id in ("aaaaaa", "bbbbbb"):
        office.submit(job_id)
        office.until(lambda job_id=job_id: office.view(job_id).closed_at is not None)
    assert office.threads[0][1].is_alive()
    assert office.cloud.living() == []


def test_many_jobs_run_beside_each_other(office):
    office.stub.work_s = 1.0
    for number in range(30):
        office.submit(f"{number:06x}")
    before = threading.active_count()
    supervisor = office.supervisor()
    office.start(supervisor)
    office.until(lambda: len(supervisor.jobs) == 30)
    assert threading.active_count() - before <= 33
    office.threads[0][1].join(120.0)
    jobs = office.store.jobs(now=office.clock.now())
    assert [job.outcome for job in jobs] == [Outcome.SUCCEEDED] * 30
    assert len(office.cloud.machines) == 30
    assert office.cloud.living() == []


def test_a_cancel_cuts_what_is_blocked(office):
    office.stub.block = threading.Event()
    office.submit("aaaaaa")
    supervisor = office.supervisor()
    thread = office.start(supervisor)
    assert office.stub.block.wait(30.0)
    assert supervisor.request_cancel("aaaaaa")
    assert not supervisor.request_cancel("aaaaaa")
    thread.join(30.0)
    job = office.view("aaaaaa")
    assert (job.outcome, job.reason, job.teardown) == (
        Outcome.CANCELLED, Reason.INTERRUPTED, Teardown.GONE,
    )  # fmt: skip


def test_a_cancel_from_another_process_cuts_it_too(office):
    office.stub.block = threading.Event()
    office.submit("aaaaaa")
    thread = office.start(office.supervisor())
    assert office.stub.block.wait(30.0)
    office.store.ask_cancel("aaaaaa", now=office.clock.now())
    thread.join(30.0)
    assert office.view("aaaaaa").reason is Reason.CANCELLED
    assert office.cloud.living() == []


def test_a_call_that_outlives_its_phase_is_cut(office):
    office.stub.block = threading.Event()
    office.submit("aaaaaa")
    thread = office.start(office.supervisor(limits=replace(FAST, prepare_timeout_s=1.0)))
    thread.join(60.0)
    assert office.view("aaaaaa").reason is Reason.PREPARE_TIMEOUT
    assert office.cloud.living() == []


def test_detach_leaves_the_job_to_the_next_one(office):
    office.stub.work_s = 3.0
    office.submit("aaaaaa")
    first = office.supervisor(only=["aaaaaa"])
    assert not first.armed("aaaaaa")
    thread = office.start(first)
    office.until(lambda: first.armed("aaaaaa"))
    first.detach()
    thread.join(30.0)
    assert office.view("aaaaaa").state is State.RUNNING
    assert office.view("aaaaaa").supervised_by is None
    office.supervisor().run()
    job = office.view("aaaaaa")
    assert (job.outcome, len(office.cloud.machines), office.stub.starts) == (
        Outcome.SUCCEEDED, 1, 1,
    )  # fmt: skip


def test_a_dead_processes_job_is_taken_at_once(office):
    office.submit("aaaaaa")
    machine, pid, started, rand = new_holder().split("|")
    dead = f"{machine}|{pid}|{int(started) - 1}|{rand}"  # our pid, but of an earlier process
    assert office.store.journal.acquire("aaaaaa", dead, 3600.0) is not None
    office.supervisor(only=["aaaaaa"]).run()
    assert office.view("aaaaaa").outcome is Outcome.SUCCEEDED


def test_a_living_processes_job_is_left_alone(office):
    office.submit("aaaaaa")
    assert office.store.journal.acquire("aaaaaa", new_holder(), 3600.0) is not None
    supervisor = office.supervisor(forever=True)
    office.start(supervisor)
    time.sleep(1.5)
    assert supervisor.jobs == []
    assert office.view("aaaaaa").attempts == ()


def test_leases_are_renewed_while_a_thread_is_blocked(office):
    office.stub.block = threading.Event()
    office.submit("aaaaaa")
    office.start(office.supervisor(limits=replace(FAST, lease_s=1.5)))
    assert office.stub.block.wait(30.0)
    time.sleep(3.0)
    assert office.store.journal.acquire("aaaaaa", "other", 60.0) is None


def test_two_supervisors_share_the_work(office):
    office.stub.work_s = 1.0
    for number in range(8):
        office.submit(f"{number:06x}")
    for _ in range(2):
        office.start(office.supervisor())
    for _, thread in office.threads:
        thread.join(120.0)
    jobs = office.store.jobs(now=office.clock.now())
    assert [job.outcome for job in jobs] == [Outcome.SUCCEEDED] * 8
    assert len(office.cloud.machines) == 8
    assert len({m.label for m in office.cloud.machines.values()}) == 8


def test_a_job_of_an_unknown_provider_waits_for_one_that_knows_it(office):
    elsewhere = replace(DEFAULT_OFFERS[0], provider="elsewhere", key=OfferKey("x"))
    office.submit("aaaaaa", offers=(elsewhere,))
    office.submit("bbbbbb")
    office.supervisor().run()
    assert office.view("bbbbbb").outcome is Outcome.SUCCEEDED
    assert office.view("aaaaaa").attempts == ()


def test_the_supervisor_sweeps_by_itself(office):
    from orchestrator.attempt import label_of
    from orchestrator.home import owner8
    from providers.base import LaunchRequest

    label = label_of(owner8("owner"), "0dd0dd", 1, "cccccc")
    office.cloud.settings = replace(office.cloud.settings, enforces_deadline=False)
    now = office.clock.now()
    office.cloud.create(LaunchRequest(label, "owner", DEFAULT_OFFERS[0], "", now + 1.0))
    office.start(office.supervisor(forever=True))
    office.until(lambda: office.cloud.living() == [])
    office.until(lambda: office.view("0dd0dd").teardown is Teardown.GONE)
    assert office.view("0dd0dd").reason is Reason.ORPHANED


def test_a_database_that_fails_for_a_while_is_waited_for(office, monkeypatch):
    from orchestrator.store_engine import StoreError

    office.stub.work_s = 2.0
    office.submit("aaaaaa")
    supervisor = office.supervisor()
    thread = office.start(supervisor)
    office.until(lambda: supervisor.armed("aaaaaa"))
    real = office.store.journal.active
    failures: list[int] = []

    def broken():
        if len(failures) < 2:
            failures.append(1)
            raise StoreError("disk I/O error")
        return real()

    monkeypatch.setattr(office.store.journal, "active", broken)
    thread.join(60.0)
    assert len(failures) == 2
    assert office.view("aaaaaa").outcome is Outcome.SUCCEEDED
