"""One supervisor for each home, by a lock that dies with its holder; started only when needed."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from orchestrator import daemon
from orchestrator.locate import Located
from tests.support.clocks import VirtualClock
from tests.support.filled_store import T0, Filler, fill


def test_one_at_a_time(tmp_path):
    with daemon.single(tmp_path):
        assert daemon.running(tmp_path) is not None
        with pytest.raises(daemon.AlreadyRunning), daemon.single(tmp_path):
            pass
    assert daemon.running(tmp_path) is None
    with daemon.single(tmp_path):
        pass


def test_a_home_without_any(tmp_path):
    assert daemon.running(tmp_path) is None


def test_the_lock_dies_with_its_process(tmp_path):
    script = (
        "import sys, os, time\nfrom pathlib import Path\nfrom orchestrator import daemon\n"
        "with daemon.single(Path(sys.argv[1])):\n"
        "    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert daemon.running(tmp_path) == pid
    finally:
        process.kill()
        process.communicate()
    assert daemon.running(tmp_path) is None


@pytest.fixture
def started(monkeypatch):
    calls = []

    def start(home):
        calls.append(home)
        return 4242

    monkeypatch.setattr(daemon, "start", start)
    return calls


def _state(tmp_path, *, sweep=True):
    home, store, ids = fill(tmp_path)
    clock = VirtualClock(T0 + 5_000)
    state = SimpleNamespace(
        home=home,
        store=store,
        waiting=store.journal.waiting,
        sweep=sweep,
        clock=clock,
        now=clock.now,
    )
    return state, store, ids


def test_an_open_job_without_a_driver_gets_one(tmp_path, started, capsys):
    state, store, ids = _state(tmp_path)
    daemon.see_that_jobs_are_driven(state)
    assert started == [state.home.root]
    assert ids["running"] in capsys.readouterr().err or started
    store.close()


def test_not_where_it_is_switched_off(tmp_path, started):
    state, store, _ = _state(tmp_path, sweep=False)
    daemon.see_that_jobs_are_driven(state)
    assert not started
    store.close()


def test_not_where_one_runs(tmp_path, started):
    state, store, _ = _state(tmp_path)
    with daemon.single(state.home.root):
        daemon.see_that_jobs_are_driven(state)
    assert not started
    store.close()


def test_not_where_all_are_driven_or_over(tmp_path, started):
    state, store, ids = _state(tmp_path)
    for job_id in ids.values():
        store.journal.acquire(job_id, "elsewhere|1|1|x", 60.0)
    daemon.see_that_jobs_are_driven(state)
    assert not started
    store.close()


def test_a_job_stored_this_moment_is_left_to_its_own_submit(tmp_path, started):
    state, store, ids = _state(tmp_path)
    for job_id in ids.values():
        store.journal.acquire(job_id, "elsewhere|1|1|x", 60.0)
    filler = Filler(store, state.now() - 100 * (len(ids) + 1) - 0.5)
    filler.count = len(ids)
    fresh = filler.job("fresh")
    asked = []

    def waiting(me, is_dead):
        asked.append(state.now())
        if len(asked) == 2:  # meanwhile its submit has taken it up
            store.journal.acquire(fresh, "elsewhere|1|1|x", 60.0)
        return store.journal.waiting(me, is_dead)

    state.waiting = waiting
    daemon.see_that_jobs_are_driven(state)
    assert asked[1] - asked[0] == pytest.approx(1.5)
    assert not started
    store.close()


def _afterwards(tmp_path, monkeypatch, now, **changes):
    spawned = []
    monkeypatch.setattr(daemon, "_spawn", lambda home, *words: spawned.append((home, words)))
    located = Located(tmp_path, None, **{"sweep": True, "rents": True, **changes})
    began = daemon.sweep_afterwards(tmp_path, located, now)
    assert spawned == ([(tmp_path, ("sweep",))] if began else [])
    return began


def test_a_command_is_followed_by_a_sweep_at_most_once_a_minute(tmp_path, monkeypatch):
    now = time.time()
    assert _afterwards(tmp_path, monkeypatch, now)
    swept_at = (tmp_path / daemon.SWEPT_NAME).stat().st_mtime
    assert not _afterwards(tmp_path, monkeypatch, swept_at + 59.0)
    assert not _afterwards(tmp_path, monkeypatch, swept_at + 61.0, sweep_s=90.0)
    assert _afterwards(tmp_path, monkeypatch, swept_at + 61.0)


@pytest.mark.parametrize("changes", [{"sweep": False}, {"rents": False}])
def test_no_sweep_where_it_is_off_or_nothing_is_rented(tmp_path, monkeypatch, changes):
    assert not _afterwards(tmp_path, monkeypatch, time.time(), **changes)
    assert not (tmp_path / daemon.SWEPT_NAME).exists()


def test_no_sweep_beside_the_daemon(tmp_path, monkeypatch):
    with daemon.single(tmp_path):
        assert not _afterwards(tmp_path, monkeypatch, time.time())
