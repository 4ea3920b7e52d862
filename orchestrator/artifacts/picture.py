"""The curve of a training as an SVG picture: loss by step, evaluations on top. Pure.

Written by hand, so that a result needs no plotting library: two lines, two axes, a legend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 44, 46
TICKS = 5  # about so many on an axis
SMOOTH = 0.9  # weight of the past in the smoothed line, of 40 points or more
SMOOTH_FROM = 40
# Told apart by people who see no red or green, and in grey (Okabe and Ito's palette).
TRAINING, EVALUATION = "#0072B2", "#D55E00"

Points = Sequence[tuple[int, float]]


def loss_svg(training: Points, evaluation: Points) -> str:
    """Return the picture; "" where there are not two points to draw a line between."""
    training = [point for point in training if math.isfinite(point[1])]
    evaluation = [point for point in evaluation if math.isfinite(point[1])]
    every = [*training, *evaluation]
    if len({step for step, _ in every}) < 2:
        return ""
    steps, losses = _axis([step for step, _ in every]), _axis([loss for _, loss in every])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (point[0] - steps[0]) / (steps[-1] - steps[0]) * (WIDTH - LEFT - RIGHT)
        y = TOP + (losses[-1] - point[1]) / (losses[-1] - losses[0]) * (HEIGHT - TOP - BOTTOM)
        return x, y

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" '
            'font-family="sans-serif" font-size="13" fill="#333">'
        ),
        "<title>Loss by optimizer step</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for loss in losses:
        _, y = place((steps[0], loss))
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for step in steps:
        x, _ = place((step, losses[0]))
        foot = HEIGHT - BOTTOM
        parts.append(f'<path d="M{x:.1f} {foot}v5" stroke="#999"/>')
        parts.append(f'<text x="{x:.1f}" y="{foot + 20}" text-anchor="middle">{step:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    if training:
        faint = len(training) >= SMOOTH_FROM
        parts.append(_line([place(p) for p in training], TRAINING, 0.3 if faint else 1.0))
        if faint:
            parts.append(_line([place(p) for p in smoothed(training)], TRAINING, 1.0))
        parts.append(_key(LEFT, TRAINING, "training loss" + (", smoothed" if faint else "")))
    if evaluation:
        dots = [place(point) for point in evaluation]
        parts.append(_line(dots, EVALUATION, 1.0))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{EVALUATION}"/>' for x, y in dots]
        parts.append(_key(LEFT + 220, EVALUATION, "evaluation loss"))
    return "\n".join([*parts, "</svg>", ""])


def smoothed(points: Points) -> list[tuple[int, float]]:
    """Return the exponential mean of a curve, without the pull of its first value."""
    mean, weight, found = 0.0, 0.0, []
    for step, loss in points:
        mean = SMOOTH * mean + (1 - SMOOTH) * loss
        weight = SMOOTH * weight + (1 - SMOOTH)
        found.append((step, mean / weight))
    return found


def _axis(values: Sequence[float]) -> list[float]:
    """Return round ticks of which the first and the last enclose all values."""
    low, high = min(values), max(values)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    unit = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / unit + 1e-9), math.ceil(high / unit - 1e-9)
    return [round(number * unit, 12) for number in range(first, last + 1)]


def _line(places: Sequence[tuple[float, float]], colour: str, opacity: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-opacity="{opacity:g}"'
    return f'<polyline points="{path}" {style}/>'


def _key(x: float, colour: str, words: str) -> str:
    line = f'<path d="M{x} 22h24" stroke="{colour}" stroke-width="3"/>'
    return f'{line}<text x="{x + 32}" y="27">{words}</text>'
