"""Schema: made whole when the file is new, checked with one cheap read, upgraded by Alembic if old.

Alembic is imported only when there is something to upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import Connection

from orchestrator.store_engine import Database, StoreError
from orchestrator.store_schema import HEAD, metadata

MIGRATIONS = Path(__file__).parent / "migrations"


class SchemaTooNewError(StoreError):
    """The database was written by a newer gpujob."""


SchemaTooNew = SchemaTooNewError


def bring_to_head(database: Database, *, head: str = HEAD, more: Sequence[Path] = ()) -> None:
    """Make or upgrade the schema; raises SchemaTooNewError or StoreError.

    head, more: for tests, a later revision and the folders of its scripts.
    """
    with database.read() as connection:
        if _revision(connection, database.dialect) == head:
            return
    with database.write() as connection:  # again under the write lock: another may have done it
        found = _revision(connection, database.dialect)
        if found is None:
            metadata.create_all(connection)
            connection.execute(text(
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
            ))  # fmt: skip
            connection.execute(text("INSERT INTO alembic_version VALUES (:v)"), {"v": HEAD})
            found = HEAD
        if found == head:
            return
        if not found.isdigit() or int(found) > int(head):
            raise SchemaTooNewError(
                f"the database has schema {found}, this gpujob knows up to {head}: it was written "
                "by a newer gpujob. Upgrade gpujob, or give another GPUJOB_HOME."
            )
        _upgrade(connection, head, more)


def _revision(connection: Connection, dialect: str) -> str | None:
    """Return the schema's revision; None for an empty database. One or two cheap reads."""
    if dialect == "sqlite":
        table = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
    else:
        table = (
            "SELECT count(*) FROM information_schema.tables WHERE table_name = 'alembic_version'"
        )
    if not connection.execute(text(table)).scalar_one():
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return None if found is None else str(found)


def _upgrade(connection: Connection, head: str, more: Sequence[Path]) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    folders = [str(MIGRATIONS / "versions"), *(str(folder) for folder in more)]
    config.set_main_option("version_locations", "\n".join(folders))
    config.attributes["connection"] = connection
    command.upgrade(config, head)
