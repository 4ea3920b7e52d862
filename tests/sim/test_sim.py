"""The proof of the state machine: many worlds, nothing wrong; each rule off, something wrong.

`GPUJOB_SIM_SEEDS` sets how many worlds; `python -m tests.sim` runs more of them, and traces one.
"""

import itertools
import logging
import os
import time
from dataclasses import fields

import pytest

from orchestrator.policy import Rules
from tests.sim.bugs import BUGS, seeds_for
from tests.sim.checkers import CHECKERS
from tests.sim.faults import ALL_FAULTS
from tests.sim.run import SimStore, Tally, run_seed

SEEDS = int(os.environ.get("GPUJOB_SIM_SEEDS", "500"))
LEAST_DRAWN = 20
MOST_TRIES = 80  # worlds chosen for a bug; the first that shows it ends the search


@pytest.fixture(scope="module")
def sim():
    logging.disable(logging.CRITICAL)
    yield SimStore()
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(1800)
def test_nothing_is_wrong_in_many_worlds(sim):
    tally, began = Tally(), time.perf_counter()
    for seed in range(1, SEEDS + 1):
        world, findings, _ = run_seed(sim, seed)
        tally.add(world, findings)
    print(f"\n{SEEDS} seeds, {SEEDS / (time.perf_counter() - began):.1f} seeds/s")
    assert tally.bad == {}, "python -m tests.sim --first SEED --seeds 1 --trace"
    least = LEAST_DRAWN if SEEDS >= 500 else LEAST_DRAWN * SEEDS // 500
    rare = {name: tally.faults[name] for name in ALL_FAULTS if tally.faults[name] < least}
    assert rare == {}, "a fault that hardly ever strikes proves nothing"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(sim, name):
    bug = BUGS[name]
    for seed in itertools.islice(seeds_for(bug), MOST_TRIES):
        _, findings, _ = run_seed(sim, seed, rules=bug.rules, **bug.plant)
        if {found.checker for found in findings} & bug.caught_by:
            return
    pytest.fail(f"{name}: {MOST_TRIES} worlds, and no checker noticed")


def test_every_rule_has_a_planted_bug():
    assert {bug.rule for bug in BUGS.values()} - {None} == {f.name for f in fields(Rules)}


def test_every_checker_is_known_to_bite():
    """A checker that no planted bug ever woke may be asleep."""
    named = {checker for bug in BUGS.values() for checker in bug.caught_by}
    quiet = {checker.__name__ for checker in CHECKERS} - named
    assert quiet == {"nothing_for_nothing", "breaks_nothing"}


def test_a_seed_is_the_same_world_every_time(sim):
    def story(seed):
        world, _, end = run_seed(sim, seed)
        return (
            [(e.at, e.kind, e.id) for e in world.cloud.log],
            {job: [(r.attempt, r.event) for r in rows] for job, rows in end.history.items()},
        )

    for seed in (3, 14, 77):
        assert story(seed) == story(seed)
