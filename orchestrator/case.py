"""One attempt in the hands of one driver: the attempt, what is known of it, its connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.attempt import Attempt
from orchestrator.figures import Figures
from orchestrator.observation import Observation, Terms
from orchestrator.site import Site
from orchestrator.watchdog import UNWATCHED, Beside, Watch

if TYPE_CHECKING:
    from orchestrator.plan import JobRecord
    from orchestrator.runner import Runner


class Case:
    """See the module. `cut` may be called from any thread, the rest belongs to the driver's."""

    def __init__(self, attempt: Attempt, terms: Terms, watch: Watch = UNWATCHED) -> None:
        self.attempt = attempt
        self.terms = terms
        self.seen = Observation()
        self.beside = Beside(watch)
        self.figures = Figures(gpu_count=attempt.offer.gpu_count)
        self.offsets: dict[str, int] = {}  # of pulled files, as committed
        self.call_until: float | None = None  # a call on the instance is under way: not beyond this
        self._site: Site | None = None
        self._address: object = None
        self._lock = threading.Lock()
        self._was_cut = False

    def site(self, address: object, make: Callable[[], Site]) -> Site:
        """Return the connection to this address; a new one after it moved or was cut."""
        with self._lock:
            if self._site is not None and (address != self._address or self._was_cut):
                self._site.close()
                self._site = None
            if self._site is None:
                self._site = make()
                self._address, self._was_cut = address, False
            return self._site

    @contextmanager
    def calling(self, until: float) -> Iterator[None]:
        """Mark a call on the instance: past `until` the supervisor cuts it."""
        self.call_until = until
        try:
            yield
        finally:
            self.call_until = None

    def cut(self) -> None:
        """Cut a blocked call: it returns with SiteError."""
        with self._lock:
            if self._site is not None and self.call_until is not None and not self._was_cut:
                self._was_cut = True
                self._site.close()

    def drop_site(self) -> None:
        """Close the connection."""
        with self._lock:
            site, self._site = self._site, None
        if site is not None:
            site.close()

    def forget(self) -> None:
        """Forget all that was seen: the world is to be looked at anew."""
        self.drop_site()
        self.seen = Observation()


def terms_of(runner: Runner, record: JobRecord, attempt: Attempt) -> Terms:
    """Return what holds for an attempt however it goes."""
    caps = record.new.caps
    return Terms(
        runner.providers[attempt.provider].traits,
        runner.limits,
        runner.rules,
        caps.budget_usd,
        caps.reserve_usd,
        caps.boot_timeout_s,
        caps.keep_checkpoints,
        bool(record.new.spec.get("checkpoints", {}).get("target")),
        caps.keep_on_failure_s,
    )
