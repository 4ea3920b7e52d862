"""Traces of trainings for the watchdog: a file of stretches becomes the samples of its agent.

First line: what it is, the limits, and what must come of it. Each line after it is a stretch:
`for_s` long, with rates (`cpu_per_s`, `moved_per_s`, `log_per_s`, `step_every_s`) and the figures
that hold in it; `gap_s` is a time in which nobody looked. In watch_recorded/ each line after the
first is a sample as the agent's gauge took it of a real process (record.py there).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.gauge import Records
from orchestrator.agent.watchdog import Sample, Watch

CASES = Path(__file__).parents[1] / "cases"
NAMES = sorted(
    f"{folder}/{path.stem}"
    for folder in ("watch_traces", "watch_recorded")
    for path in (CASES / folder).glob("*.jsonl")
)
PLAIN = (
    "phase", "has_gpu", "gpu_percent", "gpu_idlest_percent", "gpu_used_mib", "gpu_count",
    "dead_workers", "free_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """One file."""

    about: str
    watch: Watch
    expect: dict[str, Any]
    stretches: list[Any]
    recorded: bool = False

    def samples(self, start: float = 1000.0) -> Iterator[Sample]:
        """Yield the samples in order, the first at `start`."""
        if self.recorded:
            for row in self.stretches:
                yield Sample(*row)._replace(at=start + row[0] - self.stretches[0][0])
            return
        at, cpu, moved, log = start, 0.0, 0.0, 0.0
        records = Records("")
        for stretch in self.stretches:
            if "gap_s" in stretch:
                at += stretch["gap_s"]
                continue
            end, every = at + stretch["for_s"], stretch.get("step_every_s")
            if stretch.get("phase") == "train" and records.phase == "setup":
                fp16 = stretch.get("fp16", False)
                records.take({"event": "train_begin", "step": 0, "fp16": fp16})
            next_step = at + (every or 0.0)
            for _ in range(stretch.get("marks", 0)):
                records.take({"event": "evaluate", "step": records.step})
            while at < end:
                while every and next_step <= at:
                    step = (records.step or 0) + 1
                    loss = stretch.get("loss", 1.5 - min(step, 500) / 1000)
                    records.take({"event": "log", "step": step, "loss": loss, "grad_norm": 0.4})
                    next_step += every
                yield Sample(
                    at=at,
                    step=records.step,
                    marks=records.marks,
                    log_bytes=int(log),
                    cpu_s=cpu,
                    moved_bytes=int(moved),
                    bad_records=records.bad,
                    high_records=records.high,
                    fp16=records.fp16,
                    **{name: stretch[name] for name in PLAIN if name in stretch},
                )
                at += self.watch.every_s
                cpu += stretch.get("cpu_per_s", 0.0) * self.watch.every_s
                moved += stretch.get("moved_per_s", 0.0) * self.watch.every_s
                log += stretch.get("log_per_s", 0.0) * self.watch.every_s


def trace(name: str) -> Trace:
    """Return the trace of that name."""
    head, *rest = (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    body = json.loads(head)
    stretches = [json.loads(line) for line in rest]
    watch, recorded = Watch(**body["limits"]), body.get("recorded", False)
    return Trace(body["about"], watch, body["expect"], stretches, recorded)
