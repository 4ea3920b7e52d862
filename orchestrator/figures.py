"""The newest figures of a training, read from the pulled files as they grow."""

from __future__ import annotations

from pathlib import Path

from orchestrator.metrics import LogMetricsReader, Metrics, MetricsReader, better
from orchestrator.store_rows import Progress

MIB_PER_GIB = 1024.0


class Figures:
    """Reads both files of one attempt; the log only where the plugin wrote nothing."""

    def __init__(self, *, gpu_count: int) -> None:
        count = max(1, gpu_count)  # a CPU offer has no GPU, and yet a throughput
        self._metrics = MetricsReader(gpu_count=count)
        self._log = LogMetricsReader(gpu_count=count)
        self.peak_gib: float | None = None  # of one GPU's memory, as far as it was met

    @property
    def saved_step(self) -> int | None:
        """Return the step of the newest checkpoint that is whole on the instance's disk."""
        return self._metrics.latest.saved_step

    def read(self, metrics: Path, log: Path, now: float) -> Progress | None:
        """Return what is known now; None where nothing is."""
        found = self._metrics.read(metrics) if metrics.exists() else Metrics()
        if found.step is None and log.exists():
            found = better(found, self._log.read(log))
        progress = _progress(found, now)
        if progress is not None and progress.gpu_used_gib is not None:
            self.peak_gib = max(self.peak_gib or 0.0, progress.gpu_used_gib)
        return progress


def _progress(found: Metrics, now: float) -> Progress | None:
    if found == Metrics():
        return None
    used = [g.memory_used_mib for g in found.gpus if g.memory_used_mib is not None]
    busy = [g.util_percent for g in found.gpus if g.util_percent is not None]
    return Progress(
        at=now,
        step=found.step,
        max_steps=found.max_steps,
        epoch=found.epoch,
        loss=found.loss,
        eval_loss=found.eval_loss,
        learning_rate=found.learning_rate,
        grad_norm=found.grad_norm,
        tokens_per_s=found.tokens_per_s,
        gpu_util_percent=sum(busy) / len(busy) if busy else None,
        gpu_used_gib=max(used) / MIB_PER_GIB if used else None,
    )
