"""The first schema: jobs, attempts, events, progress, offsets, strays.

A new database is made whole from `store_schema.py`; this script stands here as the root that later
ones name. It is frozen: `tests/cases/store_0001.sql` holds a database of it as text.
"""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: no database is older than this."""
