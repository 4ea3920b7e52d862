"""The schema from its first day on: old files open, newer ones are refused in words."""

import re
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator.fold import fold
from orchestrator.states import Outcome, Teardown
from orchestrator.store import SchemaTooNew, Store
from orchestrator.store_engine import Database
from orchestrator.store_migrate import MIGRATIONS, bring_to_head
from orchestrator.store_schema import HEAD
from tests.support.core import T0, new_job
from tests.support.racers import race

FROZEN = Path(__file__).parents[1] / "cases" / "store_0001.sql"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a database file as the first gpujob wrote it."""
    path = tmp_path / "gpujob.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(FROZEN.read_text())
    connection.close()
    return path


def tables(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ).fetchall()
    connection.close()
    return {name: re.sub(r"\s+", " ", sql) for name, sql in rows if name != "sqlite_sequence"}


def version(path: Path) -> str:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.close()
    return str(found)


def test_head_is_the_newest_script():
    scripts = sorted(p.name[:4] for p in (MIGRATIONS / "versions").glob("[0-9]*.py"))
    assert scripts[-1] == HEAD
    assert scripts == [f"{n:04d}" for n in range(1, len(scripts) + 1)]


def test_a_file_of_the_first_schema_opens_and_tells_the_same(old):
    store = Store.open(f"sqlite:///{old}")
    (job,) = store.jobs(now=T0 + 100)
    assert (job.id, job.outcome, job.teardown) == ("abc123", Outcome.CANCELLED, Teardown.GONE)
    assert (job.budget_usd, job.cost_usd) == (Decimal("3.50"), Decimal("0.036500"))
    assert job.attempts[0].step == 4
    history: list[Any] = [r.event for r in store.events("abc123") if r.attempt == 1]
    assert store.load("abc123")[1] == [fold(history)]
    assert store.log_offset("abc123", 1) == 123
    assert len(store.strays()) == 1
    store.close()


def test_an_upgraded_file_has_the_schema_of_a_new_one(old, tmp_path):
    Store.open(f"sqlite:///{old}").close()
    Store.open(f"sqlite:///{tmp_path}/new.db").close()
    assert tables(old) == tables(tmp_path / "new.db")
    assert version(old) == version(tmp_path / "new.db") == HEAD


NEXT = """
import sqlalchemy as sa
from alembic import op
revision = "9001"
down_revision = "{head}"
def upgrade():
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("team", sa.Text(), server_default="nobody", nullable=False))
    op.create_table("teams", sa.Column("name", sa.Text(), primary_key=True))
    {then}
"""


def next_revision(folder: Path, then: str = "pass") -> Path:
    folder.mkdir()
    (folder / "9001_next.py").write_text(NEXT.format(head=HEAD, then=then))
    return folder


def test_a_later_revision_changes_the_schema_and_keeps_the_data(old, tmp_path):
    Store.open(f"sqlite:///{old}").close()
    database = Database(f"sqlite:///{old}")
    bring_to_head(database, head="9001", more=[next_revision(tmp_path / "next")])
    with database.read() as db:
        rows = db.exec_driver_sql("SELECT id, name, team FROM jobs").fetchall()
        assert [tuple(row) for row in rows] == [("abc123", "tone", "nobody")]
        assert db.exec_driver_sql("SELECT count(*) FROM events").scalar_one() == 15
    database.close()
    assert version(old) == "9001"
    assert "teams" in tables(old)


def test_an_upgrade_that_fails_leaves_everything_as_it_was(old, tmp_path):
    Store.open(f"sqlite:///{old}").close()
    before = tables(old)
    database = Database(f"sqlite:///{old}")
    broken = next_revision(tmp_path / "next", then="raise RuntimeError('half way')")
    with pytest.raises(RuntimeError, match="half way"):
        bring_to_head(database, head="9001", more=[broken])
    database.close()
    assert tables(old) == before
    assert version(old) == HEAD


@pytest.mark.parametrize("found", ["9001", "abcdef"])
def test_a_newer_file_is_refused_in_words_and_not_touched(old, found):
    Store.open(f"sqlite:///{old}").close()
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (found,))
    connection.close()
    before = old.read_bytes()
    with pytest.raises(SchemaTooNew, match=r"newer gpujob\. Upgrade gpujob"):
        Store.open(f"sqlite:///{old}")
    assert old.read_bytes() == before


def test_alembic_is_not_imported_while_there_is_nothing_to_upgrade(tmp_path):
    code = (
        "import sys; from orchestrator.store import Store; "
        f"Store.open('sqlite:///{tmp_path}/a.db').close(); "
        f"Store.open('sqlite:///{tmp_path}/a.db').close(); "
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OPENER = """
import sys
from orchestrator.store import Store
print("ready", flush=True); sys.stdin.readline()
Store.open(sys.argv[1]).close()
"""


def test_a_new_file_is_made_once_though_many_open_it(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    race(racers)
    store = Store.open(url)
    store.create_job(new_job(), now=T0)
    assert isinstance(store.events("abc123")[0].event, ev.JobSubmitted)
    store.close()
