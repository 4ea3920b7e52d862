"""What is known of a running training: the newest figures and the curve of its loss, bounded.

Two sources of one shape: `metrics.jsonl` (the plugin's exact floats, and the agent's GPU samples),
and, for an image or configuration without the plugin, the lines that transformers prints into the
log. Both are untrusted bytes: whatever is not understood is counted and skipped.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

LINE_BYTES = 1 << 16  # a record has some 500
READ_BYTES = 1 << 23  # of a file, in one call
RATE_RECORDS = 10  # that tokens a second are told over: one step alone tells of the machine's mood
CURVE_POINTS = 512  # beyond that every second one goes: a terminal has 200 columns

# Names by transformers and Axolotl -> ours.
FIGURES = {
    "loss": "loss",
    "eval_loss": "eval_loss",
    "train_loss": "train_loss",
    "train_runtime": "train_runtime_s",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "epoch": "epoch",
    "tokens/train_per_sec_per_gpu": "tokens_per_s",
    "tokens_per_s": "tokens_per_s",
}


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, as nvidia-smi last saw it; None where its driver does not tell."""

    util_percent: float | None
    memory_used_mib: float | None
    memory_total_mib: float | None
    power_w: float | None
    temperature_c: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The newest figures. Times are UNIX seconds of the instance's clock; None is not known.

    Figures that are not finite are None; `diverged_at_step` is the first such loss or gradient's.
    """

    step: int | None = None
    max_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    eval_loss: float | None = None
    best_eval_loss: float | None = None
    best_eval_step: int | None = None
    train_loss: float | None = None  # the mean over the run, known at its end
    train_runtime_s: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    tokens_per_s: float | None = None  # of the whole machine, over the newest records
    at: float | None = None  # of the newest record
    step_at: float | None = None  # when `step` last rose
    saved_step: int | None = None  # newest checkpoint complete on the instance's disk
    ended: bool = False
    diverged_at_step: int | None = None
    gpus: tuple[GpuUse, ...] = ()
    gpus_at: float | None = None


class MetricsReader:
    """Reads metrics.jsonl as it grows; `feed` takes bytes split anywhere."""

    def __init__(self, *, gpu_count: int = 1) -> None:
        self.latest = Metrics()
        self.curve = Curve()
        self._rates = _Rates(gpu_count)
        self.evaluations = Curve()
        self.skipped = 0  # lines that were not understood
        self._lines = _Lines(b"\n")
        self._offset = 0

    @property
    def offset(self) -> int:
        """Return how many bytes of the file were read."""
        return self._offset

    def read(self, path: Path) -> Metrics:
        """Feed what a file has gained, at most READ_BYTES of it, and return `latest`."""
        self._offset += _feed_file(self, path, self._offset)
        return self.latest

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        for line in self._lines.feed(data):
            event = _object(line)
            if event is None:
                self.skipped += 1
            else:
                self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, at = event.get("event"), _real(event.get("at"))
        if kind == "gpu":
            gpus = event.get("gpus")
            uses = tuple(map(_gpu, gpus[:64])) if isinstance(gpus, list) else ()
            self.latest = replace(self.latest, gpus=uses, gpus_at=at)
            return
        step, max_steps = _count(event.get("step")), _count(event.get("max_steps"))
        latest = _at_step(self.latest, step, at)
        if max_steps:
            latest = replace(latest, max_steps=max_steps)
        if kind == "save":
            latest = replace(latest, saved_step=step)
        elif kind == "train_end":
            latest = replace(latest, ended=True)
        else:
            latest = _with_figures(latest, event, self._rates)
        self.latest = latest
        if kind == "log" and "loss" in event and step is not None and latest.loss is not None:
            self.curve.add(step, latest.loss)
        if "eval_loss" in event and step is not None and latest.eval_loss is not None:
            self.evaluations.add(step, latest.eval_loss)


# A progress bar without a description, at the start of a line: the training's or an evaluation's.
_BAR = re.compile(rb"^\s*\d{1,3}%\|[^|]{0,400}\|\s*(\d{1,9})/(\d{1,9}) \[")
_RECORD = re.compile(rb"\{'[^{}]{1,4000}\}")
_FIGURE = re.compile(rb"'([^']{1,60})': '?(-?[0-9.eE+-]{1,30}|nan|-?inf)\b")
_STARTED = b"Starting trainer..."


class LogMetricsReader:
    """Reads the same from train.log: four digits, and the step from the progress bar."""

    def __init__(self, *, gpu_count: int = 1) -> None:
        self.latest = Metrics()
        self.curve = Curve()
        self._rates = _Rates(gpu_count)
        self._lines = _Lines(b"\r\n")
        self._started = False
        self._bar = 0  # the step that the training's bar showed last
        self._recorded = 0  # the step of the last record with a loss
        self._offset = 0

    def read(self, path: Path) -> Metrics:
        """Feed what a file has gained, at most READ_BYTES of it, and return `latest`."""
        self._offset += _feed_file(self, path, self._offset)
        return self.latest

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        for line in self._lines.feed(data):
            if not self._started:
                self._started = _STARTED in line
                continue
            if bar := _BAR.match(line):
                self._take_bar(int(bar[1]), int(bar[2]))
            for record in _RECORD.findall(line):
                self._take_record(record)

    def _take_bar(self, step: int, steps: int) -> None:
        if self.latest.max_steps is None and steps:
            self.latest = replace(self.latest, max_steps=steps)  # the first bar is the training's
        if steps != self.latest.max_steps:
            return
        if step < self._bar:  # a training resumed within the same log
            self._recorded = 0
        self._bar = step
        self.latest = _at_step(self.latest, max(step, self._recorded), None)

    def _take_record(self, record: bytes) -> None:
        figures = {
            name.decode("utf-8", "replace"): value for name, value in _FIGURE.findall(record)
        }
        if not figures.keys() & {"loss", "eval_loss", "train_loss"}:
            return
        if "loss" in figures:  # the bar is redrawn ten times a second at most, records are not
            self._recorded = max(self._bar, self._recorded + 1)
            self.latest = _at_step(self.latest, self._recorded, None)
        self.latest = _with_figures(self.latest, figures, self._rates)
        if "train_loss" in figures:
            self.latest = replace(self.latest, ended=True)
        if "loss" in figures and self.latest.loss is not None:
            self.curve.add(self._recorded, self.latest.loss)


def better(metrics: Metrics, from_log: Metrics) -> Metrics:
    """Return the plugin's figures where it wrote any, else the log's, with the same GPUs."""
    if metrics.step is not None:
        return metrics
    return replace(from_log, gpus=metrics.gpus, gpus_at=metrics.gpus_at)


class Curve:
    """A loss curve of bounded length: when it is full, every second point goes."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._stride = 1
        self._seen = 0

    def add(self, step: int, loss: float) -> None:
        """Take a point; a step reached again (a resumed training) replaces the old ones."""
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        if self._seen % self._stride == 0:
            self.points.append((step, loss))
        self._seen += 1
        if len(self.points) >= CURVE_POINTS:
            self.points = self.points[::2]
            self._stride *= 2


