"""The contract bites: each planted bug makes the tests fail that are named beside it.

A mutant is `fake` with a verb replaced. A bug may fail further tests, but must fail the named one,
which is the one that was written against it; and every test of the contract has such a bug.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from providers.base import HostKey, Instance, InstanceId, InstanceState, LaunchRequest, OfferKey
from providers.errors import InvalidRequest, NotFound
from providers.fake import FakeProvider, FakeSettings
from tests.contract.fake_harness import FakeHarness
from tests.contract.provider_contract import ProviderContract


class Mutant:
    """`fake` with some verbs replaced by functions of (fake, argument)."""

    def __init__(self, fake: FakeProvider, **verbs: Callable[..., Any]) -> None:
        self.fake = fake
        self.name = fake.name
        self.traits = fake.traits
        self._verbs = verbs

    def offers(self) -> Any:
        return self._verbs.get("offers", FakeProvider.offers)(self.fake)

    def launch(self, request: LaunchRequest) -> Any:
        return self._verbs.get("launch", FakeProvider.launch)(self.fake, request)

    def describe(self, instance_id: InstanceId) -> Any:
        return self._verbs.get("describe", FakeProvider.describe)(self.fake, instance_id)

    def find(self, label_prefix: str) -> Any:
        return self._verbs.get("find", FakeProvider.find)(self.fake, label_prefix)

    def terminate(self, instance_id: InstanceId) -> Any:
        return self._verbs.get("terminate", FakeProvider.terminate)(self.fake, instance_id)


def _launch_dearer(fake: FakeProvider, request: LaunchRequest) -> Instance:
    return replace(fake.launch(request), price_usd_per_hour=Decimal(9))


def _launch_and_wait(fake: FakeProvider, request: LaunchRequest) -> Instance:
    fake.cloud.clock.sleep(90)
    return fake.launch(request)


def _launch_idempotent(fake: FakeProvider, request: LaunchRequest) -> Instance:
    return next(iter(fake.find(request.label)), None) or fake.launch(request)


def _launch_one_for_all(fake: FakeProvider, request: LaunchRequest) -> Instance:
    old = next(iter(fake.find("")), None)
    return replace(old, label=request.label) if old else fake.launch(request)


def _launch_any_offer(fake: FakeProvider, request: LaunchRequest) -> Instance:
    return fake.launch(replace(request, offer=fake.offers()[0]))


def _launch_without_deadline(fake: FakeProvider, request: LaunchRequest) -> Instance:
    instance = fake.launch(request)
    fake.cloud.machines[instance.id].deadline_at = None
    return instance


def _launch_deadline_too_early(fake: FakeProvider, request: LaunchRequest) -> Instance:
    instance = fake.launch(request)
    middle = (request.deadline_at + fake.cloud.clock.now()) / 2
    fake.cloud.machines[instance.id].deadline_at = middle
    return instance


def _launch_ownerless(fake: FakeProvider, request: LaunchRequest) -> Instance:
    return fake.launch(replace(request, owner="nobody"))


def _launch_renaming(fake: FakeProvider, request: LaunchRequest) -> Instance:
    return fake.launch(replace(request, label=request.label.strip("-./")))


def _launch_crashing(fake: FakeProvider, request: LaunchRequest) -> Instance:
    if request.offer.key not in {o.key for o in fake.offers()}:
        raise KeyError(request.offer.key)
    return fake.launch(request)


def _describe_gone_for_unknown(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    try:
        return fake.describe(instance_id)
    except NotFound:
        return Instance(instance_id, "", InstanceState.GONE)


def _describe_by_prefix(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    for machine in fake.cloud.living():
        if machine.id.startswith(instance_id):
            return fake.describe(machine.id)
    return fake.describe(instance_id)


def _describe_never_ready(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    return replace(fake.describe(instance_id), state=InstanceState.STARTING)


def _describe_without_host(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    return replace(fake.describe(instance_id), host=None)


def _describe_new_key(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    key = fake.cloud.rng.randbytes(4).hex()
    return replace(fake.describe(instance_id), host_key=HostKey("ssh-ed25519", key * 4))


def _describe_forgets_key(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    return replace(fake.describe(instance_id), host_key=None)


def _describe_gone_while_living(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    machine = fake.describe(instance_id)
    return replace(machine, state=InstanceState.GONE) if machine.host else machine


def _find_all(fake: FakeProvider, _prefix: str) -> Sequence[Instance]:
    return fake.find("")


def _find_substring(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    return tuple(i for i in fake.find("") if prefix in i.label)


def _find_exact(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    return tuple(i for i in fake.find("") if i.label == prefix or not prefix)


def _find_first(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    return tuple(fake.find(prefix))[:1]


def _find_mine(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    return tuple(i for i in fake.find(prefix) if i.owner == "me")


def _find_anonymous(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    return tuple(replace(i, owner="me") for i in fake.find(prefix))


def _find_or_not_found(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    found = fake.find(prefix)
    if not found:
        raise NotFound(prefix)
    return found


def _find_keeps_the_dead(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    every = [m for m in fake.cloud.machines.values() if m.label.startswith(prefix)]
    return tuple(Instance(m.id, m.label, InstanceState.UNKNOWN) for m in every)


def _find_blinks(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
    fake.cloud.credit_usd = None if fake.cloud.credit_usd else Decimal(1)
    return fake.find(prefix) if fake.cloud.credit_usd else ()


def _terminate_nothing(_fake: FakeProvider, _instance_id: InstanceId) -> None:
    return


def _terminate_stops(fake: FakeProvider, instance_id: InstanceId) -> None:
    if instance_id in fake.cloud.machines:
        fake.cloud.stop(instance_id)


def _terminate_all(fake: FakeProvider, instance_id: InstanceId) -> None:
    machine = fake.cloud.machines.get(instance_id)
    for other in fake.cloud.living():
        if machine is not None and other.label.startswith(machine.label):
            fake.terminate(other.id)


def _terminate_or_not_found(fake: FakeProvider, instance_id: InstanceId) -> None:
    fake.describe(instance_id)
    fake.terminate(instance_id)


def _terminate_ready_only(fake: FakeProvider, instance_id: InstanceId) -> None:
    machine = fake.cloud.machines.get(instance_id)
    if machine is None or fake.cloud.reachable(instance_id):
        fake.terminate(instance_id)


def _terminate_crashing(fake: FakeProvider, instance_id: InstanceId) -> None:
    if not instance_id or instance_id.startswith("."):
        raise ValueError(instance_id)
    fake.terminate(instance_id)


def _offers_in_floats(fake: FakeProvider) -> Any:
    return [replace(o, price_usd_per_hour=0.4) for o in fake.offers()]  # type: ignore[arg-type]


def _offers_same_key(fake: FakeProvider) -> Any:
    return [replace(o, key=OfferKey("x")) for o in fake.offers()]


def _offers_of_another(fake: FakeProvider) -> Any:
    return [replace(o, provider="other") for o in fake.offers()]


def _offers_renumbered(fake: FakeProvider) -> Any:
    draw = fake.cloud.rng.getrandbits(24)
    return [replace(o, key=OfferKey(f"{o.key}-{draw}")) for o in fake.offers()]


def _describe_one_key(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    return replace(fake.describe(instance_id), host_key=HostKey("ssh-ed25519", "AAAA"))


def _describe_revives(fake: FakeProvider, instance_id: InstanceId) -> Instance:
    machine = fake.cloud.machines.get(instance_id)
    if machine is not None and machine.ended_by == "self":
        return Instance(machine.id, machine.label, InstanceState.READY)
    return fake.describe(instance_id)


def _no_boot_time(fake: FakeProvider) -> Mutant:
    mutant = Mutant(fake)
    mutant.traits = replace(fake.traits, boot_timeout_s=0)
    return mutant


def _remembering(fake: FakeProvider) -> Mutant:
    """A bug of memory: a process that knows only what it launched itself."""
    mine: set[InstanceId] = set()

    def launch(fake: FakeProvider, request: LaunchRequest) -> Instance:
        instance = fake.launch(request)
        mine.add(instance.id)
        return instance

    def find(fake: FakeProvider, prefix: str) -> Sequence[Instance]:
        return tuple(i for i in fake.find(prefix) if i.id in mine)

    def terminate(fake: FakeProvider, instance_id: InstanceId) -> None:
        if instance_id in mine:
            fake.terminate(instance_id)

    return Mutant(fake, launch=launch, find=find, terminate=terminate)


def planted(**verbs: Callable[..., Any]) -> Callable[[FakeProvider], Mutant]:
    return lambda fake: Mutant(fake, **verbs)


BUGS: list[tuple[str, Callable[[FakeProvider], Mutant]]] = [
    ("test_price_is_the_quoted_one", planted(launch=_launch_dearer)),
    ("test_launch_does_not_wait", planted(launch=_launch_and_wait)),
    ("test_one_label_twice_is_refused_or_is_two_machines", planted(launch=_launch_idempotent)),
    ("test_two_launches_are_two_machines", planted(launch=_launch_one_for_all)),
    ("test_an_unknown_offer_is_refused_and_leaves_nothing", planted(launch=_launch_any_offer)),
    ("test_an_unknown_offer_is_refused_and_leaves_nothing", planted(launch=_launch_crashing)),
    ("test_the_instance_ends_itself_at_its_deadline", planted(launch=_launch_without_deadline)),
    ("test_the_instance_ends_itself_at_its_deadline", planted(launch=_launch_deadline_too_early)),
    ("test_a_deadline_in_the_past_leaves_no_machine", planted(launch=_launch_without_deadline)),
    ("test_launch_returns_what_was_asked_for", planted(launch=_launch_ownerless)),
    ("test_an_odd_label_is_refused_or_kept_exactly", planted(launch=_launch_renaming)),
    ("test_describe_of_the_unknown_is_not_found", planted(describe=_describe_gone_for_unknown)),
    ("test_describe_of_the_unknown_is_not_found", planted(describe=_describe_by_prefix)),
    ("test_it_becomes_reachable_within_its_boot_timeout", planted(describe=_describe_never_ready)),
    ("test_it_becomes_reachable_within_its_boot_timeout", planted(describe=_describe_without_host)),
    ("test_the_host_key_told_is_the_one_shown", planted(describe=_describe_new_key)),
    ("test_reading_changes_nothing", planted(describe=_describe_new_key)),
    ("test_describe_keeps_the_facts_of_the_launch", planted(describe=_describe_forgets_key)),
    ("test_terminate_touches_no_other", planted(describe=_describe_gone_while_living)),
    ("test_find_never_returns_another_prefix", planted(find=_find_all)),
    ("test_find_never_returns_another_prefix", planted(find=_find_substring)),
    ("test_find_sees_by_label_and_by_prefix", planted(find=_find_exact)),
    ("test_find_takes_a_prefix_for_a_prefix", planted(find=_find_first)),
    ("test_find_shows_whose_it_is", planted(find=_find_mine)),
    ("test_find_shows_whose_it_is", planted(find=_find_anonymous)),
    ("test_find_never_returns_another_prefix", planted(find=_find_or_not_found)),
    ("test_terminated_is_gone_for_good", planted(find=_find_keeps_the_dead)),
    ("test_find_and_describe_agree", planted(find=_find_keeps_the_dead)),
    ("test_reading_changes_nothing", planted(find=_find_blinks)),
    ("test_terminated_is_gone_for_good", planted(terminate=_terminate_nothing)),
    ("test_terminated_is_gone_for_good", planted(terminate=_terminate_stops)),
    ("test_terminate_touches_no_other", planted(terminate=_terminate_all)),
    ("test_terminate_of_the_unknown_is_success", planted(terminate=_terminate_or_not_found)),
    ("test_terminate_twice_and_after_the_end", planted(terminate=_terminate_or_not_found)),
    ("test_terminate_may_follow_launch_at_once", planted(terminate=_terminate_ready_only)),
    ("test_odd_ids_meet_only_provider_errors", planted(terminate=_terminate_crashing)),
    ("test_offers_are_well_formed", planted(offers=_offers_in_floats)),
    ("test_offers_are_well_formed", planted(offers=_offers_same_key)),
    ("test_offers_are_well_formed", planted(offers=_offers_of_another)),
    ("test_offers_can_be_read_twice_and_by_others", planted(offers=_offers_renumbered)),
    ("test_another_process_finds_what_it_never_launched", _remembering),
    ("test_another_process_can_terminate", _remembering),
    ("test_traits_are_sane", _no_boot_time),
    ("test_two_machines_have_two_host_keys", planted(describe=_describe_one_key)),
    ("test_a_machine_can_end_itself", planted(describe=_describe_revives)),
]
# How a bug shows: an assertion, or an error where none belongs.
CAUGHT = (AssertionError, LookupError, ValueError, NotFound, InvalidRequest, pytest.fail.Exception)
# A boot delay, because a machine that is not ready at once is where half of the bugs hide.
SETTINGS = FakeSettings(boot_delay_s=20)


def cases_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments beside the harness that pytest would pass to a test of the contract."""
    for mark in getattr(getattr(ProviderContract, name), "pytestmark", []):
        for value in mark.args[1]:
            yield {mark.args[0]: value}
        return
    yield {}


@pytest.mark.parametrize(("name", "wrap"), BUGS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BUGS)])
def test_a_planted_bug_is_caught(name: str, wrap: Callable[[FakeProvider], Mutant]) -> None:
    def run(wrapped: Callable[[FakeProvider], Any]) -> None:
        for case in cases_of(name):
            getattr(ProviderContract(), name)(FakeHarness(SETTINGS, wrapped), **case)

    run(lambda fake: fake)  # sound without the bug
    with pytest.raises(CAUGHT):
        run(wrap)


def test_every_test_of_the_contract_has_a_bug_to_catch() -> None:
    every = {n for n, _ in inspect.getmembers(ProviderContract) if n.startswith("test_")}
    assert every - {n for n, _ in BUGS} == set()
