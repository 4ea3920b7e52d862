"""How the database is opened: SQLite in WAL with synchronous FULL, or PostgreSQL by URL."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Compiled,
    Float,
    create_engine,
    event,
    literal_column,
)
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from orchestrator.store_failure import failure_words

ALONE = 0x67706A  # the key of the lock that `alone` takes: any number that is ours
BUSY_TIMEOUT_MS = 30_000  # far above the milliseconds that our writers take


class StoreError(Exception):
    """The database cannot be used as it is; `str()` says why, fit to show a person."""


# The database's own clock in UNIX seconds: leases are judged by it alone, not by any process's.
# julianday has milliseconds; the newer unixepoch('subsec') needs SQLite 3.42.
NOW_SQL = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())",
}


class Database:
    """Connections and transactions. Writers queue on one lock within the process."""

    def __init__(self, url: str, *, now_sql: str | None = None, synchronous: str = "FULL") -> None:
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise StoreError(f"GPUJOB_DATABASE_URL is no database URL: {error}") from error
        self.dialect = parsed.get_backend_name()
        self._place = (
            str(parsed.database) if self.dialect == "sqlite" else parsed.render_as_string()
        )
        if self.dialect not in NOW_SQL:
            raise StoreError(f"no such database: {self.dialect}; use sqlite or postgresql")
        self.now: ColumnElement[float] = literal_column(now_sql or NOW_SQL[self.dialect], Float)
        self._lock = threading.RLock()
        options: dict[str, Any] = {}
        if self.dialect == "sqlite":
            if parsed.database in {None, "", ":memory:"}:
                options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
            else:
                _make_private(Path(str(parsed.database)))
        try:
            self.engine: Engine = create_engine(parsed, **options)
        except ModuleNotFoundError as error:
            raise StoreError(f"the driver for {self.dialect} is not installed: {error}") from error
        driver: Any = self.engine.dialect.dbapi
        self._driver_error: type[Exception] = driver.Error
        if self.dialect == "sqlite":
            _tune_sqlite(self.engine, synchronous)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a write transaction, committed at the end; raises StoreError."""
        with self._lock, self._connection() as connection:
            if self.dialect == "sqlite":
                # The write lock at once: a transaction that reads first and then wants to write
                # could meet another writer's commit and fail without any waiting.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for reading; each statement is a snapshot of its own."""
        with self._connection() as connection:
            yield connection
            connection.rollback()

    @contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[Any]:
        """Yield the driver's own cursor in a write transaction: for prepared statements.

        alone: no other such transaction of any process runs meanwhile (SQLite: none ever does).
        """
        with self._lock, self._driver() as connection:
            cursor = connection.cursor()
            if self.dialect == "sqlite":
                cursor.execute("BEGIN IMMEDIATE")
            elif alone:
                cursor.execute(f"SELECT pg_advisory_xact_lock({ALONE})")
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
            cursor.close()

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        """Yield the driver's own cursor for reading: for prepared statements."""
        with self._driver() as connection:
            cursor = connection.cursor()
            yield cursor
            cursor.close()

    @contextmanager
    def _driver(self) -> Iterator[Any]:
        """Yield a connection of the pool as the driver made it; its errors become StoreError."""
        connection: Any = None
        try:
            connection = self.engine.raw_connection()
            yield connection
        except (self._driver_error, SQLAlchemyError) as error:
            raise StoreError(failure_words(error, self._place)) from error
        finally:
            if connection is not None:
                connection.close()  # back to the pool, rolled back

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(failure_words(error, self._place)) from error

    def prepare(self, statement: ClauseElement, columns: Sequence[str] | None = None) -> Prepared:
        """Return a statement compiled once for this database; columns: those it writes."""
        compiled = statement.compile(dialect=self.engine.dialect, column_keys=columns)
        return Prepared(compiled)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class Prepared:
    """A statement of SQLAlchemy's that goes to the driver as text: a fifth of the CPU time.

    Values and columns pass as the driver knows them: numbers, text, None; booleans as 0 and 1.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._sql = str(compiled)
        self._order: Sequence[str] | None = getattr(compiled, "positiontup", None)
        self._fixed = {k: v for k, v in compiled.params.items() if v is not None}

    def run(self, cursor: Any, values: Mapping[str, Any]) -> Any:
        """Run it on a driver's cursor and return that: fetchone, fetchall, rowcount."""
        every = {**self._fixed, **values} if self._fixed else values
        if self._order is None:
            cursor.execute(self._sql, every)
        else:
            cursor.execute(self._sql, [every[name] for name in self._order])
        return cursor


def _make_private(path: Path) -> None:
    """Make the file 0600 before anything is in it; SQLite gives its WAL the same mode."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; give another GPUJOB_HOME") from error
    os.close(descriptor)


def _tune_sqlite(engine: Engine, synchronous: str) -> None:
    @event.listens_for(engine, "connect")
    def tune(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say so
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {synchronous}")
        cursor.close()
