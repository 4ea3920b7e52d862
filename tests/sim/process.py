"""Processes of ours in the simulation: a supervisor without threads, and passing commands.

The code under test is the real one: Runner, Driver, the journal's leases, the sweep. Only the loop
of `supervisor.py`, which is threads and waiting, is replaced by steps on the world's clock.
"""

from __future__ import annotations

import itertools
from typing import cast

from orchestrator import points
from orchestrator.home import Home
from orchestrator.runner import Driver, Runner
from orchestrator.store_journal import takeable
from orchestrator.sweep import Unknown, sweep
from providers.base import Provider
from tests.sim.cloud import SimProvider
from tests.sim.machines import SimSite
from tests.sim.runpod import adapter
from tests.sim.world import LIMITS, OWNER, Actor, Crash, SimHome, World

BEAT_S = 30.0
_serial = itertools.count()


class Supervised(Actor):
    """A supervisor process: lives, crashes, comes back as another process."""

    def __init__(self, world: World, name: str, *, starts_at: float) -> None:
        self._world = world
        self._name = name
        self.next_at = starts_at
        self._runner: Runner | None = None
        self._drivers: dict[str, tuple[Driver, float]] = {}
        self._beat_at = self._renew_at = self._sweep_at = 0.0
        self._dead = ""

    def step(self) -> None:
        try:
            self._step()
        except Crash:
            self._die(self._world.rng.expovariate(1 / 60.0) + 1.0)
        if self.killed:
            self._die(float("inf"))

    def kill_for_good(self) -> None:
        """End it; nobody starts it again."""
        self.killed = True
        if self not in self._world.running:
            self._die(float("inf"))

    def wake(self) -> None:
        """Somebody asked for something: look at once."""
        self._beat_at = 0.0
        if self.next_at != float("inf"):
            self.next_at = self._world.time

    def _die(self, pause_s: float) -> None:
        # Memory is lost, leases are not: as after SIGKILL. Half of the time the next process can
        # prove that this one is dead, as on the same machine.
        known = self._runner is not None and self._world.rng.random() < 0.5
        self._dead = self._runner.holder if known and self._runner is not None else ""
        self._runner, self._drivers = None, {}
        self.next_at = self._world.time + pause_s
        self._world.down.append((self._world.time, self.next_at))

    def _step(self) -> None:
        world = self._world
        if self._runner is None:
            self._runner = make_runner(world, f"{self._name}-{next(_serial)}")
            self._beat_at = self._renew_at = self._sweep_at = world.time
        if world.time >= self._renew_at:
            self._renew_at = world.time + LIMITS.lease_s / 3
            if self._drivers:
                world.store.journal.renew(self._runner.holder, LIMITS.lease_s)
        if world.time >= self._beat_at:
            self._beat_at = world.time + BEAT_S
            self._take(self._runner)
        for job_id, (driver, due) in list(self._drivers.items()):
            if world.time >= due:
                again = driver.tick()
                if again is None:
                    driver.release()
                    del self._drivers[job_id]
                else:
                    self._drivers[job_id] = (driver, again - world.clock.now() + world.time)
        if world.rules.sweep and world.time >= self._sweep_at:
            self._sweep_at = world.time + LIMITS.sweep_s
            sweep(self._runner)
        due_times = [due for _, due in self._drivers.values()]
        self.next_at = max(
            min([self._beat_at, self._renew_at, self._sweep_at, *due_times]), world.time + 0.05
        )

    def _take(self, runner: Runner) -> None:
        dead = self._dead
        active = runner.store.journal.active()
        for job_id, holder in takeable(active, runner.holder, lambda h: h == dead):
            driver = runner.take(job_id, dead=holder)
            if driver is not None:
                self._drivers[job_id] = (driver, 0.0)
        for job in active:
            if job.cancel_asked and job.id in self._drivers:
                self._drivers[job.id] = (self._drivers[job.id][0], 0.0)


class Commands(Actor):
    """A person's commands: each sweeps, as every command of ours does."""

    def __init__(self, world: World, every_s: float, unknown: Unknown = "report") -> None:
        self._world = world
        self._every_s = every_s
        self._unknown = unknown
        self.next_at = every_s

    def step(self) -> None:
        world = self._world
        self.next_at = world.time + world.rng.uniform(0.5, 1.5) * self._every_s
        if not world.rules.sweep:
            return
        try:
            sweep(make_runner(world, f"command-{next(_serial)}"), unknown=self._unknown)
        except Crash:
            return


def make_runner(world: World, holder: str) -> Runner:
    """Return the hands of one simulated process."""
    below = SimProvider(world, holder)
    provider: Provider = adapter(world, below) if world.runpod else below
    return Runner(
        world.store,
        {provider.name: provider},
        lambda order: SimSite(world, order),
        cast("Home", SimHome()),
        world.clock,
        OWNER,
        limits=LIMITS,
        rules=world.rules,
        holder=holder,
        draw=lambda: f"{world.rng.getrandbits(24):06x}",
    )


def populate(world: World) -> None:
    """Start the processes of this world."""
    first = Supervised(world, "a", starts_at=0.0)
    world.actors.append(first)
    supervisors = [first]
    if "two_supervisors" in world.swarm.rates:
        supervisors.append(Supervised(world, "b", starts_at=world.rng.uniform(0.0, 300.0)))
        world.actors.append(supervisors[1])
    if "left_alone" in world.swarm.rates:
        when = world.rng.uniform(5.0, world.calm_at)
        for supervisor in supervisors:
            world.after(when, supervisor.kill_for_good)
        world.actors.append(Commands(world, every_s=300.0))
    elif world.rng.random() < 0.25:
        unknown: Unknown = world.rng.choice(("report", "end", "end", "adopt"))
        world.actors.append(Commands(world, every_s=200.0, unknown=unknown))

    def wake() -> None:
        for supervisor in supervisors:
            supervisor.wake()

    world.on_wake = wake
    points.install(world.on_point)
