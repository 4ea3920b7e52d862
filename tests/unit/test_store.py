"""The store: what is written is read, by one process or many, and nobody writes without a lease."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator import events as ev
from orchestrator.fold import apply, fold
from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.store import AmbiguousJob, Store, StoreError, UnknownJob
from orchestrator.store_rows import Progress, Stray
from tests.support.core import LABEL, M1, T0, launched, memory_store, new_job, offer, opened
from tests.support.racers import race

TTL = 60.0


@pytest.fixture
def store():
    store = memory_store()
    yield store
    store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpujob.db"


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def write(store: Store, lease, history) -> None:
    """Append a history event by event, as a runner does."""
    attempt = None
    for event in history:
        attempt = apply(attempt, event)
        store.journal.append(lease, [event], attempt, ttl_s=TTL)


def held(store: Store, job_id="abc123", holder="me"):
    store.create_job(new_job(job_id), now=T0)
    lease = store.journal.acquire(job_id, holder, TTL)
    assert lease is not None
    return lease


# ---------------------------------------------------------------- jobs


def test_a_job_is_read_as_it_was_written(store):
    job = new_job("abc123", offer(), budget_usd=Decimal("3.50"))
    store.create_job(job, now=T0)
    record, attempts = store.load("abc123")
    assert (record.new, record.created_at, attempts) == (job, T0, [])
    view = store.job("abc123", now=T0 + 1)
    assert (view.state, view.outcome, view.teardown) == (
        State.INTENDED, Outcome.RUNNING, Teardown.NONE,
    )  # fmt: skip
    assert (view.budget_usd, view.exit_code, view.cost_usd) == (Decimal("3.50"), None, 0)


def test_an_offer_named_twice_counts_once(store):
    store.create_job(new_job("abc123", offer(), offer(), offer("h100")), now=T0)
    assert [o.key for o in store.load("abc123")[0].new.offers] == ["a100", "h100"]


def test_an_id_is_used_once(store):
    store.create_job(new_job(), now=T0)
    with pytest.raises(StoreError, match="there is a job abc123 already"):
        store.create_job(new_job(), now=T0)
    assert len(store.new_job_id()) == 6


def test_jobs_are_found_by_id_prefix_and_name(store):
    for number, job_id in enumerate(("aa1111", "aa2222", "bb3333")):
        store.create_job(replace(new_job(job_id), name=f"n{number % 2}"), now=T0 + number)
    assert store.find_job("aa1111") == "aa1111"
    assert store.find_job("#bb") == "bb3333"
    assert store.find_job("n0") == "bb3333"  # the newest of that name
    with pytest.raises(AmbiguousJob, match="give more digits"):
        store.find_job("aa")
    for word in ("cc", "", "#", "zz9999"):
        with pytest.raises(UnknownJob, match="gpujob ps --all"):
            store.find_job(word)


def test_cancel_is_asked_once(store):
    store.create_job(new_job(), now=T0)
    assert store.ask_cancel("abc123", now=T0 + 5)
    assert not store.ask_cancel("abc123", now=T0 + 6, reason=Reason.INTERRUPTED)
    assert not store.ask_cancel("ffffff", now=T0)
    assert store.cancel_of("abc123") is Reason.CANCELLED
    assert [type(r.event).__name__ for r in store.events("abc123")] == [
        "JobSubmitted", "CancelAsked",
    ]  # fmt: skip


def test_an_open_job_is_not_removed_and_a_removed_one_keeps_its_costs(store):
    lease = held(store)
    write(store, lease, launched())
    assert not store.remove_job("abc123", now=T0)
    attempt = fold(launched())
    for event in (
        ev.Aborted(T0 + 9, Reason.CANCELLED, ""), ev.TerminateAsked(T0 + 9, M1),
        ev.TerminateAccepted(T0 + 9, M1), ev.AbsenceRead(T0 + 10, M1),
        ev.MachineGone(T0 + 20, M1), ev.InstanceGone(T0 + 20, "reads"),
    ):  # fmt: skip
        attempt = apply(attempt, event)
        store.journal.append(lease, [event], attempt, ttl_s=TTL)
    store.journal.close_job(lease, ev.JobClosed(T0 + 20, Reason.CANCELLED), ttl_s=TTL)
    assert store.remove_job("abc123", now=T0 + 30)
    assert store.jobs(now=T0 + 31) == []
    (total,) = store.totals("job", now=T0 + 31)
    assert total.total_usd == Decimal("0.010000")
    view = store.job("abc123", now=T0 + 31)
    assert (view.outcome, view.teardown, view.exit_code) == (
        Outcome.CANCELLED, Teardown.GONE, 130,
    )  # fmt: skip


# ---------------------------------------------------------------- events and views


def test_the_snapshot_is_the_fold_of_the_events(store):
    lease = held(store)
    write(store, lease, launched())
    _, (attempt,) = store.load("abc123")
    assert attempt == fold(r.event for r in store.events("abc123") if r.attempt == 1)
    assert store.by_label([LABEL, "other"]) == {LABEL: attempt}
    later = store.events("abc123", after=store.events("abc123")[-2].seq)
    assert [type(r.event) for r in later] == [ev.Launched]


def test_still_billing_is_seen_even_if_nobody_drives(store):
    lease = held(store)
    write(store, lease, [*launched(), ev.Aborted(T0 + 60, Reason.CANCELLED, "")])
    assert store.still_billing(now=T0 + 61) == []
    (job,) = store.still_billing(now=T0 + 121)
    assert (job.teardown, job.exit_code, job.outcome) == (
        Teardown.STILL_BILLING, 5, Outcome.CANCELLED,
    )  # fmt: skip
    assert job.cost_usd == Decimal("0.060500")


def test_a_machine_past_its_deadline_is_still_billing_whatever_its_state(store):
    lease = held(store)
    write(store, lease, launched())
    assert store.job("abc123", now=T0 + 3600).teardown is Teardown.LIVING
    assert store.job("abc123", now=T0 + 3661).teardown is Teardown.STILL_BILLING


def test_figures_and_offsets_are_committed_together(store):
    lease = held(store)
    write(store, lease, launched())
    assert store.log_offset("abc123", 1) == 0
    figures = Progress(T0, step=5, max_steps=90, loss=1.5, tokens_per_s=2500.0)
    sizes = {"train.log": 1000, "metrics.jsonl": 50}
    store.journal.pulled(lease, 1, sizes, figures, ttl_s=TTL)
    store.journal.pulled(lease, 1, {"train.log": 3_000_000_000}, None, ttl_s=TTL)
    assert store.log_offset("abc123", 1) == 3_000_000_000
    assert store.log_offset("abc123", 1, "metrics.jsonl") == 50
    (attempt,) = store.job("abc123", now=T0).attempts
    assert (attempt.step, attempt.max_steps, attempt.loss) == (5, 90, 1.5)


def test_strays_are_replaced_by_provider(store):
    first = Stray("fake", "m-9", "gpujob-x", "orphan", T0, "1.80", T0 + 60)
    other = Stray("runpod", "p-1", "gpujob-y", "unstamped", T0)
    store.save_strays([first, other], providers=["fake", "runpod"])
    assert set(store.strays()) == {first, other}
    store.save_strays([], providers=["fake"])
    assert store.strays() == [other]


# ---------------------------------------------------------------- files, threads, processes


def test_the_file_is_private_durable_and_in_wal(path):
    os.umask(0o022)
    store = Store.open(url(path))
    store.create_job(new_job(), now=T0)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    with store.database.read() as db:
        assert db.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert db.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
    store.close()


def test_bad_urls_and_files_are_explained(tmp_path):
    with pytest.raises(StoreError, match="GPUJOB_DATABASE_URL"):
        Store.open("not a url")
    with pytest.raises(StoreError, match="use sqlite or postgresql"):
        Store.open("mysql://x/y")
    with pytest.raises(StoreError, match="give another GPUJOB_HOME"):
        Store.open(f"sqlite:///{tmp_path}/missing/gpujob.db")
    (tmp_path / "text.db").write_text("this is not a database, but long enough to be read as one")
    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/text.db")


def test_many_threads_write_without_a_lock_error(path):
    store = Store.open(url(path))
    errors = []

    def work(number: int) -> None:
        try:
            job_id = f"{number:06x}"
            lease = held(store, job_id)
            first = opened(job_id=job_id, label=f"{LABEL}-{number}")
            history = [first, *launched()[1:]]
            write(store, lease, history)
            for _ in range(10):
                store.journal.check(lease, TTL)
                store.job(job_id, now=T0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(store.jobs(now=T0)) == 20
    store.close()


CONTENDER = """
import sys
from orchestrator.store import Store
from orchestrator.holder import new_holder
store = Store.open(sys.argv[1]); me = new_holder(); won = []
print("ready", flush=True); sys.stdin.readline()
for number in range(40):
    lease = store.journal.acquire(f"{number:06x}", me, 60.0)
    if lease is not None:
        won.append(lease.job_id); store.journal.check(lease, 60.0)
