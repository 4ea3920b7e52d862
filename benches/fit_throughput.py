"""Fits the speed model's constants, and shows what leaving data out does to them.

    python benches/fit_throughput.py POINTS.csv

Needs numpy and scipy. A weak prior keeps constants physical that the rows (nine in ten from one
card) cannot tell apart. The shipped constants in `jobs.throughput` are this fit, rounded.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benches.speed_points import SpeedPoint, points
from benches.statistics_of import Errors, errors_of
from jobs.throughput import Rates, speed

# constant: centre, and width of the prior's logarithm
PRIOR = {
    "matmul": (0.72, 0.12),
    "ramp_tokens": (400, 0.7),
    "eager": (2.5, 0.6),
    "fused": (1.2, 0.6),
    "vocab": (25, 0.6),
    "dequantise": (2.6, 0.6),
    "launch_s": (0.001, 0.4),
    "zero_launch": (2.2, 0.4),
    "link": (1.3, 0.5),
    "experts": (0.85, 0.2),
    "fp32_stream": (1.4, 0.3),
}
START = np.array([centre for centre, _ in PRIOR.values()])
WIDTH = np.array([width for _, width in PRIOR.values()])
PRIOR_WEIGHT = 1.25


def fit(rows: Sequence[SpeedPoint]) -> Rates:
    """Return the constants that fit `rows` best, robustly (soft L1 on log ratios over 10 %)."""

    def residuals(theta: np.ndarray) -> np.ndarray:
        rates = Rates(**dict(zip(PRIOR, map(float, theta), strict=True)))
        seen = [np.log(speed(r.work, r.gpu, rates).tokens_per_s / r.measured) / 0.1 for r in rows]
        return np.array([*seen, *(np.log(theta / START) / WIDTH * PRIOR_WEIGHT)])

    found = least_squares(residuals, START, loss="soft_l1", x_scale=START, bounds=(1e-6, np.inf))
    return Rates(**dict(zip(PRIOR, map(float, found.x), strict=True)))


Judged = list[tuple[SpeedPoint, float]]


def left_out(rows: Sequence[SpeedPoint], key: Callable[[SpeedPoint], object]) -> Judged:
    """Return every row with the forecast of a fit that never saw its group."""
    result: Judged = []
    for group in sorted({str(key(row)) for row in rows}):
        rates = fit([row for row in rows if str(key(row)) != group])
        held = [row for row in rows if str(key(row)) == group]
        result += [(row, speed(row.work, row.gpu, rates).tokens_per_s) for row in held]
    return result


def show(title: str, rows: Judged) -> None:
    """Print the bars' groups, and the quantiles that bands are made of."""
    print(f"\n{title}")
    for group in ("all", "full", "lora", "qlora", "single_gpu", "multi_gpu"):
        ratios = [value / row.measured for row, value in rows if group in row.groups]
        print(f"  {group:12}{Errors.line(errors_of(group, ratios))}")
    for confidence in ("measured", "few points", "no points"):
        ratios = sorted(
            row.measured / value
            for row, value in rows
            if speed(row.work, row.gpu).confidence == confidence
        )
        if ratios:
            cuts = np.round(np.quantile(ratios, (0.1, 0.5, 0.9)), 3)
            print(f"  actual/forecast, {confidence}: n={len(ratios)} 10/50/90 %: {cuts}")


def main() -> None:
    """Fit, leave out, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    rows, skipped = points(parser.parse_args().file)
    print(f"{len(rows)} rows, {len(skipped)} skipped")
    rates = fit(rows)
    for name in PRIOR:
        print(f"{name:14}{getattr(rates, name):10.4g}")
    show("seen by the fit", [(r, speed(r.work, r.gpu, rates).tokens_per_s) for r in rows])
    show("each source left out", left_out(rows, lambda row: row.source))
    by_group = lambda r: (r.source, r.work.architecture.name, r.work.method, r.work.gpus)  # noqa: E731
    show("each (source, model, method, GPUs) left out", left_out(rows, by_group))
    show("each model left out", left_out(rows, lambda row: row.work.architecture.name))


if __name__ == "__main__":
    main()
