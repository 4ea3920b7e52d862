"""The state of gpujob, opened for a command: home, store, clock, and the streams to print on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from orchestrator.clock import SystemClock
from orchestrator.report_text import Screen, screen_of

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.ledger import By, Total
    from orchestrator.locate import Located
    from orchestrator.store import Store
    from orchestrator.store_rows import Recorded, Stray
    from orchestrator.views import JobView

Waiting = Callable[[str, Callable[[str], bool]], list[tuple[str, str]]]


class Reader(Protocol):
    """What a reading command asks of the store; `Store` and `QuickStore` both have it."""

    def jobs(self, *, now: float, open_only: bool = False) -> list[JobView]:
        """Return the jobs that are not hidden, newest first."""

    def job(self, job_id: str, *, now: float) -> JobView:
        """Return one job as it stands at `now`."""

    def find_job(self, word: str) -> str:
        """Return the id that a person's word names."""

    def events(self, job_id: str, *, after: int = 0) -> list[Recorded]:
        """Return a job's journal."""

    def totals(self, by: By = "job", *, now: float) -> list[Total]:
        """Return what was spent."""

    def strays(self) -> list[Stray]:
        """Return machines that no job explains."""


StoreT_co = TypeVar("StoreT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class State(Generic[StoreT_co]):
    """What a command works with. `screen` is stdout's."""

    home: Home
    store: StoreT_co
    waiting: Waiting
    clock: SystemClock
    screen: Screen
    sweep: bool  # whether an orphaned job may have a daemon started for it

    def now(self) -> float:
        """Return UNIX seconds."""
        return self.clock.now()


if TYPE_CHECKING:
    Looked = State[Reader]  # for commands that only read
    Opened = State[Store]  # for those that write


def _located() -> tuple[Home, Located]:
    printed[0] = 0
    from orchestrator.home import open_home
    from orchestrator.locate import locate

    located = locate(os.environ, Path.cwd())
    return open_home(located.home, database_url=located.database_url), located


def _afterwards(home: Home, located: Located) -> None:
    """Have the account swept, beside the command that ends here; never its failure."""
    from orchestrator.daemon import sweep_afterwards

    with suppress(OSError):
        sweep_afterwards(home.root, located, SystemClock().now())


@dataclass(frozen=True, slots=True)
class Place:
    """Where gpujob's state would be, without the store: for a command that also serves without."""

    home: Home
    screen: Screen
    now: float


def placed() -> Place:
    """Return the home as it is. Raises HomeRefused."""
    home, _ = _located()
    return Place(home, screen_of(sys.stdout, os.environ), SystemClock().now())


@contextmanager
def looked() -> Iterator[Looked]:
    """Yield the state for reading, by the quick way where there is one.

    Raises HomeRefused, StoreError and Refused, whose words are fit to show.
    """
    from orchestrator.store_quick import open_quick

    home, located = _located()
    quick = open_quick(home.database_url)
    if quick is None:
        with opened() as state:
            yield state
        return
    try:
        screen = screen_of(sys.stdout, os.environ)
        yield State(home, quick, quick.waiting, SystemClock(), screen, located.sweep)
    finally:
        quick.close()
        _afterwards(home, located)


@contextmanager
def opened() -> Iterator[Opened]:
    """Yield the state for reading and writing. Raises HomeRefused and StoreError."""
    from orchestrator.store import Store

    home, located = _located()
    store = Store.open(home.database_url)
    try:
        screen = screen_of(sys.stdout, os.environ)
        yield State(home, store, store.journal.waiting, SystemClock(), screen, located.sweep)
    finally:
        store.close()
        _afterwards(home, located)


printed = [0]  # how many answers went to stdout: one --json command gives one document


def out(lines: list[str]) -> None:
    """Print data: stdout, one write."""
    if lines:
        printed[0] += 1
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def err(line: str) -> None:
    """Print a word beside the data: stderr. A closed stderr is no reason to fail."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        pass
