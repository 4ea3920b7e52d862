"""`gpujob rehearse`: a job against a made-up cloud in which one thing goes wrong.

The real runner, journal and rules, on a clock that leaps from one thing due to the next; machine,
training and provider are made up. Nothing is rented, nothing is sent, nothing stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator import events as ev
from orchestrator.rehearsal_site import RehearsalClock, Theatre
from orchestrator.states import Reason
from providers.errors import AuthFailed, NoCapacity, ProviderError, Unavailable
from providers.fake import FakeCloud, FakeProvider, FakeSettings, Fault, Phase, Verb
from providers.fake_cloud import DEFAULT_OFFERS

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.runner import Happening
    from orchestrator.store import Store
    from orchestrator.submit import Plan
    from orchestrator.views import JobView

BOOT_S, LIST_LAG_S = 90.0, 5.0
LONGEST_S = 40 * 86_400.0  # of a rehearsal's own time: beyond any `limits.hours`
TURNS = 20_000


@dataclass
class Stage:
    """The made-up world. plan: what the provider answers next, by verb and phase."""

    clock: RehearsalClock
    cloud: FakeCloud
    provider: FakeProvider
    theatre: Theatre
    plan: dict[tuple[Verb, Phase], list[Fault]] = field(default_factory=dict)
    in_training: Callable[[Stage], None] | None = None  # happens once, when it trains

    def answer(self, verb: Verb, *errors: ProviderError, phase: Phase = Phase.BEFORE) -> None:
        """Let the next calls of a verb fail."""
        self.plan[verb, phase] = [Fault(error=error) for error in errors]

    def fault(self, verb: Verb, phase: Phase) -> Fault | None:
        """Return what goes wrong with this call."""
        waiting = self.plan.get((verb, phase))
        return waiting.pop(0) if waiting else None


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing that goes wrong, and how it is brought about."""

    what: str
    arm: Callable[[Stage], None]


def _vanish(stage: Stage) -> None:
    for machine in stage.cloud.living():
        stage.cloud.end(machine.id, "lost")


def _end_of_training(reason: Reason, evidence: str) -> Callable[[Stage], None]:
    def arm(stage: Stage) -> None:
        stage.theatre.ends, stage.theatre.evidence = reason, evidence

    return arm


def _lie(stage: Stage) -> None:
    stage.plan[Verb.TERMINATE, Phase.BEFORE] = [Fault(swallow=True)]


def _dearer(stage: Stage) -> None:
    stage.cloud.settings = replace(stage.cloud.settings, price_factor=Decimal(2))


def _in_training(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def arm(stage: Stage) -> None:
        stage.in_training = act

    return arm


def _unreachable(stage: Stage) -> None:
    stage.theatre.unreachable = True


SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "none": Scene("nothing goes wrong", lambda _: None),
        "sold-out": Scene(
            "the first offer is gone when it is asked for",
            lambda s: s.answer(Verb.LAUNCH, NoCapacity("no instances available")),
        ),
        "create-lost": Scene(
            "the launch is made, and its answer is lost",
            lambda s: s.answer(Verb.LAUNCH, Unavailable("timeout"), phase=Phase.AFTER),
        ),
        "key-refused": Scene(
            "the account's key is refused", lambda s: s.answer(Verb.LAUNCH, AuthFailed("401"))
        ),
        "dearer": Scene("the machine costs twice its quote", _dearer),
        "never-reachable": Scene("the machine runs, and no login ever succeeds", _unreachable),
        "machine-lost": Scene("the machine vanishes in the training", _in_training(_vanish)),
        "provider-down": Scene(
            "the provider's API fails for a while in the training",
            _in_training(
                lambda s: s.answer(Verb.FIND, *[Unavailable("502")] * 10)
            ),
        ),
        "out-of-memory": Scene(
            "the training runs out of GPU memory",
            _end_of_training(Reason.OUT_OF_MEMORY, "CUDA out of memory"),
        ),
        "diverged": Scene("the loss is no number", _end_of_training(Reason.DIVERGED, "loss nan")),
        "end-refused": Scene(
            "the end of the machine fails eight times",
            lambda s: s.answer(Verb.TERMINATE, *[Unavailable("500")] * 8),
        ),
        "end-lie": Scene("the provider says that it ended the machine, and did not", _lie),
    }
)  # fmt: skip


def stage_of(name: str, start: float) -> Stage:
    """Return the made-up world of a scene. Raises KeyError."""
    scene = SCENES[name]
    clock = RehearsalClock(start)
    settings = FakeSettings(boot_delay_s=BOOT_S, list_lag_s=LIST_LAG_S)
    offers = tuple(replace(offer, price_is_notional=True) for offer in DEFAULT_OFFERS)
    cloud = FakeCloud(clock, random.Random(0), settings, offers)  # noqa: S311 - repeatable
    provider = FakeProvider(cloud)
    theatre = Theatre(clock, lives=lambda label: any(m.label == label for m in cloud.living()))
    stage = Stage(clock, cloud, provider, theatre)
    provider.faults = stage.fault
    scene.arm(stage)
    return stage


def play(
    stage: Stage,
    planned: Plan,
    store: Store,
    home: Home,
    tell: Callable[[float, ev.AnyEvent], None],
) -> JobView:
    """Return the job as it ended. tell: hears each event, with the seconds since the beginning."""
    from orchestrator.runner import Runner
    from orchestrator.submit import store_job

    began = stage.clock.now()

    def hear(happening: Happening) -> None:
        if happening.event is not None:
            tell(happening.event.at - began, happening.event)
        if isinstance(happening.event, ev.TrainerStarted) and stage.in_training is not None:
            act, stage.in_training = stage.in_training, None
            act(stage)

    job_id = store_job(planned, store, home, now=began)
    runner = Runner(
        store, {"fake": stage.provider}, stage.theatre.make, home, stage.clock, "rehearsal",
        listeners=[hear],
    )  # fmt: skip
    driver = runner.take(job_id)
    if driver is None:
        raise RuntimeError("a job of our own could not be taken")
    try:
        for _ in range(TURNS):
            again = driver.tick()
            if again is None or stage.clock.monotonic() > LONGEST_S:
                break
            stage.clock.sleep(max(0.001, again - stage.clock.now()))
    finally:
        driver.release()
    return store.job(job_id, now=stage.clock.now())


def scenes_text() -> list[str]:
    """Return a line for each scene."""
    width = max(map(len, SCENES))
    return [f"{name:<{width}}  {scene.what}" for name, scene in SCENES.items()]
