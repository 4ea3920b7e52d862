"""Alembic's entry: runs the scripts on the connection, and in the transaction, that it is given."""

from __future__ import annotations

from alembic import context

from orchestrator.store_schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter a column otherwise
    transactional_ddl=False,  # the caller's transaction holds all of it
)
context.run_migrations()
