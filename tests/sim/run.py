"""Runs seeds: a world each, faults first, then calm, then the checkers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import delete, event

from orchestrator import points
from orchestrator.policy import ALL_RULES, Rules
from orchestrator.store import Store
from orchestrator.store_engine import Database
from orchestrator.store_migrate import bring_to_head
from orchestrator.store_schema import metadata
from tests.sim.checkers import check
from tests.sim.end import End, Finding
from tests.sim.process import populate
from tests.sim.world import LIVENESS_S, START, World


@dataclass(slots=True)
class Tally:
    """The sum of many seeds."""

    seeds: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bad: dict[int, list[Finding]] = field(default_factory=dict)

    def add(self, world: World, findings: list[Finding]) -> None:
        """Count one seed."""
        self.seeds += 1
        self.steps += world.steps
        self.faults += world.swarm.counts
        if findings:
            self.bad[world.seed] = findings


class SimStore:
    """One database in memory, emptied for each seed; its clock is the world's."""

    def __init__(self) -> None:
        self.world: World | None = None
        database = Database("sqlite://", now_sql="sim_now()", synchronous="OFF")

        @event.listens_for(database.engine, "connect")
        def connect(connection: Any, _: Any) -> None:
            connection.create_function("sim_now", 0, self._now)

        bring_to_head(database)
        self.store = Store(database)

    def _now(self) -> float:
        return START + (self.world.time if self.world is not None else 0.0)

    def empty(self) -> Store:
        """Return the store with nothing in it."""
        with self.store.database.write() as db:
            for table in metadata.sorted_tables:
                db.execute(delete(table))
        return self.store


def run_seed(
    sim: SimStore, seed: int, *, rules: Rules = ALL_RULES, **bugs: Any
) -> tuple[World, list[Finding], End]:
    """Return the world of a seed at its end, and what is wrong with it."""
    sim.world = None
    store = sim.empty()
    world = World(seed, store, rules, **bugs)
    sim.world = world
    populate(world)
    broken = None
    try:
        # Safety: faults begin and end. Liveness: none begins any more, and all must come to rest.
        rested = partial(_rested_now_and_then, world)
        world.run(rested, until=world.calm_at)
        world.swarm.calm = True
        world.run(rested, until=world.calm_at + LIVENESS_S)
    except Exception as error:
        broken = repr(error)
    finally:
        points.install(None)
    end = _end(world, rested=_at_rest(world), broken=broken)
    return world, check(end), end


def _rested_now_and_then(world: World) -> bool:
    return world.steps % 16 == 0 and _at_rest(world)


def _at_rest(world: World) -> bool:
    """Return whether nothing of ours is open or alive, and nothing is still to come."""
    if world.pending() or any(m.id not in world.foreign for m in world.cloud.living()):
        return False
    rows = world.store.rows(active_only=True)
    if "left_alone" in world.swarm.rates:
        return not any(a.may_bill for row in rows for a in row.attempts)
    return not rows


def _end(world: World, *, rested: bool, broken: str | None) -> End:
    rows = tuple(world.store.rows(removed=True))
    history = {row.record.new.id: world.store.events(row.record.new.id) for row in rows}
    return End(world, rested, rows, history, broken)
