"""The fake cloud: its bill, its lags, and every fault that the hook can ask for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from providers.base import Account, Billing, InstanceState, LaunchRequest
from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.fake import (
    DEFAULT_OFFERS,
    EventKind,
    FakeCloud,
    FakeProvider,
    FakeSettings,
    Fault,
    Phase,
    Verb,
    billed_seconds,
    rehearsal,
)
from tests.support.clocks import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def make(clock: VirtualClock, *, seed: int = 1, **settings: object) -> FakeProvider:
    return FakeProvider(FakeCloud(clock, random.Random(seed), FakeSettings(**settings)))  # type: ignore[arg-type]


def request(clock: VirtualClock, label: str = "job-1", offer: int = 0) -> LaunchRequest:
    return LaunchRequest(label, "me", DEFAULT_OFFERS[offer], "ssh-ed25519 AAAA", clock.now() + 3600)


def once(verb: Verb, phase: Phase, fault: Fault) -> Callable[[Verb, Phase], Fault | None]:
    left = [fault]
    return lambda v, p: left.pop() if left and (v, p) == (verb, phase) else None


@pytest.mark.parametrize(
    ("lasted", "step", "expected"),
    [
        (0.0, 1.0, "0"),
        (0.2, 1.0, "1"),
        (59.999, 60.0, "60"),
        (60.0, 60.0, "60"),
        (60.001, 60.0, "120"),
        (1.5, 0.0, "1.5"),
        (-3.0, 1.0, "0"),
        (0.30000000000000004, 0.1, "0.3"),
    ],
)
def test_billed_seconds(lasted: float, step: float, expected: str) -> None:
    assert billed_seconds(0.0, lasted, step) == Decimal(expected)


def test_bill_runs_from_creation_to_the_real_end_and_rounds_up(clock: VirtualClock) -> None:
    fake = make(clock, billing_step_s=60, price_factor=Decimal("1.5"))
    instance = fake.launch(request(clock, offer=2))
    assert instance.price_usd_per_hour == Decimal("2.400")
    clock.advance(61)
    assert fake.cloud.bill(instance.id) == Decimal("2.4") * 120 / 3600
    assert fake.billed(instance.id, 0, clock.now()) is None
    fake.terminate(instance.id)
    clock.advance(7200)
    assert fake.cloud.bill(instance.id) == fake.cloud.total_bill() == Decimal("0.08")
    assert fake.billed(instance.id, 0, clock.now()) == Decimal("0.08")
    assert [e.usd for e in fake.cloud.log if e.kind is EventKind.BILLED] == [Decimal("0.08")]


def test_a_stopped_machine_bills_storage_only(clock: VirtualClock) -> None:
    cloud = FakeCloud(
        clock,
        random.Random(1),
        offers=(replace(DEFAULT_OFFERS[0], storage_usd_per_gib_hour=Decimal("0.001")),),
    )
    fake = FakeProvider(cloud)
    instance = fake.launch(replace(request(clock), disk_gib=100, offer=cloud.offers[0]))
    clock.advance(1800)
    cloud.stop(instance.id)
    assert fake.describe(instance.id).state is InstanceState.STOPPED
    assert not cloud.reachable(instance.id)
    clock.advance(1800)
    fake.terminate(instance.id)
    assert cloud.bill(instance.id) == Decimal("0.40") / 2 + Decimal("0.1")


def test_lags_hide_the_new_and_show_the_deleted(clock: VirtualClock) -> None:
    fake = make(clock, list_lag_s=10, describe_lag_s=2)
    instance = fake.launch(request(clock))
    assert fake.find("job-") == ()
    with pytest.raises(NotFound):
        fake.describe(instance.id)
    clock.advance(2)
    assert fake.describe(instance.id).id == instance.id
    clock.advance(8)
    assert [i.id for i in fake.find("job-")] == [instance.id]
    fake.terminate(instance.id)
    assert fake.cloud.living() == []
    clock.advance(9.5)
    assert [i.id for i in fake.find("job-")] == [instance.id]
    with pytest.raises(NotFound):
        fake.describe(instance.id)
    clock.advance(0.5)
    assert fake.find("job-") == ()


def test_boot_then_ssh(clock: VirtualClock) -> None:
    fake = make(clock, boot_delay_s=30, ssh_delay_s=5)
    instance = fake.launch(request(clock))
    assert (instance.state, instance.host, instance.port) == (InstanceState.STARTING, None, None)
    clock.advance(30)
    ready = fake.describe(instance.id)
    assert ready.state is InstanceState.READY
    assert ready.host
    assert ready.port
    assert not fake.cloud.reachable(instance.id)
    clock.advance(5)
    assert fake.cloud.reachable(instance.id)


def test_the_cloud_ends_a_machine_at_its_deadline_to_the_second(clock: VirtualClock) -> None:
    fake = make(clock)
    instance = fake.launch(request(clock))
    clock.advance(86400)
    machine = fake.cloud.living() or fake.cloud.machines[instance.id]
    assert not isinstance(machine, list)
    assert (machine.ended_by, machine.deleted_at) == ("deadline", machine.deadline_at)
    assert fake.cloud.bill(instance.id) == Decimal("0.40")


def test_without_the_switch_nothing_ends_it(clock: VirtualClock) -> None:
    fake = make(clock, enforces_deadline=False)
    instance = fake.launch(request(clock))
    clock.advance(86400)
    assert [m.id for m in fake.cloud.living()] == [instance.id]


def test_refusals_create_nothing(clock: VirtualClock) -> None:
    fake = make(clock, unique_labels=True)
    fake.cloud.sold_out.add(DEFAULT_OFFERS[1].key)
    with pytest.raises(NoCapacity):
        fake.launch(request(clock, offer=1))
    with pytest.raises(InvalidRequest):
        fake.launch(
            replace(request(clock), offer=replace(DEFAULT_OFFERS[0], key="nope"))  # type: ignore[arg-type]
        )
    fake.launch(request(clock))
    with pytest.raises(InvalidRequest):
        fake.launch(request(clock))
    fake.cloud.credit_usd = Decimal("0.10")
    assert fake.balance() == Decimal("0.10")
    clock.advance(1000)
    with pytest.raises(QuotaExceeded):
        fake.launch(request(clock, label="job-2"))
    assert len(fake.cloud.machines) == 1
    assert sum(e.kind is EventKind.REFUSED for e in fake.cloud.log) == 4


def test_foreign_machines_are_seen_but_not_in_our_bill(clock: VirtualClock) -> None:
    fake = make(clock)
    foreign = fake.cloud.add_foreign("somebody", owner="them")
    clock.advance(3600)
    assert foreign.foreign
    assert fake.cloud.total_bill() == 0
    assert fake.cloud.total_bill(ids=[foreign.id]) == Decimal("0.40")
    assert [i.owner for i in fake.find("some")] == ["them"]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("503"),
        NoCapacity("sold out"),
        AuthFailed("401"),
        RateLimited("429", retry_after_s=7),
    ],
)
@pytest.mark.parametrize(("phase", "created"), [(Phase.BEFORE, 0), (Phase.AFTER, 1)])
def test_an_error_before_has_no_effect_and_after_it_the_reply_is_lost(
    clock: VirtualClock, error: Exception, phase: Phase, created: int
) -> None:
    fake = make(clock)
    fake.faults = once(Verb.LAUNCH, phase, Fault(error=error))  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        fake.launch(request(clock))
    assert len(fake.cloud.living()) == created
    fake.launch(request(clock))
    assert len(fake.cloud.living()) == created + 1  # a blind second launch is a second machine


def test_terminate_that_lies(clock: VirtualClock) -> None:
    fake = make(clock)
    instance = fake.launch(request(clock))
    fake.faults = once(Verb.TERMINATE, Phase.BEFORE, Fault(swallow=True))
    fake.terminate(instance.id)
    assert fake.cloud.living()
    fake.faults = once(Verb.TERMINATE, Phase.BEFORE, Fault(late_reads=2))
    fake.terminate(instance.id)
    fake.describe(instance.id)
    fake.find("job-1")
    assert fake.cloud.living()
    with pytest.raises(NotFound):
        fake.describe(instance.id)
    assert fake.cloud.machines[instance.id].terminate_calls == 2
    asked = [e.detail for e in fake.cloud.log if e.kind is EventKind.TERMINATE_ASKED]
    assert asked == ["swallowed", ""]


def test_find_omits_a_living_machine_once(clock: VirtualClock) -> None:
    fake = make(clock)
    ids = {fake.launch(request(clock, f"job-{n}")).id for n in range(3)}
    fake.faults = once(Verb.FIND, Phase.AFTER, Fault(omit=True))
    assert len({i.id for i in fake.find("job-")} & ids) == 2
    assert {i.id for i in fake.find("job-")} == ids


def test_a_hang_moves_the_clock_and_leaves_the_cloud_free(clock: VirtualClock) -> None:
    fake = make(clock)
    fake.faults = once(Verb.FIND, Phase.BEFORE, Fault(hang_s=30, error=Unavailable("timeout")))
    began = clock.now()
    with pytest.raises(Unavailable):
        fake.find("")
    assert clock.now() == began + 30


def test_one_seed_one_history(clock: VirtualClock) -> None:
    def history(seed: int) -> list[object]:
        fake = make(VirtualClock(), seed=seed)
        fake.faults = lambda v, p: Fault(omit=True) if v is Verb.FIND else None
        for n in range(5):
            fake.launch(request(clock, f"job-{n}"))
        return [*fake.cloud.log, [i.id for i in fake.find("job-")]]

    assert history(7) == history(7)
    assert history(7) != history(8)


def test_many_threads(clock: VirtualClock) -> None:
    fake = make(clock)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(50):
                instance = fake.launch(request(clock, f"job-{number}-{n}"))
                clock.advance(0.01)
                assert len(fake.find(f"job-{number}-{n}")) == 1
                fake.terminate(instance.id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(fake.cloud.machines) == 400
    assert fake.cloud.living() == []


def test_it_is_a_full_citizen(clock: VirtualClock) -> None:
    fake = rehearsal(clock)
    assert isinstance(fake, Billing)
    assert isinstance(fake, Account)
    assert fake.balance() is None
    with pytest.raises(NotFound):
        fake.billed(fake.launch(request(clock)).id[:-1], 0, 1)  # type: ignore[arg-type]
