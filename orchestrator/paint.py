"""Painting a live screen: on a terminal over itself, elsewhere as lines. The reports' only effect.

A terminal that is gone (closed window, broken pipe) ends the painting, never the job.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TextIO

from orchestrator.report_text import ACCENT, RESET, Screen, cells, clip

UP_AND_CLEAR = "\x1b[{rows}F\x1b[J"  # to the start of the line `rows` above, erase to the end
CLEAR_LINE = "\x1b[K"
DEFAULT_ROWS = 24


def shown(line: str) -> int:
    """Return how many columns a line takes on the terminal; accents take none."""
    return cells(line.replace(ACCENT, "").replace(RESET, ""))


class Painter:
    """Owns one stream. Safe to call from several threads; never raises for a dead terminal."""

    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self._stream = stream
        self._screen = screen
        self._painted = 0  # lines of the screen that the next one replaces
        self._last: list[str] = []
        self._lock = threading.RLock()
        self.dead = False

    def paint(self, lines: Sequence[str]) -> None:
        """Show these lines instead of the last ones. Only for a terminal."""
        with self._lock:
            if self.dead:
                return
            shown = [self._fit(line) for line in lines][-self._rows() :]
            if shown == self._last:
                return
            body = "".join(f"{line}{CLEAR_LINE}\n" for line in shown)
            self._write(self._erase() + body)
            self._painted, self._last = len(shown), shown

    def keep(self, lines: Sequence[str]) -> None:
        """Print lines that stay, above the live screen."""
        with self._lock:
            if self.dead:
                return
            body = "".join(f"{line}\n" for line in lines)
            live, self._last = self._last, []
            self._write(self._erase() + body)
            self._painted = 0
            if live:
                self.paint(live)

    def settle(self) -> None:
        """Leave what is painted where it is: later text comes below."""
        with self._lock:
            self._painted, self._last = 0, []

    def clear(self) -> None:
        """Take the live screen away."""
        with self._lock:
            if not self.dead:
                self._write(self._erase())
            self._painted, self._last = 0, []

    # A stream's face, so that log handlers write above the live screen.
    def write(self, text: str) -> int:
        """Keep each line of `text`."""
        lines = text.splitlines()
        if lines:
            self.keep(lines)
        return len(text)

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def fit(self, screen: Screen) -> None:
        """Go on at another width: the window was resized."""
        with self._lock:
            if screen.width != self._screen.width:
                # What stands there was wrapped anew by the terminal: count its rows again.
                width = max(1, screen.width)
                self._painted = sum(max(1, -(-shown(line) // width)) for line in self._last)
                self._last = [*self._last, ""]  # so that the next screen counts as another one
            self._screen = screen

    def _erase(self) -> str:
        return UP_AND_CLEAR.format(rows=self._painted) if self._painted else ""

    def _fit(self, line: str) -> str:
        # A wrapped line would make the count of rows wrong, and leave rubbish behind.
        width = self._screen.width
        if "\x1b" in line:  # accent: the codes take no room
            return line
        return line if cells(line) <= width else clip(line, width)

    def _rows(self) -> int:
        try:
            return max(4, os.get_terminal_size(self._stream.fileno()).lines - 1)
        except (OSError, ValueError):
            return DEFAULT_ROWS - 1

    def _write(self, text: str) -> None:
        if not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self.dead = True
