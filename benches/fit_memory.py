"""Fits the allocator's and the stacks' constants, and shows what leaving data out does to them.

    python benches/fit_memory.py POINTS.csv

Needs numpy and scipy. Prints the fitted constants and, for leaving out each source and each
(source, model, method, GPU count) group in turn, the errors on what was left out. The shipped
constants in `jobs` are this fit, rounded.
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benches.points import Point, points
from benches.statistics_of import Errors, errors_of
from jobs import memory_activations as activations
from jobs.memory import footprint
from jobs.memory_allocator import Allocator

GROUPS = ("all", "single_gpu", "multi_gpu", "full", "lora", "qlora", "device", "hf_allocated")
# name, start
ALLOCATOR = (
    ("context_gib", 0.8),
    ("nccl_gib", 1.0),
    ("layer_share", 0.26),
    ("input_gradient_share", 0.3),
    ("weights_share", 0.9),
    ("fsdp_full_gib", 4.5),
)
STACKS = (("litgpt.scale", 1.16), ("litgpt.scale_quantised", 1.95), ("swift.vocab_bytes", 43.6))
PRIOR_WEIGHT = 0.05
START = np.array([value for _, value in (*ALLOCATOR, *STACKS)])


def use(theta: Sequence[float]) -> Allocator:
    """Put the stacks' constants in place and return the allocator's."""
    litgpt, litgpt_q, swift = theta[len(ALLOCATOR) :]
    activations.STACKS["litgpt"] = dataclasses.replace(
        activations.STACKS["litgpt"], scale=litgpt, scale_quantised=litgpt_q
    )
    activations.LOSS_KERNELS["swift"] = dataclasses.replace(
        activations.LOSS_KERNELS["swift"], vocab_bytes=swift
    )
    names = [name for name, _ in ALLOCATOR]
    return Allocator(**dict(zip(names, map(float, theta), strict=False)))


def estimate(point: Point, allocator: Allocator) -> float:
    """Return our figure for the metric that the point measured, GiB."""
    found = footprint(point.work, allocator)
    if point.metric in {"allocated", "active"}:
        return found.allocated_gib
    return found.device_gib if point.metric == "nvidia-smi" else found.reserved_gib


def fit(rows: Sequence[Point]) -> np.ndarray:
    """Return the constants that fit `rows` best, robustly (soft L1 on log ratios)."""

    def residuals(theta: np.ndarray) -> list[float]:
        allocator = use(theta)
        seen = [float(np.log(estimate(row, allocator) / row.measured)) for row in rows]
        # A constant that these rows do not touch stays where it was.
        return seen + list(PRIOR_WEIGHT * np.log(theta / START))

    found = least_squares(
        residuals, START, loss="soft_l1", f_scale=0.05, diff_step=1e-3, bounds=(1e-3, np.inf)
    )
    return np.asarray(found.x)


def left_out(rows: Sequence[Point], key: Callable[[Point], object]) -> list[tuple[Point, float]]:
    """Return every row with the estimate of a fit that never saw its group."""
    result = []
    for group in sorted({str(key(row)) for row in rows}):
        theta = fit([row for row in rows if str(key(row)) != group])
        allocator = use(theta)
        result += [(r, estimate(r, allocator)) for r in rows if str(key(r)) == group]
    return result


def show(title: str, rows: Sequence[tuple[Point, float]]) -> None:
    """Print the bars' groups for one way of leaving rows out."""
    print(f"\n{title}")
    for group in GROUPS:
        ratios = [value / row.measured for row, value in rows if group in row.groups]
        if ratios:
            print(f"  {group:14}{Errors.line(errors_of(group, ratios))}")
    device = sorted(row.measured / value for row, value in rows if "device" in row.groups)
    tensors = sorted(row.measured / value for row, value in rows if "hf_allocated" in row.groups)
    for name, values in (("device", device), ("hf_allocated", tensors)):
        cuts = np.quantile(values, (0.05, 0.1, 0.5, 0.8, 0.9, 0.95))
        print(f"  actual/estimate {name}: 5..95 %: {np.round(cuts, 3)}")


def main() -> None:
    """Fit, leave out, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    rows, _ = points(parser.parse_args().file)
    theta = fit(rows)
    for (name, _), value in zip((*ALLOCATOR, *STACKS), theta, strict=True):
        print(f"{name:26}{value:8.3f}")
    allocator = use(theta)
    show("seen by the fit", [(row, estimate(row, allocator)) for row in rows])
    show("each source left out", left_out(rows, lambda row: row.source))
    by_group = lambda r: (r.source, r.work.architecture.name, r.work.method, r.work.gpus)  # noqa: E731
    show("each (source, model, method, GPUs) left out", left_out(rows, by_group))
    show("each model left out", left_out(rows, lambda row: row.work.architecture.name))


if __name__ == "__main__":
    main()
