"""What the live screen draws of a training, read from its metrics file as that grows."""

from __future__ import annotations

from pathlib import Path

from orchestrator.finish import PACE_POINTS
from orchestrator.metrics import GpuUse, MetricsReader
from orchestrator.report_live import Curve

READS_AT_ONCE = 64  # a screen that opens late catches up in one go, bounded


class CurveReader:
    """Follows one `metrics.jsonl`; a missing file is an empty curve."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = MetricsReader()
        self._points: list[tuple[float, int]] = []

    def read(self) -> Curve:
        """Return the curve up to the file's last whole line."""
        for _ in range(READS_AT_ONCE):
            before = self._reader.latest
            if self._reader.read(self._path) == before:
                break
        latest = self._reader.latest
        if latest.step is not None and latest.step_at is not None:
            point = (latest.step_at, latest.step)
            if not self._points or self._points[-1] != point:
                self._points.append(point)
        del self._points[:-PACE_POINTS]
        use, used, total = gpu_figures(latest.gpus)
        losses = tuple(loss for _, loss in self._reader.curve.points)
        return Curve(tuple(self._points), losses, use, used, total)


def gpu_figures(gpus: tuple[GpuUse, ...]) -> tuple[float | None, float | None, float | None]:
    """Return (mean use in percent, GiB used, GiB there) over all GPUs; None: not told."""
    use = [gpu.util_percent for gpu in gpus if gpu.util_percent is not None]
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    total = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    return (
        sum(use) / len(use) if use else None,
        sum(used) / 1024 if used else None,
        sum(total) / 1024 if total else None,
    )
