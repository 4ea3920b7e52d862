"""The six figures by which a set of estimates is judged."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Errors:
    """Figures of one group; percentages of the measured value."""

    name: str
    n: int
    median_pct: float
    p90_pct: float
    worst_pct: float
    bias_pct: float
    under_10_pct: float

    def as_json(self) -> dict[str, Any]:
        """Return the figures rounded to two places."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}

    def line(self) -> str:
        """Return one line of a table."""
        return (
            f"n={self.n:4d}  median {self.median_pct:6.2f} %  p90 {self.p90_pct:6.2f} %  "
            f"worst {self.worst_pct:6.1f} %  bias {self.bias_pct:+6.2f} %  "
            f"under by >10 % {self.under_10_pct:5.1f} %"
        )


def errors_of(name: str, ratios: Sequence[float]) -> Errors:
    """Return the figures of estimates given as estimate / measured. Needs at least one."""
    signed = sorted(ratio - 1 for ratio in ratios)
    absolute = sorted(abs(error) for error in signed)
    return Errors(
        name=name,
        n=len(signed),
        median_pct=100 * quantile(absolute, 0.5),
        p90_pct=100 * quantile(absolute, 0.9),
        worst_pct=100 * absolute[-1],
        bias_pct=100 * quantile(signed, 0.5),
        under_10_pct=100 * sum(error < -0.1 for error in signed) / len(signed),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of ordered values, linear between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
