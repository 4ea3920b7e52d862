"""The samples of the watchdog, taken on the instance: files, processes, GPUs. No judgement."""

from __future__ import annotations

import contextlib
import json
import os

from orchestrator.agent.files import Document, free_bytes, size_of
from orchestrator.agent.metrics import GpuSampler, finite
from orchestrator.agent.procs import descendants, process_table, stat_fields
from orchestrator.agent.watchdog import (
    AFTER,
    EXPLODED_FACTOR,
    EXPLODED_MORE,
    FIRST_RECORDS,
    SETUP,
    TRAIN,
    Sample,
)

RECORDS_BYTES = 1 << 20  # of metrics.jsonl, in one look
GPU_OLD_S = 60.0  # figures of nvidia-smi older than this are not known any more
CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Records:
    """What metrics.jsonl tells of the loss, read as it grows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.phase = SETUP
        self.step: int | None = None
        self.marks = 0
        self.fp16 = False
        self.bad = 0
        self.high = 0
        self.first: list[float] = []

    def read(self) -> None:
        """Take the whole lines that came since."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(RECORDS_BYTES)
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) == RECORDS_BYTES:
                whole = len(data)  # a line beyond all bounds: skipped
            self.offset += whole
            for line in data[:whole].splitlines():
                try:
                    event = json.loads(line.decode("utf-8", "replace"))
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict):
                    self.take(event)

    def take(self, event: Document) -> None:
        """Take one record."""
        kind = event.get("event")
        if kind not in ("train_begin", "log", "evaluate", "save", "train_end"):
            return
        self.marks += 1
        if type(event.get("step")) is int:
            self.step = event["step"]
        if kind == "train_begin":
            self.phase, self.fp16 = TRAIN, event.get("fp16") is True
        elif kind == "train_end":
            self.phase = AFTER
        elif kind == "log" and "loss" in event:
            self.take_loss(event["loss"], event.get("grad_norm"))

    def take_loss(self, loss: object, gradient: object) -> None:
        """Count records that are no numbers, and those far above the beginning."""
        if not (finite(loss) and finite(gradient)):
            self.bad += 1
            return
        self.bad = 0
        value = float(loss)  # type: ignore[arg-type]
        if len(self.first) < FIRST_RECORDS:
            self.first.append(value)
            return
        begun = sorted(self.first)[FIRST_RECORDS // 2]
        exploded = value > EXPLODED_FACTOR * abs(begun) + EXPLODED_MORE
        self.high = self.high + 1 if exploded else 0


class Gauge:
    """Takes samples of one training."""

    def __init__(self, folder: str, log: str, metrics: str, sampler: GpuSampler) -> None:
        self.folder = folder
        self.log = log
        self.records = Records(metrics)
        self.sampler = sampler

    def look(self, root: int, now: float) -> Sample:
        """Return how things stand now; `root` is the process whose descendants train."""
        self.records.read()
        records = self.records
        cpu_s, moved, dead = usage(root, self.sampler.pids())
        sample = Sample(
            at=now,
            phase=records.phase,
            step=records.step,
            marks=records.marks,
            log_bytes=size_of(self.log),
            has_gpu=not self.sampler.absent,
            cpu_s=cpu_s,
            moved_bytes=moved,
            dead_workers=dead,
            free_bytes=free_bytes(self.folder),
            bad_records=records.bad,
            high_records=records.high,
            fp16=records.fp16,
        )
        return with_gpus(sample, self.sampler, now)


def with_gpus(sample: Sample, sampler: GpuSampler, now: float) -> Sample:
    """Return the sample with the GPUs' newest figures, if they are not too old."""
    if not sampler.gpus or now - sampler.gpus_at > GPU_OLD_S:
        return sample
    busy = [one["util_percent"] for one in sampler.gpus if one["util_percent"] is not None]
    used = [one["memory_used_mib"] for one in sampler.gpus if one["memory_used_mib"] is not None]
    return sample._replace(
        gpu_count=len(sampler.gpus),
        gpu_percent=max(busy) if busy else None,
        gpu_idlest_percent=min(busy) if busy else None,
        gpu_used_mib=max(used) if used else None,
    )


def usage(root: int, spare: list[int]) -> tuple[float | None, int | None, int]:
    """Return (CPU seconds, bytes read and written, dead and unreaped) of the descendants.

    None where the system does not tell: only Linux has it in /proc.
    """
    if not os.path.isdir("/proc/self"):
        return None, None, 0
    table = process_table()
    living = descendants(root, table) - set(spare)
    ticks = moved = 0
    told = False
    for pid in living:
        fields = stat_fields(pid)
        if fields:
            ticks += sum(int(field) for field in fields[11:15])  # utime, stime, and the children's
        with contextlib.suppress(OSError, ValueError), open("/proc/%d/io" % pid, "rb") as file:
            lines = file.read().split(b"\n")
            moved += int(lines[0].split()[1]) + int(lines[1].split()[1])  # rchar, wchar
            told = True
    dead = sum(1 for one in table.values() if one.zombie and one.parent in living)
    return ticks / CLOCK_TICKS, moved if told or not living else None, dead
