"""`python -m tests.sim --seeds 1000 --first 1`: run seeds, print what was found and how fast."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import fields, replace
from typing import Any

from orchestrator.policy import ALL_RULES, Rules
from tests.sim.bugs import BUGS, seeds_for
from tests.sim.faults import ALL_FAULTS
from tests.sim.layers import LAYERS, count
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
    parser.add_argument("--layers", action="store_true", help="switch each layer off in turn")
    parser.add_argument("--layer", choices=LAYERS, help="only this one of them")
    parser.add_argument("--json", action="store_true", help="a JSON document as the last line")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.bugs:
        return bug_table(options.seeds, options.first, as_json=options.json)
    if options.layers or options.layer:
        names = [options.layer] if options.layer else list(LAYERS)
        return layer_table(names, options.seeds, options.first, as_json=options.json)
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
    if options.json:
        document = {
            "seeds": tally.seeds, "bad_seeds": len(tally.bad), "steps": tally.steps,
            "seconds": round(took, 2), "ends": dict(tally.reasons), "faults": dict(tally.faults),
            "findings": dict(Counter(f.checker for found in tally.bad.values() for f in found)),
        }  # fmt: skip
        print(json.dumps(document))
    return 1 if tally.bad else 0


def layer_table(names: list[str], seeds: int, first: int, *, as_json: bool) -> int:
    """Print for each layer, switched off, how many worlds leak: alone, and without L2 as well."""
    told: dict[str, Any] = {}
    print(
        f"{'off':5} {'worlds':>6} {'leak':>5} {'wrong':>5} | {'leak':>5} {'wrong':>5}  L2 off too"
    )
    for name in names:
        alone = count(name, seeds=seeds, first=first, dead_man_off=False)
        both = count(name, seeds=seeds, first=first, dead_man_off=True)
        told[name] = {"alone": alone, "without_L2": both}
        figures = [alone["leaking_worlds"], alone["wrong_worlds"]]
        figures += [both["leaking_worlds"], both["wrong_worlds"]]
        print(f"{name:5} {seeds:6} {figures[0]:5} {figures[1]:5} | {figures[2]:5} {figures[3]:5}  "
              f"{LAYERS[name].what}", flush=True)  # fmt: skip
    if as_json:
        print(json.dumps(told))
    return 0


def bug_table(seeds: int, first: int, *, as_json: bool = False) -> int:
    """Print for each planted bug in how many of its seeds it was caught, and by what."""
    sim, missed = SimStore(), 0
    told: dict[str, Any] = {}
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
        told[name] = {"seeds": seeds, "caught": caught, "leaks": leaks}
    if as_json:
        print(json.dumps(told))
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
