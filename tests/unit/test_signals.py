"""Signals become facts for a loop to read, and are put back afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.signals import Signals

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def heeded():
    """Undo what a runner in the background (`&`, nohup) ignores."""
    wanted: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # the handler runs at the next bytecode


def test_interrupts_are_counted_and_the_rest_remembered():
    with Signals() as signals:
        _send(signal.SIGINT)
        _send(signal.SIGINT)
        assert signals.interrupts == 2
        assert signals.ended_by is None
        _send(signal.SIGTERM)
        assert signals.ended_by == signal.SIGTERM
        _send(signal.SIGHUP)
        assert signals.ended_by == signal.SIGHUP


def test_former_handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Signals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_what_nohup_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            _send(signal.SIGHUP)
            assert signals.ended_by is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_ends_the_wait():
    with Signals() as signals:
        signals.wake()
        began = time.monotonic()
        signals.wait(30.0)
        assert time.monotonic() - began < 25.0


def test_only_an_open_question_is_interrupted():
    with Signals() as signals:
        _send(signal.SIGINT)
        signals.asking = True
        with pytest.raises(KeyboardInterrupt):
            _send(signal.SIGINT)
        signals.asking = False
        assert signals.interrupts == 2


AT_EVERY_LINE = """
import os, signal, sys, threading
from orchestrator import signals as room

sent = []

def trace(frame, event, _):
    if frame.f_code.co_filename not in (room.__file__, threading.__file__):
        return None
    if event == "line":
        sent.append(frame.f_lineno)
        os.kill(os.getpid(), signal.SIGHUP)  # its handler runs before this returns
    return trace

with room.Signals() as signals:
    sys.settrace(trace)
    signals.wait(0.05)
    signals.wake()
    signals.wait(0.05)
    sys.settrace(None)
    assert signals.ended_by == signal.SIGHUP
print(len(sent))
"""


def test_a_signal_may_come_at_any_line_of_the_wait():
    """A lock that the interrupted code holds, taken in the handler, would hang the command."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EVERY_LINE], cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 4
