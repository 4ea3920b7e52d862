"""Judges the speed model on a file of measured tokens a second.

    python benches/throughput_accuracy.py POINTS.csv [--json] [--rows]

The file has the columns of tests/cases/points/throughput_points.csv; rows whose `usable` is not 1
are left out. Figures are tokens a second on one GPU. The 80 % band is judged by how often it holds
the measured value.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.speed_points import SpeedPoint, points
from benches.statistics_of import Errors, errors_of
from jobs.throughput import Speed, flops_per_token, speed

GROUPS = ("all", "full", "lora", "qlora")


def judge(rows: Sequence[SpeedPoint], groups: Sequence[str]) -> list[tuple[Errors, float]]:
    """Return the figures of every group that has a row, and its band's coverage in percent."""
    found = [(row, speed(row.work, row.gpu)) for row in rows]
    result = []
    for group in groups:
        seen = [(row, ours) for row, ours in found if group in row.groups]
        if seen:
            errors = errors_of(group, [ours.tokens_per_s / row.measured for row, ours in seen])
            inside = sum(held(row, ours) for row, ours in seen)
            result.append((errors, 100 * inside / len(seen)))
    return result


def held(row: SpeedPoint, ours: Speed) -> bool:
    """Return whether the band holds the measured value."""
    return ours.low <= row.measured <= ours.high


def class_efficiency(rows: Sequence[SpeedPoint]) -> Errors:
    """Return the figures of the usual rule beside ours: 45 % of the card's peak."""
    ratios = [
        0.45 * row.gpu.bf16_tflops * 1e12 / flops_per_token(row.work) / row.measured for row in rows
    ]
    return errors_of("45 % of peak", ratios)


def main() -> None:
    """Read, judge, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="points, CSV")
    parser.add_argument("--json", action="store_true", help="groups as one JSON object")
    parser.add_argument("--rows", action="store_true", help="every row, worst first")
    options = parser.parse_args()
    if not options.file.is_file():
        parser.error(f"{options.file}: no such file")
    rows, skipped = points(options.file)
    for line in skipped:
        print(f"left out: {line}", file=sys.stderr)
    if options.json:
        groups = [
            {**errors.as_json(), "band_80_pct": round(inside, 2)}
            for errors, inside in judge(rows, GROUPS)
        ]
        print(json.dumps({"groups": groups, "oom": None}))
        return
    names = sorted({f"card {row.gpu.name}" for row in rows})
    labelled = [replace(row, groups=row.groups | {f"card {row.gpu.name}"}) for row in rows]
    for errors, inside in judge(labelled, (*GROUPS, "single_gpu", "multi_gpu", *names)):
        print(f"{errors.name:20} {errors.line()}  band holds {inside:5.1f} %")
    print(f"{'45 % of peak':20} {class_efficiency(rows).line()}")
    if options.rows:
        shown = [(row, speed(row.work, row.gpu)) for row in rows]
        for row, ours in sorted(shown, key=lambda s: -abs(s[1].tokens_per_s / s[0].measured - 1)):
            w = row.work
            print(
                f"{100 * (ours.tokens_per_s / row.measured - 1):+6.1f} % {row.id:10} "
                f"{row.gpu.name:10} x{w.gpus} {w.architecture.name:16} {w.method:5} "
                f"{w.micro_batch_size} x {w.sequence_len} measured {row.measured:.0f}"
            )


if __name__ == "__main__":
    main()
