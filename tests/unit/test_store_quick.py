"""The quick reader gives the same answers as the store, and leaves to it what it cannot read."""

from __future__ import annotations

import re
import sqlite3

import pytest

from orchestrator.exits import Refused
from orchestrator.holder import is_dead
from orchestrator.store import AmbiguousJob, Store, UnknownJob
from orchestrator.store_quick import SCHEMA, QuickStore, open_quick
from orchestrator.store_schema import HEAD
from tests.support.filled_store import T0, fill

NOW = T0 + 2_000.0
OLD = "CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('0000')"


@pytest.fixture
def both(tmp_path):
    home, store, ids = fill(tmp_path)
    quick = open_quick(home.database_url)
    assert quick is not None
    yield store, quick, ids
    quick.close()
    store.close()


def test_it_speaks_the_newest_schema():
    assert SCHEMA == HEAD


def test_jobs(both):
    store, quick, ids = both
    found = quick.jobs(now=NOW)
    assert found == store.jobs(now=NOW)
    assert len(found) == len(ids)
    assert quick.jobs(now=NOW, open_only=True) == store.jobs(now=NOW, open_only=True)
    assert quick.jobs(now=NOW, limit=2) == store.jobs(now=NOW, limit=2)


def test_every_condition_is_there(both):
    _, quick, ids = both
    teardowns = {job.id: str(job.teardown) for job in quick.jobs(now=NOW)}
    assert teardowns[ids["billing"]] == "still_billing"
    assert teardowns[ids["succeeded"]] == "gone"
    assert teardowns[ids["running"]] == "living"
    assert teardowns[ids["unclear"]] == "suspect"
    assert teardowns[ids["refused"]] == "none"


def test_one_job(both):
    store, quick, ids = both
    for job_id in ids.values():
        assert quick.job(job_id, now=NOW) == store.job(job_id, now=NOW)
        assert quick.events(job_id) == store.events(job_id)
        assert quick.events(job_id, after=3) == store.events(job_id, after=3)
    with pytest.raises(Refused):
        quick.job("ffffff", now=NOW)


def test_a_hidden_job(both):
    store, quick, ids = both
    assert store.remove_job(ids["succeeded"], now=NOW)
    assert quick.jobs(now=NOW) == store.jobs(now=NOW)
    assert ids["succeeded"] not in {job.id for job in quick.jobs(now=NOW)}
    assert quick.totals("job", now=NOW) == store.totals("job", now=NOW)


@pytest.mark.parametrize("by", ["job", "day", "provider"])
def test_totals(both, by):
    store, quick, _ = both
    found = quick.totals(by, now=NOW)
    assert found == store.totals(by, now=NOW)
    assert sum(total.total_usd for total in found) > 0


def test_strays_and_waiting(both):
    store, quick, ids = both
    assert quick.strays() == store.strays()
    assert len(quick.strays()) == 1
    lease = store.journal.acquire(ids["running"], "elsewhere|1|1|x", 60.0)
    assert lease is not None
    waiting = sorted(quick.waiting("me", is_dead))
    assert waiting == sorted(store.journal.waiting("me", is_dead))
    assert ids["running"] not in dict(waiting)
    assert ids["billing"] in dict(waiting)
    everyone_is_dead = sorted(quick.waiting("me", lambda _: True))
    assert everyone_is_dead == sorted(store.journal.waiting("me", lambda _: True))
    assert dict(everyone_is_dead)[ids["running"]] == "elsewhere|1|1|x"


def test_a_held_job_names_its_driver(both):
    store, quick, ids = both
    store.journal.acquire(ids["running"], "box/boot/1|4711|99|ff", 60.0)
    assert quick.job(ids["running"], now=NOW).supervised_by == "process 4711 on box"
    assert quick.jobs(now=NOW) == store.jobs(now=NOW)


@pytest.mark.parametrize(
    "word", ["support-tone", "01aaaa", "#03", "03aaaa", "stuck", "nope", "0", "", "#"]
)
def test_words_mean_the_same(both, word):
    store, quick, _ = both
    try:
        expected = store.find_job(word)
    except (UnknownJob, AmbiguousJob) as error:
        with pytest.raises(Refused) as refused:
            quick.find_job(word)
        kind = "give more digits" in str(error)
        assert ("give more digits" in str(refused.value)) is kind
    else:
        assert quick.find_job(word) == expected


def test_the_newest_of_a_name(both):
    _, quick, ids = both
    assert quick.find_job("support-tone") == ids["running"]


def test_it_cannot_write(both):
    _, quick, _ = both
    with pytest.raises(Refused, match=re.compile("readonly|read-only|query_only", re.IGNORECASE)):
        quick._all("DELETE FROM jobs")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:////nowhere/x.db",
        "sqlite:////x?mode=ro",
    ],
)
def test_other_databases_are_left_to_the_store(url):
    assert open_quick(url) is None


def test_an_old_newer_or_foreign_file_is_left_to_the_store(tmp_path):
    for name, script in (
        ("empty.db", ""),
        ("foreign.db", "CREATE TABLE t (x)"),
        ("old.db", OLD),
    ):
        path = tmp_path / name
        connection = sqlite3.connect(path)
        connection.executescript(script)
        connection.close()
        assert open_quick(f"sqlite:///{path}") is None
    (tmp_path / "text.db").write_text("not a database")
    assert open_quick(f"sqlite:///{tmp_path / 'text.db'}") is None


def test_a_folder_with_odd_characters(tmp_path):
    folder = tmp_path / "a b#c"
    folder.mkdir()
    path = folder / "gpujob.db"
    Store.open(f"sqlite:///{path}").close()
    quick = open_quick(f"sqlite:///{path}")
    assert isinstance(quick, QuickStore)
    assert quick.jobs(now=NOW) == []
    quick.close()
    assert (folder / "gpujob.db").exists()