class _Rates:
    """Tokens a second over the newest records: the harmonic mean, as all tokens by all seconds."""

    def __init__(self, gpu_count: int) -> None:
        self._gpu_count = gpu_count
        self._newest: deque[float] = deque(maxlen=RATE_RECORDS)

    def smoothed(self, rate: float | None, *, of_all_gpus: bool) -> float | None:
        """Return the rate with one more record; None before there is one above 0."""
        if rate is not None and rate > 0:
            self._newest.append(rate if of_all_gpus else rate * self._gpu_count)
        return len(self._newest) / sum(1 / one for one in self._newest) if self._newest else None


class _Lines:
    """Bytes in, whole lines out; one that is too long is dropped whole."""

    def __init__(self, ends: bytes) -> None:
        self._split = re.compile(b"[" + ends + b"]")
        self._rest = b""
        self._too_long = False

    def feed(self, data: bytes) -> list[bytes]:
        *lines, rest = self._split.split(self._rest + data)
        if lines and self._too_long:
            lines[0], self._too_long = b"", False
        if len(rest) > LINE_BYTES:
            rest, self._too_long = b"", True
        self._rest = rest
        return [line for line in lines if line.strip() and len(line) <= LINE_BYTES]


class _Feedable(Protocol):
    def feed(self, data: bytes) -> None: ...


def _feed_file(reader: _Feedable, path: Path, offset: int) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(READ_BYTES)
    reader.feed(data)
    return len(data)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _with_figures(latest: Metrics, event: Mapping[str, Any], rates: _Rates) -> Metrics:
    changes: dict[str, Any] = {}
    for theirs, ours in FIGURES.items():
        if theirs in event:
            changes[ours] = _real(event[theirs])
    if "tokens_per_s" in changes:
        rate = changes["tokens_per_s"]
        changes["tokens_per_s"] = rates.smoothed(rate, of_all_gpus="tokens_per_s" in event)
    diverged = any(name in event and changes[name] is None for name in ("loss", "grad_norm"))
    if diverged and latest.diverged_at_step is None:
        changes["diverged_at_step"] = latest.step
    loss = changes.get("eval_loss")
    if loss is not None and (latest.best_eval_loss is None or loss < latest.best_eval_loss):
        changes |= {"best_eval_loss": loss, "best_eval_step": latest.step}
    return replace(latest, **changes)


def _at_step(latest: Metrics, step: int | None, at: float | None) -> Metrics:
    if at is not None:
        latest = replace(latest, at=at)
    if step is not None and step != latest.step:
        return replace(latest, step=step, step_at=at)
    return latest


def _gpu(figures: Any) -> GpuUse:
    known = figures if isinstance(figures, dict) else {}
    return GpuUse(*(_real(known.get(name)) for name in GpuUse.__slots__))


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _real(value: Any) -> float | None:
    """Return a finite float of a number or of its text, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
