"""Candidates that were refused a while ago: not offered again before they have cooled down.

Kept in one small file of the home, for the process that asks for offers is seldom the one that
launches. Losing it costs one refused call.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from providers.clock import Clock


class Cooling:
    """See the module. file None: in memory only. Safe for several processes: the last one wins."""

    def __init__(self, file: Path | None, clock: Clock, cool_s: float = 300.0) -> None:
        self._cool_s = cool_s
        self._file = file
        self._clock = clock
        self._memory: dict[str, float] = {}

    def refuse(self, key: str) -> None:
        """Leave a candidate out for a while."""
        kept = {**self._read(), key: self._clock.now() + self._cool_s}
        self._memory = kept
        if self._file is None:
            return
        part = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            part.write_text(json.dumps(kept), encoding="utf-8")
            part.replace(self._file)
        except OSError:
            part.unlink(missing_ok=True)

    def refused(self) -> frozenset[str]:
        """Return the keys that are left out now."""
        return frozenset(self._read())

    def _read(self) -> dict[str, float]:
        known = dict(self._memory)
        try:
            found = json.loads(self._file.read_text(encoding="utf-8")) if self._file else {}
        except (OSError, ValueError):
            found = {}
        if isinstance(found, dict):
            known |= {k: v for k, v in found.items() if isinstance(v, (int, float))}
        now = self._clock.now()
        return {key: until for key, until in known.items() if now < until <= now + self._cool_s}