print(" ".join(won))
"""


def test_many_processes_share_one_file_and_no_job_has_two_holders(path):
    store = Store.open(url(path))
    for number in range(40):
        store.create_job(new_job(f"{number:06x}"), now=T0)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, url(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    won = []
    for out, _ in race(racers):
        won += out.split()
    assert sorted(won) == [f"{n:06x}" for n in range(40)]
    store.close()


SLEEPER = """
import sys
from orchestrator.store import Store, LeaseLost
store = Store.open(sys.argv[1])
lease = store.journal.acquire("abc123", "sleeper", 1.0)
store.journal.check(lease, 1.0)
print("ready", flush=True); sys.stdin.readline()
try:
    store.journal.check(lease, 1.0)
except LeaseLost:
    sys.exit(7)
"""


def test_a_process_that_slept_past_its_lease_wakes_without_it(path):
    store = Store.open(url(path))
    store.create_job(new_job(), now=T0)
    sleeper = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, url(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == "ready\n"
    sleeper.send_signal(signal.SIGSTOP)
    assert store.journal.acquire("abc123", "other", 60.0) is None
    time.sleep(1.2)
    assert store.journal.acquire("abc123", "other", 60.0) is not None
    sleeper.send_signal(signal.SIGCONT)
    sleeper.communicate("go\n", timeout=60)
    assert sleeper.returncode == 7
    store.close()


def test_a_reader_is_not_blocked_by_a_writer(path):
    store = Store.open(url(path))
    store.create_job(new_job(), now=T0)
    other = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE jobs SET name = 'half done'")
    assert store.job("abc123", now=T0).name == "tone"
    other.execute("ROLLBACK")
    other.close()
    store.close()
