"""Judges the memory model on a file of measured peaks.

    python benches/memory_accuracy.py POINTS.csv [--oom RUNS.csv] [--json] [--rows] [--tables]

The file has the columns of tests/cases/points/memory_points.csv; rows whose `usable` is not 1 are
left out. Each row is compared on its own metric: allocated and active with our allocated peak,
reserved with reserved, nvidia-smi with the device's. `--oom` takes the columns of oom_runs.csv:
real runs on 80 GB cards; we say out of memory where no allocator could make the run fit.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.peers.formulas import FORMULAS, accelerate
from benches.peers.tables import reconcile
from benches.points import Point, points, read, workload
from benches.statistics_of import Errors, errors_of
from jobs.memory import footprint
from jobs.workload import Workload

GROUPS = ("all", "single_gpu", "multi_gpu", "full", "lora", "qlora", "device", "hf_allocated")
USABLE_80_GIB = 79.1  # what an A100-80GB reports as its total, less what the driver keeps

Estimator = Callable[[Point], float]


def ours(point: Point) -> float:
    """Return our estimate of the metric that the point measured, GiB."""
    found = footprint(point.work)
    if point.metric in {"allocated", "active"}:
        return found.allocated_gib
    return found.reserved_gib if point.metric == "reserved" else found.device_gib


def judge(rows: Sequence[Point], estimate: Estimator, groups: Sequence[str]) -> list[Errors]:
    """Return the figures of every group that has a row."""
    ratios = [(row, estimate(row) / row.measured) for row in rows]
    result = []
    for group in groups:
        values = [ratio for row, ratio in ratios if group in row.groups]
        if values:
            result.append(errors_of(group, values))
    return result


def judge_oom(path: Path, fails: Callable[[Workload], bool]) -> dict[str, Any]:
    """Return how often "does not fit" and "fits" were right on real runs."""
    right = missed = false_alarms = count = 0
    for row in read(path):
        try:
            happened, said = row["oom"] == "1", fails(replace(workload(row), gpu_gib=None))
        except ValueError as exc:
            print(f"left out: {row.get('id', '?')}: {exc}", file=sys.stderr)
            continue
        count += 1
        right += happened == said
        missed += happened and not said
        false_alarms += said and not happened
    return {
        "rows": count,
        "right_pct": round(100 * right / max(1, count), 2),
        "missed": missed,
        "false_alarms": false_alarms,
    }


def show(rows: Sequence[Point], oom: Path | None) -> None:
    """Print ours by every cut, then the peers beside ours on the rows they claim."""
    metrics = sorted({f"metric {row.metric}" for row in rows})
    stacks = sorted({f"framework {row.framework}" for row in rows})
    labelled = [
        replace(row, groups=row.groups | {f"metric {row.metric}", f"framework {row.framework}"})
        for row in rows
    ]
    for found in judge(labelled, ours, (*GROUPS, *metrics, *stacks)):
        print(f"{found.name[:44]:44} {found.line()}")
    single = [row for row in rows if row.work.gpus == 1]
    print("\nPeers' formulas on single-GPU rows, beside ours")
    for name, formula in (("ours", ours), *((n, _of(f)) for n, f in FORMULAS.items())):
        for found in judge(single, formula, ("all", "full", "lora", "qlora")):
            print(f"{name:20} {found.name:6} {found.line()}")
    if oom is None:
        return
    print(f"\nOut of memory on 80 GB cards ({oom.name})")
    print(f"{'ours':20} {judge_oom(oom, fails)}")
    for name, peer in FORMULAS.items():
        if peer is not accelerate:
            print(f"{name:20} {judge_oom(oom, _over(peer))}")


def fails(work: Workload) -> bool:
    """Return whether `work` must run out of memory on an 80 GB card."""
    return footprint(work).floor_gib > USABLE_80_GIB


def _over(peer: Callable[[Workload], float]) -> Callable[[Workload], bool]:
    return lambda work: peer(work) / work.shards > USABLE_80_GIB


def _of(formula: Callable[[Workload], float]) -> Estimator:
    return lambda point: formula(point.work)


def main() -> None:
    """Read, judge, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="points, CSV")
    parser.add_argument("--oom", type=Path, help="runs with an oom column, CSV")
    parser.add_argument("--json", action="store_true", help="groups and oom as one JSON object")
    parser.add_argument("--rows", action="store_true", help="every row, worst first")
    parser.add_argument("--tables", action="store_true", help="the two VRAM tables, reconciled")
    options = parser.parse_args()
    for path in (options.file, options.oom):
        if path and not path.is_file():
            parser.error(f"{path}: no such file")
    rows, skipped = points(options.file)
    for line in skipped:
        print(f"left out: {line}", file=sys.stderr)
    if options.json:
        found = [errors.as_json() for errors in judge(rows, ours, GROUPS)]
        oom = judge_oom(options.oom, fails) if options.oom else None
        print(json.dumps({"groups": found, "oom": oom}))
        return
    show(rows, options.oom)
    if options.rows:
        for row in sorted(rows, key=lambda r: -abs(ours(r) / r.measured - 1)):
            w = row.work
            print(
                f"{100 * (ours(row) / row.measured - 1):+6.1f} % {row.id:14} {row.metric:10} "
                f"{w.architecture.name:16} {w.method:5} {w.quantised or '-':11} x{w.gpus} "
                f"{w.micro_batch_size} x {w.sequence_len} measured {row.measured:.2f}"
            )
    if options.tables:
        print("\nThe two tables")
        for line in reconcile():
            print(line)


if __name__ == "__main__":
    main()
