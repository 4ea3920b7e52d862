"""Signals as facts to be read by a loop: armed before a launch, put back afterwards.

Nothing is done inside a handler but counting and waking; only while a question is open does Ctrl-C
raise, since Python would otherwise go on waiting for the answer. A handler runs between any two
lines of the main thread, so it may take no lock that these hold: SimpleQueue's put is the one way
to wake that Python documents as fit for it. An Event is not: its `set` hangs inside its `wait`.
"""

from __future__ import annotations

import queue
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Counts Ctrl-C, remembers TERM and HUP. A signal that was ignored (nohup) stays ignored."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended_by: int | None = None
        self.asking = False
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Arm the handlers; only the main thread may."""
        for number in HEEDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._heed)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the former handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def wait(self, seconds: float) -> None:
        """Block for that long, or until a signal or `wake`."""
        with suppress(queue.Empty):
            self._woken.get(timeout=seconds)
            for _ in range(self._woken.qsize()):  # several wakes are one
                self._woken.get_nowait()

    def wake(self) -> None:
        """End the present `wait`; from any thread."""
        self._woken.put(None)

    def _heed(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupts += 1
        else:
            self.ended_by = number
        self._woken.put(None)
        if self.asking:
            raise KeyboardInterrupt
