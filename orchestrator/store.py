"""The store: what was intended, what happened, who drives it.

Readers need nothing else. People write through it too (create_job, ask_cancel, remove_job), whoever
they are; what the holder of a job's lease writes stands in store_journal.py, as `store.journal`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, or_, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from orchestrator import codec, ledger, points
from orchestrator.attempt import Attempt
from orchestrator.events import CancelAsked, JobSubmitted
from orchestrator.plan import JobRecord, NewJob
from orchestrator.policy import DEFAULT_LIMITS, Limits
from orchestrator.states import Reason, Teardown
from orchestrator.store_engine import Database, StoreError
from orchestrator.store_journal import Journal, LeaseLost, add_event
from orchestrator.store_migrate import SchemaTooNew, bring_to_head
from orchestrator.store_rows import (
    JobRow,
    Recorded,
    Stray,
    attempt_of,
    event_of,
    progress_of,
    record_of,
)
from orchestrator.store_schema import attempts, events, jobs, offsets, progress, strays
from orchestrator.views import JobView
from orchestrator.views_build import job_view

__all__ = ["AmbiguousJob", "LeaseLost", "SchemaTooNew", "Store", "StoreError", "UnknownJob"]


class UnknownJob(StoreError):  # noqa: N818
    """No job of that id or name."""


class AmbiguousJob(StoreError):  # noqa: N818
    """Several jobs fit."""


class Store:
    """See the module. Safe for threads and for many processes on one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.journal = Journal(database)
        self._cancel = database.prepare(_CANCEL)
        self._offset = database.prepare(_OFFSET)
        self._strays = database.prepare(select(*(strays.c[f.name] for f in fields(Stray))))
        self._by_label = database.prepare(_BY_LABEL)
        self._held = (jobs.c.lease_until > database.now).label("held")

    @classmethod
    def open(cls, url: str) -> Store:
        """Return the store at a URL, its schema made or upgraded; raises StoreError."""
        database = Database(url)
        bring_to_head(database)
        return cls(database)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    # ---------------------------------------------------------------- what people write

    def new_job_id(self) -> str:
        """Return six hex digits that no job has."""
        with self.database.read() as db:
            while True:
                fresh = secrets.token_hex(3)
                if db.execute(select(jobs.c.id).where(jobs.c.id == fresh)).first() is None:
                    return fresh

    def create_job(self, new: NewJob, *, now: float, adopted: bool = False) -> None:
        """Store a job; from here on a supervisor may take it up. Offers named twice count once."""
        new = codec.decode(NewJob, {**codec.encode(new), "offers": _once(new.offers)})
        event = JobSubmitted(now, new.name)
        points.reach("journal.before:JobSubmitted")
        try:
            with self.database.write() as db:
                db.execute(
                    insert(jobs),
                    {
                        "id": new.id,
                        "name": new.name,
                        "created_at": now,
                        "plan": codec.dump(new),
                        "active": True,
                        "adopted": adopted,
                    },
                )
                add_event(db, new.id, 0, event, 0)
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError):
                raise StoreError(f"there is a job {new.id} already") from error
            raise
        points.reach("journal.after:JobSubmitted")

    def ask_cancel(self, job_id: str, *, now: float, reason: Reason = Reason.CANCELLED) -> bool:
        """Ask for the end of a job; False where it is over, unknown, or asked already."""
        open_one = (jobs.c.closed_at.is_(None), jobs.c.cancel_asked_at.is_(None))
        points.reach("journal.before:CancelAsked")
        with self.database.write() as db:
            done = db.execute(
                update(jobs)
                .where(jobs.c.id == job_id, *open_one)
                .values(cancel_asked_at=now, cancel_reason=reason.value)
            )
            if done.rowcount:
                add_event(db, job_id, 0, CancelAsked(now, reason), 0)
        points.reach("journal.after:CancelAsked")
        return bool(done.rowcount)

    def remove_job(self, job_id: str, *, now: float) -> bool:
        """Hide a closed job; its events and costs stay. False while anything of it is open."""
        with self.database.write() as db:
            done = db.execute(
                update(jobs)
                .where(jobs.c.id == job_id, jobs.c.closed_at.is_not(None), jobs.c.active.is_(False))
                .values(removed_at=now)
            )
        return bool(done.rowcount)

    # ---------------------------------------------------------------- what the sweep writes

    def save_strays(self, found: Sequence[Stray], *, providers: Sequence[str]) -> None:
        """Replace what is known of these providers' strays by what a sweep found."""
        with self.database.write() as db:
            db.execute(delete(strays).where(strays.c.provider.in_(list(providers))))
            if found:
                db.execute(insert(strays), [asdict(stray) for stray in found])

    def strays(self) -> list[Stray]:
        """Return the machines that the newest sweeps could not explain."""
        with self.database.snapshot() as db:
            rows = self._strays.run(db, {}).fetchall()
        return [Stray(*row) for row in rows]

    # ---------------------------------------------------------------- what is read

    def cancel_of(self, job_id: str) -> Reason | None:
        """Return why the job is to end, if somebody asked for that."""
        with self.database.snapshot() as db:
            row = self._cancel.run(db, {"job": job_id}).fetchone()
        return None if row is None or row[0] is None else Reason(row[0])

    def load(self, job_id: str) -> tuple[JobRecord, list[Attempt]]:
        """Return a job and its attempts, oldest first; raises UnknownJob."""
        with self.database.read() as db:
            row = db.execute(_JOB, {"job": job_id}).first()
            if row is None:
                raise UnknownJob(f"no job {job_id}")
            found = db.execute(_ATTEMPTS, {"job": job_id}).all()
        return record_of(row), [attempt_of(one.snapshot) for one in found]

    def offset(self, job_id: str, number: int, name: str) -> int:
        """Return how many bytes of a pulled file are committed."""
        key = {"job": job_id, "number": number, "name": name}
        with self.database.snapshot() as db:
            row = self._offset.run(db, key).fetchone()
        return 0 if row is None else int(row[0])

    def log_offset(self, job_id: str, attempt: int, name: str = "train.log") -> int:
        """Return how many bytes of a pulled file are committed."""
        return self.offset(job_id, attempt, name)

    def events(self, job_id: str, *, after: int = 0) -> list[Recorded]:
        """Return a job's events in order, those of its attempts among them."""
        with self.database.read() as db:
            rows = db.execute(_EVENTS, {"job": job_id, "after": after}).all()
        return [Recorded(r.seq, r.job_id, r.attempt, r.at, event_of(r.kind, r.data)) for r in rows]

    def attempts(self, *, since: float | None = None) -> list[Attempt]:
        """Return every attempt, or those not over before `since`: what the ledger adds up."""
        wanted = select(attempts.c.snapshot).order_by(attempts.c.opened_at, attempts.c.label)
        if since is not None:
            wanted = wanted.where(
                or_(attempts.c.closed_at.is_(None), attempts.c.closed_at >= since)
            )
        with self.database.read() as db:
            return [attempt_of(row.snapshot) for row in db.execute(wanted)]

    def by_label(self, labels: Sequence[str]) -> dict[str, Attempt]:
        """Return the attempts of these labels, as far as the store knows them."""
        found: dict[str, Attempt] = {}
        with self.database.snapshot() as db:
            for label in labels:  # few, and found by an index
                row = self._by_label.run(db, {"which": label}).fetchone()
                if row is not None:
                    found[label] = attempt_of(row[0])
        return found

    def rows(
        self,
        *,
        job_id: str | None = None,
        active_only: bool = False,
        limit: int | None = None,
        removed: bool = False,
    ) -> list[JobRow]:
        """Return jobs with all that is known of them, newest first."""
        wanted = select(jobs, self._held).order_by(jobs.c.created_at.desc(), jobs.c.id)
        if job_id is not None:
            wanted = wanted.where(jobs.c.id == job_id)
        elif not removed:
            wanted = wanted.where(or_(jobs.c.removed_at.is_(None), jobs.c.active))
        if active_only:
            wanted = wanted.where(jobs.c.active)
        if limit is not None:
            wanted = wanted.limit(limit)
        with self.database.read() as db:
            found = db.execute(wanted).all()
            ids = [row.id for row in found]
            tried = _grouped(db, select(attempts).order_by(attempts.c.number), attempts, ids)
            figures = _grouped(db, select(progress), progress, ids)
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
            for row in found
        ]

    def job(self, job_id: str, *, now: float, limits: Limits = DEFAULT_LIMITS) -> JobView:
        """Return one job as it stands at `now`; raises UnknownJob."""
        rows = self.rows(job_id=job_id)
        if not rows:
            raise UnknownJob(f"no job {job_id!r}")
        return job_view(rows[0], now, limits)

    def jobs(
        self,
        *,
        now: float,
        open_only: bool = False,
        limit: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> list[JobView]:
        """Return the jobs that are not hidden, newest first."""
        return [job_view(row, now, limits) for row in self.rows(active_only=open_only, limit=limit)]

    def still_billing(self, *, now: float, limits: Limits = DEFAULT_LIMITS) -> list[JobView]:
        """Return the jobs with a machine past its end and not proven gone.

        Every command shows them first; `strays()` are the machines that no job explains.
        """
        open_ones = self.jobs(now=now, open_only=True, limits=limits)
        return [job for job in open_ones if job.teardown is Teardown.STILL_BILLING]

    def totals(
        self, by: ledger.By = "job", *, now: float, since: float | None = None
    ) -> list[ledger.Total]:
        """Return what was spent, by job, UTC day or provider; hidden jobs count."""
        return ledger.totals(self.attempts(since=since), by, now)

    def find_job(self, word: str) -> str:
        """Return the id of the job that `word` names: an id, the start of one, or a name.

        Of several jobs of one name the newest is meant. Raises UnknownJob, AmbiguousJob.
        """
        short = word.removeprefix("#")
        newest_first = select(jobs.c.id, jobs.c.name).order_by(jobs.c.created_at.desc(), jobs.c.id)
        visible = or_(jobs.c.removed_at.is_(None), jobs.c.active)
        with self.database.read() as db:
            found = db.execute(newest_first.where(visible)).all()
        named = [row.id for row in found if row.name == word]
        begun = [row.id for row in found if short and row.id.startswith(short)]
        if short in begun:
            return short
        if named:
            return str(named[0])
        if len(begun) == 1:
            return str(begun[0])
        if begun:
            raise AmbiguousJob(f"{word!r} may be {', '.join(begun[:5])}: give more digits")
        raise UnknownJob(f"no job {word!r}; `gpujob ps --all` lists them")

    def job_exists(self, job_id: str) -> bool:
        """Return whether the store knows the job, hidden ones included."""
        with self.database.read() as db:
            return db.execute(_JOB, {"job": job_id}).first() is not None

    def max_fence(self) -> int:
        """Return the highest fence ever given: for tests of takeover."""
        with self.database.read() as db:
            return int(db.execute(select(func.max(jobs.c.fence))).scalar_one() or 0)


_CANCEL = select(jobs.c.cancel_reason).where(jobs.c.id == bindparam("job"))
_JOB = select(jobs).where(jobs.c.id == bindparam("job"))
_ATTEMPTS = (
    select(attempts.c.snapshot)
    .where(attempts.c.job_id == bindparam("job"))
    .order_by(attempts.c.number)
)
_BY_LABEL = select(attempts.c.snapshot).where(attempts.c.label == bindparam("which"))
_OFFSET = select(offsets.c.bytes).where(
    offsets.c.job_id == bindparam("job"),
    offsets.c.attempt == bindparam("number"),
    offsets.c.name == bindparam("name"),
)
_EVENTS = (
    select(events)
    .where(events.c.job_id == bindparam("job"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
)


def _grouped(db: Connection, wanted: Any, table: Any, ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return rows by job id; in portions, since SQLite bounds the values of one statement."""
    found: dict[str, list[Any]] = {}
    for start in range(0, len(ids), 500):
        portion = ids[start : start + 500]
        for row in db.execute(wanted.where(table.c.job_id.in_(portion))):
            found.setdefault(row.job_id, []).append(row)
    return found


def _once(offers: Iterable[Any]) -> list[Any]:
    return [codec.encode(offer) for offer in dict.fromkeys(offers)]
