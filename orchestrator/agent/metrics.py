"""metrics.jsonl read back, and the GPU's figures written into it."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
from typing import Iterator, NamedTuple

from orchestrator.agent.files import Document, append_line
from orchestrator.agent.procs import steady_s

METRICS_READ_BYTES = 512 << 20  # two million steps
METRICS_LINE_BYTES = 64 << 10
RECOVERED_STEPS = 3
GPU_EVERY_S = 15.0
GPU_TIMEOUT_S = 10.0
GPU_FIELDS = ("util_percent", "memory_used_mib", "memory_total_mib", "power_w", "temperature_c")
GPU_QUERY = (
    "nvidia-smi",
    "--query-gpu=utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu",
    "--format=csv,noheader,nounits",
)


class MetricsFacts(NamedTuple):
    """What the plugin saw of the training."""

    begun: bool
    ended: bool  # train_end came
    last_step: int | None
    max_steps: int | None
    logged: int  # records with a loss
    bad_step: int | None  # the first step whose loss or gradient was NaN or infinite
    recovered: bool  # under fp16, where the scaler skips such steps, the last ones are finite
    all_zero: bool  # loss and gradient were exactly 0 in every record


def read_metrics(path: str) -> MetricsFacts:
    """Return the facts; unreadable lines are skipped, an absent file has begun nothing."""
    begun = ended = fp16 = False
    last_step = max_steps = bad_step = None
    logged = zero = finite_since = 0
    for event in _events(path):
        kind, step = event.get("event"), event.get("step")
        if kind not in ("train_begin", "log", "evaluate", "save", "train_end"):
            continue
        if type(step) is int:
            last_step = step if last_step is None else max(last_step, step)
        if type(event.get("max_steps")) is int:
            max_steps = event["max_steps"]
        if kind == "train_begin":
            begun, fp16 = True, event.get("fp16") is True
        elif kind == "train_end":
            ended = True
        elif kind == "log" and "loss" in event:
            logged += 1
            figures = [event["loss"], event.get("grad_norm")]
            if all(finite(figure) for figure in figures):
                finite_since += 1
                zero += all(figure in (0, None) for figure in figures)
            else:
                finite_since = 0
                bad_step = bad_step if bad_step is not None else step
    recovered = fp16 and finite_since >= RECOVERED_STEPS
    all_zero = logged > 0 and zero == logged
    return MetricsFacts(begun, ended, last_step, max_steps, logged, bad_step, recovered, all_zero)


def _events(path: str) -> Iterator[Document]:
    """Yield the JSON objects of the file's whole lines."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        left = METRICS_READ_BYTES
        while left > 0:
            line = file.readline(METRICS_LINE_BYTES)
            left -= len(line)
            if not line.endswith(b"\n"):
                if not line:
                    return
                continue
            try:
                event = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def finite(figure: object) -> bool:
    """Return whether a loss or gradient is a number; "nan" and "inf" come as strings."""
    if figure is None:
        return True
    try:
        return math.isfinite(float(figure))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


class GpuSampler:
    """Runs nvidia-smi now and then, never waits for it, and appends what it says."""

    def __init__(self, metrics_path: str) -> None:
        self.path = metrics_path
        self.next_at = steady_s()
        self.running: subprocess.Popen[bytes] | None = None
        self.absent = False
        self.gpus: list[dict[str, float | None]] = []  # as last told
        self.gpus_at = 0.0

    def pids(self) -> list[int]:
        """Return the processes of ours that are no part of the training."""
        return [self.running.pid] if self.running else []

    def tick(self) -> None:
        """Begin a sample, or end one; call it about once a second."""
        now = steady_s()
        if self.absent or (self.running is None and now < self.next_at):
            return
        if self.running is None:
            self.next_at = now + GPU_EVERY_S
            try:
                self.running = subprocess.Popen(
                    GPU_QUERY,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                self.absent = True  # no NVIDIA GPU here
            return
        if now > self.next_at - GPU_EVERY_S + GPU_TIMEOUT_S:
            self.running.kill()

    def ended(self, pid: int, status: int) -> None:
        """Take the result of a sample that was reaped."""
        process = self.running
        if process is None or process.pid != pid:
            return
        self.running, process.returncode = None, status
        text = ""
        if process.stdout is not None:
            with process.stdout as pipe:
                text = pipe.read(1 << 16).decode("ascii", "replace")
        gpus = [_gpu(line) for line in text.splitlines()[:64]] if status == 0 else []
        if gpus:
            self.gpus, self.gpus_at = gpus, steady_s()
            with contextlib.suppress(OSError):
                append_line(self.path, {"event": "gpu", "at": time.time(), "gpus": gpus})


def _gpu(line: str) -> dict[str, float | None]:
    """Return one GPU's figures; None where the driver does not tell."""
    figures = {}
    for name, text in zip(GPU_FIELDS, line.split(",")):
        try:
            value: float | None = float(text)
        except ValueError:
            value = None
        figures[name] = value if value is not None and math.isfinite(value) else None
    return figures
