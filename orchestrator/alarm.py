"""The alarm: looks after what a person must hear, remembers it in the database, and sends it.

A thread beside the supervisor. It reads the store alone, so it tells what is written, and goes on
after a restart where it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator import events as ev
from orchestrator.alarm_matters import STILL_BILLING, Matter, matters
from orchestrator.alarm_send import Channels, NotSent, send
from orchestrator.clock import Clock
from orchestrator.policy import DEFAULT_LIMITS, Limits
from orchestrator.runner import Happening
from orchestrator.store import Store
from orchestrator.store_alarms import Alarms
from orchestrator.store_engine import StoreError

log = logging.getLogger("gpujob.alarm")

LOOK_EVERY_S = 10.0  # of a budget nobody tells us
HOLD_S = 120.0  # longer than one message takes on all channels
AGAIN_FIRST_S, AGAIN_MAX_S = 5.0, 300.0
GIVE_UP_TRIES = 300  # a day; STILL BILLING is never given up
FAREWELL_S = 20.0  # for the last messages of a process that ends
RECENT = 50  # closed jobs that a fresh process looks at, for ends that nobody was told
NEWS = (ev.StillBilling, ev.JobClosed, ev.TrainerExited, ev.Aborted, ev.TerminateFailed)

Send = Callable[[Matter, Channels, Clock], None]


class Alarmer:
    """See the module. Without a channel it does nothing at all."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        channels: Channels,
        *,
        limits: Limits = DEFAULT_LIMITS,
        send: Send = send,
    ) -> None:
        self._store = store
        self._alarms = Alarms(store.database)
        self._clock = clock
        self._channels = channels
        self._limits = limits
        self._send = send
        self._news = threading.Event()
        self._ended = threading.Event()
        self._closed: set[str] = set()  # jobs to be looked at once more
        self._begun = False

    def __call__(self, happening: Happening) -> None:
        """Take what the runner tells, as one of its listeners."""
        if isinstance(happening.event, ev.JobClosed):
            self._closed.add(happening.job_id)
        if isinstance(happening.event, NEWS):
            self._news.set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Send alarms in a thread for the time of the block, and what is left at its end."""
        if not self._channels.any:
            yield
            return
        self._ended.clear()
        thread = threading.Thread(target=self._run, name="alarm", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._news.set()
            thread.join(FAREWELL_S)

    def _run(self) -> None:
        while True:
            ending = self._ended.is_set()
            self._news.clear()
            self.round()
            if ending:
                return
            self._news.wait(LOOK_EVERY_S)

    def round(self) -> None:
        """Note what is new and send what is due; a failure is logged, and tried again."""
        try:
            self._alarms.note(self._found())
            for pending in self._alarms.claim(self._clock.now(), HOLD_S):
                self._deliver(pending.matter, pending.tries)
        except StoreError as error:
            log.error("alarms: %s; trying again", error)  # noqa: TRY400 - no traceback
        except Exception:
            log.exception("a mistake of ours in the alarm; trying again")

    def _found(self) -> list[Matter]:
        now, store = self._clock.now(), self._store
        closed, self._closed = self._closed, set()
        jobs = store.jobs(now=now, open_only=True, limits=self._limits)
        known = {job.id for job in jobs}
        jobs += [store.job(one, now=now, limits=self._limits) for one in closed - known]
        if not self._begun:
            recent = store.jobs(now=now, limit=RECENT, limits=self._limits)
            jobs += [job for job in recent if job.id not in known | closed]
            self._begun = True
        return [matter for job in jobs for matter in matters(job, now)]

    def _deliver(self, matter: Matter, tries: int) -> None:
        try:
            self._send(matter, self._channels, self._clock)
        except NotSent as error:
            again_s = min(AGAIN_FIRST_S * float(1 << min(tries, 10)), AGAIN_MAX_S)
            log.warning("alarm %s was not heard: %s", matter.kind, error)
            if tries >= GIVE_UP_TRIES and matter.kind != STILL_BILLING:
                self._alarms.delivered(matter.key, self._clock.now())
                return
            self._alarms.failed(matter.key, str(error)[:300], self._clock.now() + again_s)
        else:
            self._alarms.delivered(matter.key, self._clock.now())
