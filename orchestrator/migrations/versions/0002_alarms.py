"""Alarms: what a person must hear, remembered until it was delivered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "alarms",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("job_id", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("delivered_at", sa.Float),
        sa.Column("error", sa.Text),
    )
