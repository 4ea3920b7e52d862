"""The supervisor: takes jobs that nobody drives, and drives each in a thread of its own.

A foreground `gpujob submit` is one with `only` its own job; the daemon is one that runs `forever`.
The loop itself never touches the network: it renews leases, hands out jobs, notices wishes to
cancel, and cuts calls that outlive their attempt. The sweep runs in a thread of its own, once a
minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence

from orchestrator.clock import WakeableClock
from orchestrator.holder import is_dead
from orchestrator.runner import Driver, Runner
from orchestrator.states import Reason
from orchestrator.store_engine import StoreError
from orchestrator.store_journal import takeable
from orchestrator.store_rows import ActiveJob
from orchestrator.sweep import sweep

log = logging.getLogger("gpujob.supervisor")

BEAT_S = 1.0
STACK_BYTES = 1 << 20  # a driver's thread needs some 100 KB
MAX_JOBS = 1000


class Supervisor:
    """See the module. `run` blocks; the other methods may be called from any thread."""

    def __init__(
        self,
        runner: Runner,
        clock: WakeableClock,
        *,
        only: Collection[str] | None = None,
        forever: bool = False,
        max_jobs: int = MAX_JOBS,
    ) -> None:
        self.runner = runner
        self._clock = clock
        self._only = None if only is None else set(only)
        self._forever = forever
        self._max_jobs = max_jobs
        self._lock = threading.Lock()
        self._drivers: dict[str, Driver] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._wake: dict[str, threading.Event] = {}
        self._stop = threading.Event()
        self._renew_at = 0.0
        self._sweep_at = 0.0
        self._sweeper: threading.Thread | None = None
        self._unknown_provider: set[str] = set()

    # ---------------------------------------------------------------- for callers

    def run(self) -> None:
        """Drive until all jobs of ours are closed (for ever, as the daemon), or until `detach`."""
        threading.stack_size(STACK_BYTES)
        try:
            while not self._stop.is_set():
                self.beat()
                if not self._forever and not self._drivers and not self._work_left():
                    break
                self._clock.sleep(BEAT_S)
                self._clock.rest()
        finally:
            self._leave()

    def beat(self) -> None:
        """Do one round: renew, take, cut, sweep. A failing database is waited for."""
        try:
            self._renew()
            self._reap()
            active = self.runner.store.journal.active()
            self._take(active)
            self._cut(active)
        except StoreError as error:
            log.error("%s; trying again", error)  # noqa: TRY400 - no traceback
        self._sweep()

    def detach(self) -> None:
        """Let the jobs go at the next safe point: leases are released, `run` returns."""
        self._stop.set()
        self._clock.wake()

    def request_cancel(self, job_id: str, *, reason: Reason = Reason.INTERRUPTED) -> bool:
        """Ask for a job's end and wake its thread; False where it is over or asked already."""
        asked = self.runner.store.ask_cancel(job_id, now=self._clock.now(), reason=reason)
        self.nudge(job_id)
        self._clock.wake()
        return asked

    def nudge(self, job_id: str) -> None:
        """Wake a job's thread, and cut what it is blocked on."""
        with self._lock:
            driver, wake = self._drivers.get(job_id), self._wake.get(job_id)
        if driver is not None and wake is not None:
            wake.set()
            driver.interrupt()

    def armed(self, job_id: str) -> bool:
        """Return whether the job's agent was started: detaching leaves it in good hands."""
        with self._lock:
            driver = self._drivers.get(job_id)
        return driver is not None and driver.armed()

    @property
    def jobs(self) -> list[str]:
        """Return the ids of the jobs that are driven now."""
        with self._lock:
            return sorted(self._drivers)

    # ---------------------------------------------------------------- one round

    def _renew(self) -> None:
        now = self._clock.monotonic()
        if now >= self._renew_at and self._drivers:
            self._renew_at = now + self.runner.limits.lease_s / 3
            self.runner.store.journal.renew(self.runner.holder, self.runner.limits.lease_s)

    def _reap(self) -> None:
        """Forget the jobs whose threads ended."""
        for job_id, thread in list(self._threads.items()):
            if not thread.is_alive():
                with self._lock:
                    for table in (self._drivers, self._threads, self._wake):
                        table.pop(job_id, None)

    def _take(self, active: Sequence[ActiveJob]) -> None:
        runner = self.runner
        for job_id, dead in takeable(active, runner.holder, is_dead):
            if len(self._drivers) >= self._max_jobs or self._stop.is_set():
                return
            if self._only is not None and job_id not in self._only:
                continue
            if job_id in self._drivers or job_id in self._unknown_provider:
                continue
            record, _ = runner.store.load(job_id)
            if not runner.knows(record):
                self._unknown_provider.add(job_id)
                log.warning("job %s needs a provider that is not configured here", job_id)
                continue
            driver = runner.take(job_id, dead=dead)
            if driver is not None:
                self._start(driver)

    def _start(self, driver: Driver) -> None:
        wake = threading.Event()
        thread = threading.Thread(
            target=self._drive, args=(driver, wake), name=f"job-{driver.job_id}", daemon=True
        )
        with self._lock:
            self._drivers[driver.job_id] = driver
            self._threads[driver.job_id] = thread
            self._wake[driver.job_id] = wake
        thread.start()

    def _drive(self, driver: Driver, wake: threading.Event) -> None:
        try:
            while not self._stop.is_set():
                again = driver.tick()
                if again is None:
                    break
                wake.wait(max(0.0, again - self._clock.now()))
                wake.clear()
        finally:
            try:
                driver.release()
            except StoreError as error:
                log.warning("%s; the lease ends by itself", error)
            self._clock.wake()

    def _cut(self, active: Sequence[ActiveJob]) -> None:
        """Cut calls past their time, and those of jobs that somebody wants to end."""
        now = self._clock.now()
        with self._lock:
            drivers = list(self._drivers.values())
        for driver in drivers:
            if driver.overdue(now):
                driver.interrupt()
        for job in active:
            if job.cancel_asked:
                self._cancel_once(job.id)

    def _cancel_once(self, job_id: str) -> None:
        driver = self._drivers.get(job_id)
        if driver is not None and not driver.cancel_seen:
            driver.cancel_seen = True
            self.nudge(job_id)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        if not self.runner.rules.sweep or now < self._sweep_at:
            return
        if self._sweeper is not None and self._sweeper.is_alive():
            return
        self._sweep_at = now + self.runner.limits.sweep_s
        self._sweeper = threading.Thread(target=self._sweep_quietly, name="sweep", daemon=True)
        self._sweeper.start()

    def _sweep_quietly(self) -> None:
        try:
            sweep(self.runner)
        except Exception:
            log.exception("the sweep failed; it runs again in a minute")
        self._clock.wake()

    def _work_left(self) -> bool:
        try:
            active = {job.id for job in self.runner.store.journal.active()}
        except StoreError:
            return True  # said by the next round; until it answers, nothing is known to be over
        wanted = active if self._only is None else active & self._only
        return bool(wanted - self._unknown_provider)

    def _leave(self) -> None:
        """Stop the threads at their next safe point; what is blocked on an instance is cut."""
        self._stop.set()
        with self._lock:
            wakes, threads = list(self._wake.values()), list(self._threads.values())
            drivers = list(self._drivers.values())
        for wake in wakes:
            wake.set()
        for driver in drivers:
            driver.interrupt()
        for thread in threads:
            thread.join(timeout=30.0)
