"""The tables, as SQLAlchemy Core. A change here is a new file in `migrations/versions`, always."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
    text,
)

HEAD = "0002"  # the newest revision in migrations/versions; revisions are numbers, in order

metadata = MetaData()

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("plan", Text, nullable=False),  # plan.NewJob
    Column("active", Boolean, nullable=False),  # somebody must drive it
    Column("cancel_asked_at", Float),
    Column("cancel_reason", String(32)),
    Column("closed_at", Float),
    Column("reason", String(32)),
    Column("evidence", Text),
    Column("removed_at", Float),  # hidden by `gpujob rm`; its costs stay
    # The lease: `until` by the database's clock, `fence` counts the holders. See store_lease.py.
    Column("lease_holder", Text),
    Column("lease_until", Float, nullable=False, server_default=text("0")),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column("adopted", Boolean, nullable=False, server_default=false()),
    Index("jobs_active", "active"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", String(16), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("label", String(96), nullable=False, unique=True),
    Column("provider", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("suspect_until", Float),
    Column("snapshot", Text, nullable=False),  # attempt.Attempt: the fold of its events
    Index("attempts_state", "state"),
)

events = Table(
    "events",
    metadata,
    Column(
        "seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("job_id", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),  # 0: of the job itself
    Column("at", Float, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("data", Text, nullable=False),
    Column("fence", Integer, nullable=False),  # who wrote it: the lease's counter then
    Index("events_job", "job_id", "seq"),
)

progress = Table(
    "progress",
    metadata,
    Column("job_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("data", Text, nullable=False),  # store_rows.Progress
)

offsets = Table(
    "offsets",
    metadata,
    Column("job_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("name", String(64), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

strays = Table(
    "strays",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("instance_id", String(128), primary_key=True),
    Column("label", Text, nullable=False),
    Column("kind", String(16), nullable=False),  # sweep.Kind
    Column("first_seen_at", Float, nullable=False),
    Column("price_usd_per_hour", Text),
    Column("deadline_at", Float),
)

# What a person must hear, one row a matter: see store_alarms.py.
alarms = Table(
    "alarms",
    metadata,
    Column("key", String(128), primary_key=True),  # alarm_matters.Matter.key
    Column("job_id", String(16), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", Float, nullable=False),
    Column("text", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Float, nullable=False),  # not before; while it is being sent, the claim's end
    Column("delivered_at", Float),
    Column("error", Text),
)
