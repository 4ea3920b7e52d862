"""Alarms in the database: each matter once, remembered before it is sent, delivered by one process.

A process that dies while sending leaves a claim that runs out; another sends again. So a matter may
reach a person twice, never not at all: receivers tell by the id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import insert, select, update

from orchestrator.alarm_matters import Matter
from orchestrator.store_engine import Database
from orchestrator.store_schema import alarms

MOST = 50  # of one round


@dataclass(frozen=True, slots=True)
class Pending:
    """A matter that is to be sent now, and how often that failed before."""

    matter: Matter
    tries: int


class Alarms:
    """See the module. Safe for threads and for many processes on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, found: Sequence[Matter]) -> int:
        """Remember matters that are new; returns how many were."""
        if not found:
            return 0
        by_key = {matter.key: matter for matter in found}
        known = select(alarms.c.key).where(alarms.c.key.in_(list(by_key)))
        with self._database.read() as db:
            new = by_key.keys() - {row.key for row in db.execute(known)}
        if not new:
            return 0
        with self._database.write() as db:  # again, under the lock: another may have noted it
            new -= {row.key for row in db.execute(known)}
            rows = [
                {
                    "key": key,
                    "job_id": by_key[key].job_id,
                    "kind": by_key[key].kind,
                    "at": by_key[key].at,
                    "text": by_key[key].text,
                    "tries": 0,
                    "next_at": 0.0,
                }
                for key in sorted(new)
            ]
            if rows:
                db.execute(insert(alarms), rows)
        return len(rows)

    def claim(self, now: float, hold_s: float) -> list[Pending]:
        """Return what is due and nobody else is sending, and hold it for so long."""
        due = (alarms.c.delivered_at.is_(None), alarms.c.next_at <= now)
        wanted = select(alarms).where(*due).order_by(alarms.c.at).limit(MOST)
        with self._database.read() as db:
            if db.execute(wanted).first() is None:
                return []
        with self._database.write() as db:
            rows = db.execute(wanted).all()
            taken = []
            for row in rows:
                done = db.execute(
                    update(alarms)
                    .where(alarms.c.key == row.key, *due)
                    .values(next_at=now + hold_s, tries=row.tries + 1)
                )
                if done.rowcount:
                    matter = Matter(row.key, row.job_id, row.kind, row.at, row.text)
                    taken.append(Pending(matter, row.tries))
        return taken

    def delivered(self, key: str, now: float) -> None:
        """Remember that a person was told."""
        with self._database.write() as db:
            db.execute(update(alarms).where(alarms.c.key == key).values(delivered_at=now, error=""))

    def failed(self, key: str, error: str, again_at: float) -> None:
        """Remember why it could not be sent, and when to try again."""
        with self._database.write() as db:
            db.execute(
                update(alarms).where(alarms.c.key == key).values(error=error, next_at=again_at)
            )

    def unheard(self) -> list[tuple[Matter, int, str]]:
        """Return what nobody has heard yet: (matter, tries, the newest error), oldest first."""
        wanted = select(alarms).where(alarms.c.delivered_at.is_(None)).order_by(alarms.c.at)
        with self._database.read() as db:
            rows = db.execute(wanted.limit(MOST)).all()
        return [
            (Matter(row.key, row.job_id, row.kind, row.at, row.text), row.tries, row.error or "")
            for row in rows
        ]
