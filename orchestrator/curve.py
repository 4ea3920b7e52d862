"""The metrics of a job as the screen needs them: read as the file grows, kept in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.report_live import Curve

KEPT_POINTS = 512  # of progress and of losses: more than a screen has columns
CHUNK_BYTES = 1 << 20
LINE_MAX_BYTES = 1 << 20  # a longer line is no metric of ours


class CurveReader:
    """Follows one `metrics.jsonl`. A file that shrank (a cut-back after a crash) is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._points: list[tuple[float, int]] = []
        self._losses: list[float] = []
        self._gpu: tuple[float | None, float | None, float | None] = (None, None, None)

    def read(self) -> Curve:
        """Return the curve up to the last whole line; a missing file is an empty curve."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    self.__init__(self._path)  # type: ignore[misc]
                file.seek(self._offset)
                while chunk := file.read(CHUNK_BYTES):
                    self._offset += len(chunk)
                    self._feed(chunk)
        except OSError:
            pass
        util, used, total = self._gpu
        return Curve(tuple(self._points), tuple(self._losses), util, used, total)

    def _feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_MAX_BYTES:
            self._rest = b""
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        step, at = entry.get("step"), entry.get("at")
        if entry.get("event") == "gpu":
            self._gpu = (
                number_of(entry.get("util_percent")),
                number_of(entry.get("used_gib")),
                number_of(entry.get("total_gib")),
            )
        elif isinstance(step, int) and isinstance(at, int | float):
            self._points.append((float(at), step))
            loss = number_of(entry.get("loss"))
            if loss is not None:
                self._losses.append(loss)
            del self._points[:-KEPT_POINTS], self._losses[:-KEPT_POINTS]


def number_of(value: Any) -> float | None:
    """Return a metric as a float; the strings "nan", "inf" and "-inf" are what the plugin writes."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float) or value in ("nan", "inf", "-inf"):
        return float(value)
    return None
