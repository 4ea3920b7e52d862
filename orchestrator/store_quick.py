"""The store's readers for SQLite without SQLAlchemy, whose import alone costs half a second of CPU.

`ps`, `status`, `cost`, `logs` and the shell's completion read through this; whatever writes goes
through `store.py`. Rows are turned into records by the same functions as there, and
tests/unit/test_store_quick.py holds that both give the same answers. A database that is new, old
or no SQLite file is left to `store.py`.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator import ledger
from orchestrator.attempt import Attempt
from orchestrator.exits import Refused
from orchestrator.locate import sqlite_path
from orchestrator.states import Reason
from orchestrator.store_failure import failure_words
from orchestrator.store_rows import (
    JobRow,
    Recorded,
    Stray,
    attempt_of,
    event_of,
    progress_of,
    record_of,
)
from orchestrator.views import JobView
from orchestrator.views_build import job_view

SCHEMA = "0002"  # the schema these statements speak; equal to store_schema.HEAD
BUSY_TIMEOUT_S = 30.0
PORTION = 500  # SQLite bounds the values of one statement

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_JOBS = f"SELECT *, lease_until > {_NOW} AS held FROM jobs"
_ORDER = " ORDER BY created_at DESC, id"
_VISIBLE = "(removed_at IS NULL OR active)"


def open_quick(url: str) -> QuickStore | None:
    """Return the reader of a SQLite database of this schema; None where `store.py` must open it."""
    path = sqlite_path(url)
    if path is None or not path.is_file() or path.stat().st_size == 0:
        return None
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S
        )
    except sqlite3.Error:
        return None
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        found = None
    if found is None or found[0] != SCHEMA:
        connection.close()
        return None
    connection.execute("PRAGMA query_only = 1")
    connection.row_factory = _named
    return QuickStore(connection, path)


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Any:
    return namedtuple("Row", [column[0] for column in cursor.description])(*row)  # noqa: PYI024


class QuickStore:
    """What `store.Store` answers to readers, with the same names and meanings."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def jobs(
        self, *, now: float, open_only: bool = False, limit: int | None = None
    ) -> list[JobView]:
        """Return the jobs that are not hidden, newest first."""
        where = f" WHERE {_VISIBLE}" + (" AND active" if open_only else "")
        bound = f" LIMIT {int(limit)}" if limit is not None else ""
        rows = self._all(_JOBS + where + _ORDER + bound)
        return [job_view(row, now) for row in self._whole(rows)]

    def job(self, job_id: str, *, now: float) -> JobView:
        """Return one job as it stands at `now`; raises Refused."""
        rows = self._all(_JOBS + " WHERE id = ?", job_id)
        if not rows:
            raise Refused(f"no job {job_id!r}")
        return job_view(self._whole(rows)[0], now)

    def _whole(self, rows: Sequence[Any]) -> list[JobRow]:
        ids = [row.id for row in rows]
        tried = self._grouped("SELECT * FROM attempts WHERE job_id IN ({}) ORDER BY number", ids)
        figures = self._grouped("SELECT * FROM progress WHERE job_id IN ({})", ids)
        return [
            JobRow(
                record_of(row),
                tuple(attempt_of(one.snapshot) for one in tried.get(row.id, [])),
                {one.attempt: progress_of(one.data) for one in figures.get(row.id, [])},
                None if row.reason is None else Reason(row.reason),
                row.evidence or "",
                row.cancel_asked_at,
                row.removed_at is not None,
                row.lease_holder if row.held else None,
                bool(row.active),
            )
            for row in rows
        ]

    def _grouped(self, sql: str, ids: Sequence[str]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for start in range(0, len(ids), PORTION):
            portion = ids[start : start + PORTION]
            for row in self._all(sql.format(",".join("?" * len(portion))), *portion):
                found.setdefault(row.job_id, []).append(row)
        return found

    def find_job(self, word: str) -> str:
        """Return the id that `word` names, as `Store.find_job` does; raises Refused."""
        return pick(word, [(row.id, row.name) for row in self.names()])

    def names(self) -> list[Any]:
        """Return (id, name) of the jobs that are not hidden, newest first."""
        return self._all(f"SELECT id, name FROM jobs WHERE {_VISIBLE}{_ORDER}")

    def events(self, job_id: str, *, after: int = 0) -> list[Recorded]:
        """Return a job's events in order, those of its attempts among them."""
        sql = "SELECT * FROM events WHERE job_id = ? AND seq > ? ORDER BY seq"
        return [
            Recorded(row.seq, row.job_id, row.attempt, row.at, event_of(row.kind, row.data))
            for row in self._all(sql, job_id, after)
        ]

    def attempts(self) -> list[Attempt]:
        """Return every attempt: what the ledger adds up."""
        rows = self._all("SELECT snapshot FROM attempts ORDER BY opened_at, label")
        return [attempt_of(row.snapshot) for row in rows]

    def totals(self, by: ledger.By = "job", *, now: float) -> list[ledger.Total]:
        """Return what was spent, by job, UTC day or provider; hidden jobs count."""
        return ledger.totals(self.attempts(), by, now)

    def strays(self) -> list[Stray]:
        """Return the machines that the newest sweeps could not explain."""
        return [Stray(**row._asdict()) for row in self._all("SELECT * FROM strays")]

    def waiting(self, me: str, is_dead: Callable[[str], bool]) -> list[tuple[str, str]]:
        """Return (job id, dead holder or "") of the active jobs that `me` could take now."""
        sql = (
            f"SELECT id, lease_holder, lease_until > {_NOW} AS held FROM jobs"
            " WHERE active AND (lease_holder IS NULL OR lease_holder != ?)"
        )
        return [
            (row.id, row.lease_holder or "")
            for row in self._all(sql, me)
            if not row.held or row.lease_holder is None or is_dead(row.lease_holder)
        ]

    def _all(self, sql: str, *values: Any) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise Refused(failure_words(error, str(self._path))) from error


def pick(word: str, known: Iterable[tuple[str, str]]) -> str:
    """Return the id named by an id, the start of one, or a name, out of (id, name) newest first.

    Of several jobs of one name the newest is meant. Raises Refused.
    """
    pairs = list(known)
    short = word.removeprefix("#")
    named = [job_id for job_id, name in pairs if name == word]
    begun = [job_id for job_id, _ in pairs if short and job_id.startswith(short)]
    if short in begun:
        return short
    if named:
        return named[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise Refused(f"{word!r} may be {', '.join(begun[:5])}: give more digits")
    raise Refused(f"no job {word!r}", remedy="gpujob ps --all lists them.")
