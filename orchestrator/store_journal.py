"""The journal: leases, fences, and all that the holder of a job's lease writes.

Every write carries the lease's fence: if somebody else took the job over meanwhile, it fails with
LeaseLost and changes nothing. The same statement prolongs the lease. Leases are judged by the
database's clock, so two machines with different clocks still agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, insert, literal_column, null, or_, select, update
from sqlalchemy.engine import Connection

from orchestrator import codec, points
from orchestrator.attempt import Attempt
from orchestrator.events import AnyEvent, JobClosed
from orchestrator.store_engine import Database, StoreError
from orchestrator.store_rows import ActiveJob, Lease, Progress, attempt_of
from orchestrator.store_schema import attempts, events, jobs, offsets, progress


@dataclass(frozen=True, slots=True)
class Admit:
    """Whether an attempt may be opened beside all others; see Journal.append."""

    since: float
    judge: Callable[[list[Attempt]], None]


class LeaseLost(StoreError):  # noqa: N818 - the noun is the condition
    """Somebody else drives the job now; nothing was written."""


class Journal:
    """See the module. Safe for threads and for many processes on one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        now, prepare = database.now, database.prepare
        held = [jobs.c.id == bindparam("job"), jobs.c.lease_holder == bindparam("holder")]
        fenced = [*held, jobs.c.fence == bindparam("at_fence")]
        later = now + bindparam("ttl")
        free = or_(
            jobs.c.lease_holder.is_(None),
            jobs.c.lease_until <= now,
            jobs.c.lease_holder == bindparam("dead"),
        )
        self._renew_one = prepare(update(jobs).where(*fenced).values(lease_until=later))
        self._renew_all = prepare(
            update(jobs).where(jobs.c.lease_holder == bindparam("holder")).values(lease_until=later)
        )
        self._release = prepare(
            update(jobs).where(*fenced).values(lease_holder=null(), lease_until=literal_column("0"))
        )
        self._acquire = prepare(
            update(jobs)
            .where(jobs.c.id == bindparam("job"), free)
            .values(lease_holder=bindparam("new"), lease_until=later, fence=jobs.c.fence + 1)
            .returning(jobs.c.fence)
        )
        self._active = prepare(
            select(
                jobs.c.id,
                jobs.c.lease_holder,
                (jobs.c.lease_until > now).label("held"),
                jobs.c.cancel_asked_at,
            ).where(jobs.c.active)
        )
        self._spending = prepare(
            select(attempts.c.snapshot).where(
                or_(attempts.c.closed_at.is_(None), attempts.c.closed_at >= bindparam("since"))
            )
        )
        self._add_event = prepare(insert(events), _EVENT_COLUMNS)
        self._add_attempt = prepare(insert(attempts), attempts.c.keys())
        self._save_attempt = prepare(_SAVE_ATTEMPT)
        self._set_active = prepare(
            update(jobs).where(jobs.c.id == bindparam("job")).values(active=bindparam("value"))
        )
        self._close_job = prepare(
            update(jobs)
            .where(jobs.c.id == bindparam("job"), jobs.c.closed_at.is_(None))
            .values(closed_at=bindparam("at"), reason=bindparam("why"), evidence=bindparam("said"))
        )
        key = {"job_id": "job", "attempt": "number"}
        self._offsets = _Upsert(database, offsets, {**key, "name": "file"}, "bytes")
        self._progress = _Upsert(database, progress, key, "data")

    def acquire(self, job_id: str, holder: str, ttl_s: float, *, dead: str = "") -> Lease | None:
        """Return the lease of a job that nobody holds, or whose holder is `dead`; else None."""
        values = {"job": job_id, "new": holder, "ttl": ttl_s, "dead": dead}
        with self.database.transaction() as db:
            row = self._acquire.run(db, values).fetchone()
        return None if row is None else Lease(job_id, holder, int(row[0]))

    def active(self) -> list[ActiveJob]:
        """Return the jobs that somebody must drive: a supervisor needs no other read."""
        with self.database.snapshot() as db:
            rows = self._active.run(db, {}).fetchall()
        return [
            ActiveJob(job_id, holder if held else None, holder or "", cancelled is not None)
            for job_id, holder, held, cancelled in rows
        ]

    def waiting(self, me: str, is_dead: Callable[[str], bool]) -> list[tuple[str, str]]:
        """Return (job id, dead holder or "") of the active jobs that `me` could take now."""
        return takeable(self.active(), me, is_dead)

    def renew(self, holder: str, ttl_s: float) -> None:
        """Prolong all leases that are still the holder's."""
        with self.database.transaction() as db:
            self._renew_all.run(db, {"holder": holder, "ttl": ttl_s})

    def check(self, lease: Lease, ttl_s: float) -> None:
        """Prolong one lease, or raise LeaseLost: asked immediately before every effect."""
        with self.database.transaction() as db:
            self._fence(db, lease, ttl_s)

    def release(self, lease: Lease) -> None:
        """Give a job up, so that another may take it at once."""
        with self.database.transaction() as db:
            self._release.run(db, _fence_values(lease))

    def _fence(self, db: Any, lease: Lease, ttl_s: float) -> None:
        done = self._renew_one.run(db, {**_fence_values(lease), "ttl": ttl_s})
        if done.rowcount != 1:
            raise LeaseLost(f"job {lease.job_id} is driven by another process now")

    def _save(self, db: Any, attempt: Attempt, *, new: bool) -> None:
        if new:
            values: dict[str, Any] = {
                "job_id": attempt.job_id,
                "number": attempt.number,
                "label": attempt.label,
                "provider": attempt.provider,
                "state": attempt.state.value,
                "opened_at": attempt.opened_at,
                "closed_at": attempt.closed_at,
                "suspect_until": attempt.suspect_until,
                "snapshot": codec.dump(attempt),
            }
            self._add_attempt.run(db, values)
            return
        self._save_attempt.run(
            db,
            {
                "job": attempt.job_id,
                "which": attempt.number,
                "new_state": attempt.state.value,
                "new_closed_at": attempt.closed_at,
                "new_suspect_until": attempt.suspect_until,
                "new_snapshot": codec.dump(attempt),
            },
        )

    # ---------------------------------------------------------------- what the holder writes

    def append(
        self,
        lease: Lease,
        happened: Sequence[AnyEvent],
        attempt: Attempt,
        *,
        ttl_s: float,
        fenced: bool = True,
        admit: Admit | None = None,
    ) -> None:
        """Commit events of an attempt, its snapshot, and a longer lease; raises LeaseLost.

        admit: sees all attempts open or closed since a moment, in the same transaction, and may
        raise: then nothing is written.
        """
        kinds = [type(event).__name__ for event in happened]
        points.reach(f"journal.before:{kinds[-1]}")
        with self.database.transaction(alone=admit is not None) as db:
            if fenced:
                self._fence(db, lease, ttl_s)
            if admit is not None:
                rows = self._spending.run(db, {"since": admit.since}).fetchall()
                admit.judge([attempt_of(row[0]) for row in rows])
            for event in happened:
                row = event_values(lease.job_id, attempt.number, event, lease.fence)
                self._add_event.run(db, row)
            self._save(db, attempt, new="Opened" in kinds)
            if "Resurfaced" in kinds or "Opened" in kinds:
                self._set_active.run(db, {"job": lease.job_id, "value": True})
        points.reach(f"journal.after:{kinds[-1]}")

    def close_job(self, lease: Lease, event: JobClosed, *, ttl_s: float) -> None:
        """Commit the end of a job, or that a job closed before has nothing open any more."""
        points.reach("journal.before:JobClosed")
        with self.database.transaction() as db:
            self._fence(db, lease, ttl_s)
            values = {
                "job": lease.job_id,
                "at": event.at,
                "why": event.reason.value,
                "said": event.evidence,
            }
            if self._close_job.run(db, values).rowcount:
                self._add_event.run(db, event_values(lease.job_id, 0, event, lease.fence))
            self._set_active.run(db, {"job": lease.job_id, "value": False})
        points.reach("journal.after:JobClosed")

    def pulled(
        self,
        lease: Lease,
        number: int,
        sizes: Mapping[str, int],
        figures: Progress | None,
        *,
        ttl_s: float,
    ) -> None:
        """Commit how many bytes of each pulled file are safe on this disk, and the figures."""
        points.reach("journal.before:pulled")
        with self.database.transaction() as db:
            self._fence(db, lease, ttl_s)
            key = {"job": lease.job_id, "number": number}
            for name, size in sizes.items():
                self._offsets(db, {**key, "file": name, "value": size})
            if figures is not None:
                self._progress(db, {**key, "value": codec.dump(figures)})
        points.reach("journal.after:pulled")


