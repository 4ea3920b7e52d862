"""`python -m tests.sim --seeds 1000 --first 1`: run seeds, print what was found and how fast."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections import Counter
from dataclasses import fields, replace

from orchestrator.policy import ALL_RULES, Rules
from tests.sim.bugs import BUGS, seeds_for
from tests.sim.faults import ALL_FAULTS
from tests.sim.run import SimStore, Tally, run_seed


def main() -> int:
    """Run; exit 1 where a seed had a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--without", choices=[f.name for f in fields(Rules)], help="switch a rule off"
    )
    parser.add_argument("--show", type=int, default=5, help="bad seeds to print")
    parser.add_argument("--bugs", action="store_true", help="plant every bug, print the table")
    parser.add_argument("--trace", action="store_true", help="print every event of the last seed")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.bugs:
        return bug_table(options.seeds, options.first)
    rules = replace(ALL_RULES, **{options.without: False}) if options.without else ALL_RULES
    sim, tally, began = SimStore(), Tally(), time.perf_counter()
    for seed in range(options.first, options.first + options.seeds):
        world, findings, end = run_seed(sim, seed, rules=rules)
        tally.add(world, findings)
        for row in end.rows:
            tally.reasons[str(row.reason)] += 1
        if findings and len(tally.bad) <= options.show:
            for found in findings:
                print(f"seed {seed}: {found.checker}: {found.text}")
            print(f"  again: python -m tests.sim --first {seed} --seeds 1 --trace")
        if options.trace and seed == options.first + options.seeds - 1:
            trace(world, end)
    took = time.perf_counter() - began
    print(f"{tally.seeds} seeds, {len(tally.bad)} bad, {tally.steps} steps, "
          f"{tally.seeds / took:.1f} seeds/s")  # fmt: skip
    print("ends: " + ", ".join(f"{k} {n}" for k, n in tally.reasons.most_common()))
    print("faults: " + ", ".join(f"{name} {tally.faults[name]}" for name in ALL_FAULTS))
    return 1 if tally.bad else 0


def bug_table(seeds: int, first: int) -> int:
    """Print for each planted bug in how many of its seeds it was caught, and by what."""
    sim, missed = SimStore(), 0
    print(f"{'planted bug':42} {'bad':>4} {'of':>4} {'leaks':>5}  caught by")
    for name, bug in BUGS.items():
        caught, leaks, by = 0, 0, Counter[str]()
        for seed in itertools.islice(seeds_for(bug, first=first), seeds):
            _, findings, _ = run_seed(sim, seed, rules=bug.rules, **bug.plant)
            found = {f.checker for f in findings}
            caught += bool(found & bug.caught_by)
            leaks += "no_leak" in found
            by.update(found)
        missed += not caught
        words = ", ".join(f"{checker} {n}" for checker, n in by.most_common(4))
        print(f"{name:42} {caught:4} {seeds:4} {leaks:5}  {words}", flush=True)
    return 1 if missed else 0


def trace(world, end) -> None:
    """Print what happened, in order."""
    lines = [(e.at, f"cloud  {e.kind} {e.id} {e.label} {e.detail}") for e in world.cloud.log]
    for job_id, history in end.history.items():
        lines += [(r.at, f"{job_id}/{r.attempt} {r.event}") for r in history]
    start = lines[0][0] - lines[0][0] % 1_000_000
    for at, text in sorted(lines, key=lambda line: line[0]):
        print(f"{at - start:9.1f} {text}")
    print(world.swarm.rates, world.cloud.settings, f"calm at {world.calm_at:.0f}")
    for box in world.boxes.values():
        print(box)


if __name__ == "__main__":
    sys.exit(main())
