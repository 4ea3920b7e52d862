"""Processes that wait at a line and start together."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def race(racers: Sequence[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Let them go once each has said ready; return their outputs, all having exited 0."""
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * len(racers), said
    return said