_EVENT_COLUMNS = [column.name for column in events.c if column.name != "seq"]
_SAVE_ATTEMPT = (
    update(attempts)
    .where(attempts.c.job_id == bindparam("job"), attempts.c.number == bindparam("which"))
    .values(
        state=bindparam("new_state"),
        closed_at=bindparam("new_closed_at"),
        suspect_until=bindparam("new_suspect_until"),
        snapshot=bindparam("new_snapshot"),
    )
)


def _fence_values(lease: Lease) -> dict[str, Any]:
    return {"job": lease.job_id, "holder": lease.holder, "at_fence": lease.fence}


def takeable(
    active: Iterable[ActiveJob], me: str, is_dead: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return (job id, dead holder or "") of those that `me` could take now."""
    return [
        (job.id, job.last_holder)
        for job in active
        if job.last_holder != me and (job.holder is None or is_dead(job.holder))
    ]


def event_values(job_id: str, number: int, event: AnyEvent, fence: int) -> dict[str, Any]:
    """Return the row of one event."""
    return {
        "job_id": job_id,
        "attempt": number,
        "at": event.at,
        "kind": type(event).__name__,
        "data": codec.dump(event),
        "fence": fence,
    }


def add_event(db: Connection, job_id: str, number: int, event: AnyEvent, fence: int) -> None:
    """Insert one event in the caller's transaction."""
    db.execute(insert(events), event_values(job_id, number, event, fence))


class _Upsert:
    """Update the row of a key, or insert it; the caller's transaction holds the job's row."""

    def __init__(self, database: Database, table: Table, key: dict[str, str], value: str) -> None:
        same = [table.c[column] == bindparam(name) for column, name in key.items()]
        self._update = database.prepare(
            update(table).where(*same).values({value: bindparam("value")})
        )
        columns: dict[str, Any] = {column: bindparam(name) for column, name in key.items()}
        self._insert = database.prepare(
            insert(table).values({**columns, value: bindparam("value")})
        )

    def __call__(self, db: Any, values: Mapping[str, Any]) -> None:
        if not self._update.run(db, values).rowcount:
            self._insert.run(db, values)
