"""Leases: one holder at a time, by the database's clock; who lost it writes nothing."""

import time
from pathlib import Path

import pytest

from orchestrator import events as ev
from orchestrator.fold import apply, fold
from orchestrator.states import Reason
from orchestrator.store import LeaseLost, Store
from orchestrator.store_engine import Database
from tests.support.core import T0, launched, memory_store, new_job

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


def test_one_holder_at_a_time(store):
    lease = held(store)
    assert store.journal.acquire("abc123", "you", TTL) is None
    assert store.journal.waiting("you", lambda _: False) == []
    store.journal.release(lease)
    assert store.journal.waiting("you", lambda _: False) == [("abc123", "")]
    taken = store.journal.acquire("abc123", "you", TTL)
    assert taken is not None
    assert taken.fence == lease.fence + 1


def test_who_lost_the_lease_writes_nothing(store):
    lease = held(store, holder="dead")
    write(store, lease, launched()[:1])
    assert store.journal.waiting("you", lambda h: h == "dead") == [("abc123", "dead")]
    taken = store.journal.acquire("abc123", "you", TTL, dead="dead")
    assert taken is not None
    before = store.events("abc123")
    attempt = fold(launched()[:2])
    with pytest.raises(LeaseLost):
        store.journal.append(lease, [ev.LaunchAsked(T0)], attempt, ttl_s=TTL)
    with pytest.raises(LeaseLost):
        store.journal.check(lease, TTL)
    with pytest.raises(LeaseLost):
        store.journal.pulled(lease, 1, {"train.log": 5}, None, ttl_s=TTL)
    with pytest.raises(LeaseLost):
        store.journal.close_job(lease, ev.JobClosed(T0, Reason.CANCELLED), ttl_s=TTL)
    store.journal.release(lease)  # the loser cannot free it either
    store.journal.renew("dead", TTL)
    assert store.events("abc123") == before
    assert store.load("abc123")[1] == [fold(launched()[:1])]
    assert store.log_offset("abc123", 1) == 0
    assert store.job("abc123", now=T0).closed_at is None
    store.journal.check(taken, TTL)


def test_a_lease_is_judged_by_the_databases_clock(path):
    now = [1000.0]
    database = Database(url(path), now_sql="test_now()")
    from sqlalchemy import event

    @event.listens_for(database.engine, "connect")
    def connect(connection, _):
        connection.create_function("test_now", 0, lambda: now[0])

    from orchestrator.store_migrate import bring_to_head

    bring_to_head(database)
    store = Store(database)
    lease = held(store)
    now[0] += 59.0
    assert store.journal.acquire("abc123", "you", TTL) is None
    store.journal.renew("me", TTL)
    now[0] += 59.0
    assert store.journal.acquire("abc123", "you", TTL) is None
    now[0] += 1.0
    store.journal.check(lease, TTL)  # late, but nobody took it: still ours, and prolonged
    assert store.journal.acquire("abc123", "you", TTL) is None
    now[0] += 61.0
    assert store.job("abc123", now=T0).supervised_by is None
    assert store.journal.acquire("abc123", "you", TTL) is not None
    with pytest.raises(LeaseLost):
        store.journal.check(lease, TTL)
    store.close()


def test_the_real_clock_of_sqlite_is_near_ours(path):
    store = Store.open(url(path))
    with store.database.read() as db:
        from sqlalchemy import select

        said = db.execute(select(store.database.now)).scalar_one()
    assert abs(said - time.time()) < 5.0
    store.close()


def test_every_statement_also_compiles_for_postgresql():
    from sqlalchemy.dialects import postgresql

    from orchestrator.store_engine import NOW_SQL
    from orchestrator.store_schema import metadata

    assert set(NOW_SQL) == {"sqlite", "postgresql"}
    from sqlalchemy.schema import CreateTable

    for table in metadata.sorted_tables:
        text = str(CreateTable(table).compile(dialect=postgresql.dialect()))
        assert "CREATE TABLE" in text
    events = next(t for t in metadata.sorted_tables if t.name == "events")
    assert "BIGSERIAL" in str(CreateTable(events).compile(dialect=postgresql.dialect()))
