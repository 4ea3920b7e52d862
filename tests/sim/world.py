"""One seed's world: a cloud, machines, a user, and processes of ours that come, die and pause.

Everything happens on one virtual clock in one thread. A call that takes time lets the others run
meanwhile; a process may be ended, or paused past its lease, at every named point of `points.py`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from orchestrator.attempt import label_of
from orchestrator.home import owner8
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.policy import ALL_RULES, Limits, Rules
from orchestrator.states import Reason
from orchestrator.store import Store
from providers.base import InstanceId, LaunchRequest, Offer, OfferKey
from providers.errors import AuthFailed, ProviderError, Unavailable
from providers.fake import DEFAULT_OFFERS, EventKind, FakeCloud, FakeSettings
from tests.sim.faults import MACHINE_FAULTS, Swarm, draw_swarm
from tests.sim.machines import Box
from tests.sim.runpod import STORAGE_RATE, Quota, offer_key

START = 1_800_000_000.0
SWARM_SEED = 1_000_003
OWNER = "the-owner"
SAFETY_S = (1200.0, 3000.0)  # how long faults begin
LIVENESS_S = 9000.0  # afterwards everything must have come to rest within this
LIMITS = Limits(
    site_remote_s=15.0, poll_remote_s=10.0, site_retry_s=10.0, prepare_timeout_s=1500.0,
    collect_timeout_s=600.0, ssh_lost_s=900.0, lease_s=60.0, sweep_s=120.0,
)  # fmt: skip


EFFECTS = frozenset(
    f"{when}:{what}"
    for when, what in itertools.product(
        ("provider.before", "provider.after"), ("launch", "terminate")
    )
)


BEFORE_EFFECTS = frozenset(
    {"journal.after:LaunchAsked", "journal.after:TerminateAsked", "site.before:start"}
)


class Crash(BaseException):
    """The process is gone, at this very point. Nothing of ours may catch it."""


class SimClock:
    """The world's time; a sleep of one process is time for the others."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return START + self._world.time

    def monotonic(self) -> float:
        return self._world.time

    def sleep(self, seconds: float) -> None:
        self._world.pass_time(seconds)


@dataclass(frozen=True, slots=True)
class SimHome:
    """Where logs would lie: nothing is written in the simulation."""

    def job_folder(self, job_id: str) -> Path:
        return Path("/nonexistent") / job_id

    def log_path(self, job_id: str, attempt: int, name: str = "train.log") -> Path:
        return Path("/nonexistent") / job_id / name

    def checkpoints(self, job_id: str) -> Path:
        return Path("/nonexistent") / job_id / "checkpoints"


