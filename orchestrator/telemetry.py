"""Figures for Prometheus, read from the store at each scrape: `gpujob supervise --metrics`.

Only `supervise --metrics` imports this, and prometheus-client with it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from orchestrator.clock import Clock
from orchestrator.exits import Refused
from orchestrator.policy import DEFAULT_LIMITS, Limits
from orchestrator.states import State, Teardown
from orchestrator.store import Store
from orchestrator.views import JobView

VERBS = ("offers", "launch", "describe", "find", "terminate")


class Calls:
    """Counts the provider calls of this process. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, provider: str, verb: str, outcome: str) -> None:
        """Count one call: outcome is ok, or the error's class."""
        with self._lock:
            self._counts[provider, verb, outcome] += 1

    def all(self) -> dict[tuple[str, str, str], int]:
        """Return (provider, verb, outcome) -> calls."""
        with self._lock:
            return dict(self._counts)


class Counted:
    """A provider whose calls are counted; all else of it shows through."""

    def __init__(self, provider: Any, calls: Calls) -> None:
        self._provider = provider
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        if name not in VERBS:
            return found

        def call(*args: Any, **options: Any) -> Any:
            try:
                answer = found(*args, **options)
            except Exception as error:
                self._calls.add(self._provider.name, name, type(error).__name__)
                raise
            self._calls.add(self._provider.name, name, "ok")
            return answer

        return call


class Collector:
    """What a scrape gets. Registered with prometheus-client, which asks for `collect`."""

    def __init__(self, store: Store, clock: Clock, calls: Calls, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._calls = calls
        self._limits = limits

    def collect(self) -> Iterator[Metric]:
        """Yield all figures as they stand now."""
        now = self._clock.now()
        jobs = self._store.jobs(now=now, limits=self._limits)
        yield from self._jobs(jobs)
        yield from self._machines(jobs)
        yield from self._counters(jobs)

    def _jobs(self, jobs: list[JobView]) -> Iterator[Metric]:
        states = Counter(str(job.state) for job in jobs)
        family = GaugeMetricFamily("gpujob_jobs", "Jobs by state.", labels=["state"])
        for state in State:
            family.add_metric([str(state)], states[str(state)])
        yield family

    def _machines(self, jobs: list[JobView]) -> Iterator[Metric]:
        unproven = GaugeMetricFamily(
            "gpujob_machines_not_proven_gone",
            "Machines that may exist: living, stopping, or past their end and still billing.",
            labels=["provider", "teardown"],
        )
        rate: Counter[str] = Counter()
        hourly: dict[str, Decimal] = {}
        held = (Teardown.LIVING, Teardown.STOPPING, Teardown.STILL_BILLING, Teardown.SUSPECT)
        counts: Counter[tuple[str, str]] = Counter()
        for job in jobs:
            for attempt in job.attempts:
                if attempt.teardown not in held:
                    continue
                counts[attempt.provider, str(attempt.teardown)] += 1
                rate[attempt.provider] += 1
                if attempt.teardown is not Teardown.SUSPECT and not attempt.price_is_notional:
                    known = hourly.get(attempt.provider, Decimal(0))
                    hourly[attempt.provider] = known + attempt.price_usd_per_hour
        for (provider, teardown), count in sorted(counts.items()):
            unproven.add_metric([provider, teardown], count)
        yield unproven
        dollars = GaugeMetricFamily(
            "gpujob_usd_per_hour", "What all machines together cost now.", labels=["provider"]
        )
        for provider in sorted(rate):
            dollars.add_metric([provider], float(hourly.get(provider, Decimal(0))))
        yield dollars

    def _counters(self, jobs: list[JobView]) -> Iterator[Metric]:
        api = CounterMetricFamily(
            "gpujob_api_calls",
            "Provider calls of this supervisor.",
            labels=["provider", "verb", "outcome"],
        )
        for labels, count in sorted(self._calls.all().items()):
            api.add_metric(labels, count)
        yield api
        retries = CounterMetricFamily(
            "gpujob_terminate_retries",
            "Terminate calls beyond the first of each machine.",
            labels=["provider"],
        )
        by_provider: Counter[str] = Counter()
        for job in jobs:
            for attempt in job.attempts:
                by_provider[attempt.provider] += max(0, attempt.terminate_calls - 1)
        for provider, count in sorted(by_provider.items()):
            retries.add_metric([provider], count)
        yield retries


def address(text: str) -> tuple[str, int]:
    """Return (host, port) of "127.0.0.1:9090"; raises Refused."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) < 65_536:
        raise Refused(
            f"--metrics {text}: not HOST:PORT", remedy="For example --metrics 127.0.0.1:9464"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def served(
    text: str, store: Store, clock: Clock, calls: Calls, limits: Limits = DEFAULT_LIMITS
) -> Iterator[int]:
    """Serve the figures for the time of the block; yields the port. Raises Refused."""
    host, port = address(text)
    registry = CollectorRegistry()
    registry.register(Collector(store, clock, calls, limits))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise Refused(f"--metrics {text}: {error.strerror or error}") from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)
