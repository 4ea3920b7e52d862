"""The state of gpujob, opened for a command: home, store, clock, and the streams to print on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.clock import SystemClock
from orchestrator.report_text import Screen, screen_of

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.store import Store


@dataclass(frozen=True, slots=True)
class Opened:
    """What a reading command works with. `screen` is stdout's."""

    home: Home
    store: Store
    clock: SystemClock
    screen: Screen
    sweep: bool  # whether an orphaned job may have a daemon started for it

    def now(self) -> float:
        """Return UNIX seconds."""
        return self.clock.now()


@contextmanager
def opened() -> Iterator[Opened]:
    """Yield the state named by the environment; closes the store afterwards.

    Raises HomeRefused and StoreError, whose words are fit to show.
    """
    from orchestrator.home import open_home
    from orchestrator.locate import locate
    from orchestrator.store import Store

    located = locate(os.environ, Path.cwd())
    home = open_home(located.home, database_url=located.database_url)
    store = Store.open(home.database_url)
    try:
        yield Opened(home, store, SystemClock(), screen_of(sys.stdout, os.environ), located.sweep)
    finally:
        store.close()


def out(lines: list[str]) -> None:
    """Print data: stdout, one write."""
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def err(line: str) -> None:
    """Print a word beside the data: stderr. A closed stderr is no reason to fail."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        pass