class Actor:
    """What the world runs: has `next_at` and `step()`; see process.py."""

    next_at: float
    killed: bool = False

    def step(self) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class World:
    """See the module."""

    seed: int
    store: Store
    rules: Rules = ALL_RULES
    agent_has_no_claim: bool = False  # two planted bugs of the instance's side
    collect_is_blind: bool = False
    adapter_bug: str | None = None  # of adapter_bugs.py
    dead_man_off: bool = False  # L2 is off on every machine
    time: float = 0.0
    rng: random.Random = field(init=False)
    swarm: Swarm = field(init=False)
    cloud: FakeCloud = field(init=False)
    clock: SimClock = field(init=False)
    quota: Quota = field(init=False)
    boxes: dict[InstanceId, Box] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)
    running: list[Actor] = field(default_factory=list)  # whose code runs now, innermost last
    calm_at: float = 0.0
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)
    jobs: list[NewJob] = field(default_factory=list)
    foreign: set[InstanceId] = field(default_factory=set)
    orphan: InstanceId | None = None
    steps: int = 0
    down: list[tuple[float, float]] = field(default_factory=list)  # a process dead or asleep
    unfenced: list[str] = field(default_factory=list)  # effects asked by who had lost the lease
    asleep_after_check: bool = False  # the one moment against which no fence helps
    on_wake: Callable[[], None] = lambda: None
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)
    _seen: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.swarm = draw_swarm(random.Random(self.seed + SWARM_SEED))
        self.clock = SimClock(self)
        has = self.swarm.rates.__contains__
        lag = self.rng.uniform(2.0, 60.0) if has("list_lags") else 0.0
        self.cloud = FakeCloud(
            self.clock,
            self.rng,
            FakeSettings(
                list_lag_s=lag,
                describe_lag_s=lag * self.rng.choice((0.0, 0.5, 1.0)),
                boot_delay_s=self.rng.uniform(1.0, 90.0),
                ssh_delay_s=self.rng.uniform(0.0, 20.0),
                boot_timeout_s=300.0,
                billing_step_s=self.rng.choice((1.0, 1.0, 60.0)),
                enforces_deadline=not (has("no_dead_man") or self.dead_man_off),
            ),
            offers=_runpod_offers() if self.runpod else _offers(self.rng),
        )
        self.quota = Quota(self.clock.monotonic, on=has("rate_limit"))
        self.calm_at = self.rng.uniform(*SAFETY_S)
        for name in ("auth_window", "outage_window", "ssh_window"):
            if has(name):
                begin = self.rng.uniform(0.0, self.calm_at * 0.8)
                self.windows[name] = (begin, begin + self.rng.uniform(30.0, 600.0))
        if has("terminate_window"):
            begin = self.rng.uniform(0.0, self.calm_at * 0.5)
            self.windows["terminate_window"] = (begin, begin + self.rng.uniform(900.0, 2400.0))
            self.calm_at = max(self.calm_at, self.windows["terminate_window"][1])
        self._settle_in(has)

    @property
    def runpod(self) -> bool:
        """Return whether our processes see the cloud through the RunPod adapter."""
        return "runpod" in self.swarm.rates

    # ---------------------------------------------------------------- what the user does

    def _settle_in(self, has: Callable[[str], bool]) -> None:
        """Put the user's job, cancel, and other people's machines into the world."""
        budget = None
        if has("small_budget"):
            budget = Decimal(str(round(self.rng.uniform(0.02, 0.4), 3)))
        max_s = self.rng.uniform(400.0, 1500.0) if has("tight_deadline") else 5400.0
        for number in range(self.rng.choice((1, 1, 1, 2))):
            offers = tuple(
                self.rng.sample(self.cloud.offers, self.rng.randint(1, len(self.cloud.offers)))
            )
            new = NewJob(
                f"{self.rng.getrandbits(24):06x}", f"job-{number}", {}, offers,
                LaunchSpec("ssh-ed25519 AAAA", disk_gib=20),
                Caps(budget, max_s, reserve_usd=budget / 4 if budget else Decimal(0)),
                "/nonexistent",
            )  # fmt: skip
            self.jobs.append(new)
            self.store.create_job(new, now=self.clock.now())
            for kind, latest in (("cancel_early", 90.0), ("cancel_any_time", self.calm_at)):
                if has(kind):
                    self.after(self.rng.uniform(0.0, latest), partial(self._cancel, new))
        if has("foreign_machines"):
            other = label_of(owner8("somebody"), "abc123", 1, "ffffff")
            for label, owner in (
                ("web-server", None),
                (other, "somebody"),
                (label_of(owner8(OWNER), "abc123", 1, "eeeeee"), "somebody"),
                (label_of(owner8(OWNER), "abc123", 2, "dddddd"), None),
            ):
                self.foreign.add(self.cloud.add_foreign(label, owner=owner).id)
        if has("orphan"):
            label = label_of(owner8(OWNER), "0dd0dd", 1, "cccccc")
            deadline = self.clock.now() + self.rng.uniform(300.0, 3000.0)
            request = LaunchRequest(label, OWNER, self.cloud.offers[0], "", deadline, disk_gib=30)
            self.orphan = self.cloud.create(request).id
        self.note_machines()

    def _cancel(self, new: NewJob) -> None:
        self.store.ask_cancel(new.id, now=self.clock.now(), reason=Reason.CANCELLED)
        self.on_wake()

    # ---------------------------------------------------------------- machines

    def note_machines(self) -> None:
        """Give every new machine its inside, and its fate."""
        for event in self.cloud.log[self._seen :]:
            if event.kind is EventKind.CREATED and event.id is not None:
                faults = frozenset(
                    name for name in MACHINE_FAULTS if name != "dearer" and self.swarm.hits(name)
                )
                work_s = self.rng.uniform(30.0, 700.0)
                box = Box(event.id, event.label, faults, work_s)
                self.boxes[event.id] = box
                for name, act in (
                    ("instance_dies", partial(self.cloud.end, event.id, "preempted")),
                    ("instance_stopped", partial(self.cloud.stop, event.id)),
                ):
                    if name in faults and event.id not in self.foreign:
                        when = self.rng.uniform(0.0, 900.0)
                        self.after(when, act)
        self._seen = len(self.cloud.log)

    @contextmanager
    def maybe_dearer(self) -> Iterator[None]:
        """Make what is created within cost more than its offer said, if the swarm says so."""
        before = self.cloud.settings
        if self.swarm.hits("dearer"):
            self.cloud.settings = replace(before, price_factor=Decimal("1.3"))
        try:
            yield
        finally:
            self.cloud.settings = before

    def create_late(self, request: LaunchRequest) -> None:
        """Create what an earlier launch call asked for after all."""
        try:
            self.cloud.create(request)
        except ProviderError:
            return
        self.note_machines()

    def box_at(self, host: str) -> Box | None:
        """Return the machine of a host name, if it exists."""
        machine = next((m for m in self.cloud.machines.values() if m.host == host), None)
        return None if machine is None else self.boxes.get(machine.id)

    def in_window(self, name: str) -> bool:
        """Return whether one of the world's bad times is now."""
        begin, end = self.windows.get(name, (0.0, 0.0))
        return begin <= self.time < end

    def check_window(self) -> None:
        """Raise what every provider call meets now."""
        if self.in_window("auth_window"):
            raise AuthFailed("401")
        if self.in_window("outage_window"):
            raise Unavailable("503")

    # ---------------------------------------------------------------- time

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._queue, (self.time + seconds, next(self._order), act))

    def pending(self) -> bool:
        """Return whether anything is still to come by itself."""
        return bool(self._queue)

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the process that runs now; the others go on."""
        target = self.time + max(0.0, seconds)
        self.run(lambda: self.time >= target, until=target)
        self.time = max(self.time, target)
        if self.running and self.running[-1].killed:
            raise Crash  # ended while it waited: it never comes back from this call

    def run(self, done: Callable[[], bool], *, until: float) -> None:
        """Run everything that is due, in order, until `done` or the time `until`."""
        while not done():
            idle = [a for a in self.actors if a not in self.running]
            actor = min(idle, key=lambda a: a.next_at, default=None)
            at = actor.next_at if actor is not None else float("inf")
            event_at = self._queue[0][0] if self._queue else float("inf")
            if min(at, event_at) > until:
                return
            self.time = max(self.time, min(at, event_at))
            self.steps += 1
            if event_at <= at:
                heapq.heappop(self._queue)[2]()
            elif actor is not None:
                self.running.append(actor)
                try:
                    actor.step()
                finally:
                    self.running.remove(actor)

    def on_point(self, name: str) -> None:
        """End or pause the process that runs now, if the swarm says so."""
        if not self.running:
            return
        if self.swarm.hits("crash"):
            raise Crash
        if name in EFFECTS and self.swarm.hits("crash_at_effect"):
            raise Crash
        if len(self.running) > 1:
            return
        self.asleep_after_check = False
        if self.swarm.hits("pause"):
            self.asleep_after_check = name.startswith("provider.before")
            self._sleep(self.rng.uniform(10.0, 3 * LIMITS.lease_s))
        if name in BEFORE_EFFECTS and self.swarm.hits("pause_at_effect"):
            # Between the intent and the last look at the lease: the worst moment to fall asleep.
            self._sleep(self.rng.uniform(1.5, 4.0) * LIMITS.lease_s)

    def _sleep(self, seconds: float) -> None:
        self.down.append((self.time, self.time + seconds))
        self.pass_time(seconds)


def _offers(rng: random.Random) -> tuple[Offer, ...]:
    """Return the catalogue; in half of the worlds its disks cost extra."""
    extra = Decimal(rng.choice(("0", "0.0001")))
    return tuple(replace(offer, storage_usd_per_gib_hour=extra) for offer in DEFAULT_OFFERS)


def _runpod_offers() -> tuple[Offer, ...]:
    """Return the same as RunPod sells them."""
    return tuple(
        replace(
            offer, provider="runpod", key=OfferKey(offer_key(offer.gpu, offer.gpu_count)),
            storage_usd_per_gib_hour=STORAGE_RATE, least_disk_gib=30,
        )
        for offer in DEFAULT_OFFERS
        if not offer.interruptible
    )  # fmt: skip
