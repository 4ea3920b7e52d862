"""Four planning scenarios of a well-known article, beside our forecast.

    python benches/planning_scenarios.py

QLoRA on one A100 80GB at $1.39 an hour: for each scenario's span of hours, the tokens it implies at
our speed, hence the mean example length at one and at three epochs; and whether hours and dollars
agree with each other.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.architectures import find
from jobs.memory import footprint
from jobs.throughput import FixedParts, GpuFacts, forecast, speed
from jobs.workload import Workload

A100 = GpuFacts("A100-80GB", 312, 2039, 600)
USD_PER_HOUR = 1.39
TYPICAL_TOKENS = 250  # a short instruction and its answer
FIXED = {"7B": FixedParts(download_s=60), "70B": FixedParts(download_s=600)}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the article says."""

    size: str
    model: str
    examples: int
    hours: tuple[float, float]
    dollars: tuple[float, float]


SCENARIOS = (
    Scenario("7B", "Llama-2-7B", 5_000, (0.75, 1.5), (1, 3)),
    Scenario("7B", "Llama-2-7B", 50_000, (4, 6), (6, 12)),
    Scenario("70B", "Llama-2-70B", 5_000, (2, 4), (7, 12)),
    Scenario("70B", "Llama-2-70B", 50_000, (12, 20), (25, 60)),
)


def main() -> None:
    """Print each scenario with what it implies and what we forecast."""
    for case in SCENARIOS:
        batch = 4 if case.size == "7B" else 1
        work = Workload(find(case.model), sequence_len=2048, micro_batch_size=batch)
        rate = speed(work, A100).tokens_per_s
        fixed = FIXED[case.size]
        print(
            f"{case.size}, {case.examples} examples: article {case.hours[0]:g}-{case.hours[1]:g} h,"
            f" ${case.dollars[0]:g}-{case.dollars[1]:g}"
        )
        print(
            f"  {footprint(work).device_gib:.1f} GiB on the card at {batch} x 2048, packed; "
            f"{rate:.0f} tokens/s"
        )
        spans = [max(0.0, h - fixed.total_s / 3600) * 3600 * rate for h in case.hours]
        for epochs in (1, 3):
            low, high = (tokens / epochs / case.examples for tokens in spans)
            print(f"  its hours mean {low:.0f}-{high:.0f} tokens an example at {epochs} epoch(s)")
        implied = [d / USD_PER_HOUR for d in case.dollars]
        agree = implied[0] <= case.hours[1] and implied[1] >= case.hours[0]
        ratio = implied[0] / case.hours[0], implied[1] / case.hours[1]
        print(
            f"  its dollars are {implied[0]:.1f}-{implied[1]:.1f} h at ${USD_PER_HOUR}: "
            + (f"{ratio[0]:.1f}-{ratio[1]:.1f} x its hours" if agree else "outside its hours")
        )
        for epochs in (1, 3):
            ours = forecast(work, A100, case.examples * TYPICAL_TOKENS * epochs, fixed)
            print(
                f"  ours at {TYPICAL_TOKENS} tokens, {epochs} epoch(s): {ours.hours:.1f} h "
                f"({ours.low_h:.1f}-{ours.high_h:.1f}), ${ours.hours * USD_PER_HOUR:.2f}"
            )


if __name__ == "__main__":
    main()
