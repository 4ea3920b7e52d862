"""Reads of one provider, shared by all jobs of a process: one list serves them all.

The token bucket and every wait after an error live here; a caller is never blocked by them, it is
told when to ask again. An error is reported as "not now", never as an answer. terminate and launch
do not pass through here: they are never held back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator import points
from orchestrator.clock import Clock
from orchestrator.observation import Described
from orchestrator.policy import Limits, Rules
from orchestrator.redact import told
from providers.base import Billing, Instance, InstanceId, InstanceState, Provider
from providers.errors import AuthFailed, NotFound, ProviderError, RateLimited

BURST = 4.0  # reads at once; the rest of the allowance refills evenly, so no minute sees more
LEAST_WAIT_S = 0.05  # nobody is told to come back at once: that would be a busy loop
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class NotNow:
    """No answer: ask again at `until`. error: empty where only the bucket said so."""

    until: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A well-formed answer of find; at: when the read began."""

    at: float
    machines: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class Billed:
    """A well-formed answer about a bill; usd None: not settled yet."""

    at: float
    usd: Decimal | None


class Reads:
    """See the module. One per provider and process."""

    def __init__(
        self, provider: Provider, prefix: str, clock: Clock, limits: Limits, rules: Rules
    ) -> None:
        self.provider = provider
        self._prefix = prefix
        self._clock = clock
        self._rules = rules
        self._finding = threading.Lock()  # one find at a time; who waited for it gets its answer
        self._state = threading.Lock()
        self._rate = (limits.requests_per_minute - BURST) / 60.0 if provider.traits.remote else None
        self._tokens = BURST
        self._filled_at = clock.monotonic()
        self._paused_until = 0.0
        self._find_after = 0.0
        self._describe_after = 0.0
        self._find_failures = 0
        self._describe_failures = 0
        self._listed: Listed | None = None

    def find(self, newer_than: float) -> Listed | NotNow:
        """Return a listing that began at or after `newer_than`: another caller's, or a new one."""
        with self._finding:
            if self._listed is not None and self._listed.at >= newer_than:
                return self._listed
            now = self._clock.now()
            wait = self._wait(now, self._find_after)
            if wait is not None:
                return wait
            try:
                points.reach("provider.before:find")
                machines = tuple(self.provider.find(self._prefix))
                points.reach("provider.after:find")
            except ProviderError as error:
                self._find_failures += 1
                delayed = self._failed(error, self._find_failures)
                self._find_after = delayed.until
                return delayed if self._rules.errors_are_unknown else Listed(now, ())
            self._find_failures = 0
            self._listed = Listed(now, well_formed(machines, self._prefix))
            return self._listed

    @property
    def newest(self) -> Listed | None:
        """Return the newest listing that anybody of this process had; no call."""
        return self._listed

    def shows(self, label: str, *, newer_than: float) -> Instance | None:
        """Return a living machine of that label in the newest listing. No call."""
        listed = self._listed
        if listed is None or listed.at < newer_than + self.provider.traits.list_lag_s:
            return None
        gone = InstanceState.GONE
        return next((m for m in listed.machines if m.label == label and m.state is not gone), None)

    def describe(self, instance_id: InstanceId) -> Described | NotNow:
        """Return what the provider says of one machine."""
        now = self._clock.now()
        wait = self._wait(now, self._describe_after)
        if wait is not None:
            return wait
        try:
            points.reach("provider.before:describe")
            instance = self.provider.describe(instance_id)
            points.reach("provider.after:describe")
        except NotFound:
            self._describe_failures = 0
            return Described(now, None)
        except ProviderError as error:
            self._describe_failures += 1
            delayed = self._failed(error, self._describe_failures)
            self._describe_after = delayed.until
            return delayed if self._rules.errors_are_unknown else Described(now, None)
        self._describe_failures = 0
        return Described(now, instance)

    def billed(
        self, bill: Billing, instance_id: InstanceId, start: float, end: float
    ) -> Billed | NotNow:
        """Return what the provider charged in [start, end); an error holds nothing else back."""
        now = self._clock.now()
        wait = self._wait(now, 0.0)
        if wait is not None:
            return wait
        try:
            return Billed(now, bill.billed(instance_id, start, end))
        except ProviderError as error:
            if isinstance(error, RateLimited):
                return self._failed(error, 1)
            return NotNow(now, told(error, kind=False))

    def _wait(self, now: float, after: float) -> NotNow | None:
        """Return why no call may be made now, or take one token."""
        with self._state:
            held = max(after, self._paused_until)
            if now < held:
                return NotNow(held)
            if self._rate is None:
                return None
            present = self._clock.monotonic()
            self._tokens = min(BURST, self._tokens + (present - self._filled_at) * self._rate)
            self._filled_at = present
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                return None
            return NotNow(now + max(LEAST_WAIT_S, (1.0 - self._tokens) / self._rate))

    def _failed(self, error: ProviderError, failures: int) -> NotNow:
        now = self._clock.now()
        if isinstance(error, RateLimited):
            with self._state:
                self._paused_until = max(self._paused_until, now + error.retry_after_s)
            return NotNow(self._paused_until, told(error, kind=False))
        pause_s = RETRY_FIRST_S * float(1 << min(failures - 1, 8))
        if isinstance(error, AuthFailed):
            pause_s = RETRY_MAX_S
        return NotNow(now + min(pause_s, RETRY_MAX_S), told(error, kind=False))


def well_formed(machines: Sequence[Instance], prefix: str) -> tuple[Instance, ...]:
    """Return the machines that bear the prefix: an adapter that filters loosely harms nobody."""
    return tuple(m for m in machines if m.label.startswith(prefix))
