"""What every provider promises, whoever the vendor. Subclass it and give it a `harness` fixture.

Nothing here names a vendor, and time passes through the harness's clock only: on a virtual clock
the suite takes no time, on a real one it waits as long as `Traits` say that the provider may lag.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

import pytest

from orchestrator.clock import Clock
from providers.base import (
    HostKey,
    Instance,
    InstanceId,
    InstanceState,
    LaunchRequest,
    OfferKey,
    Provider,
)
from providers.errors import InvalidRequest, NoCapacity, NotFound, ProviderError

ONE_HTTP_TIMEOUT_S = 30.0  # no verb may block for longer
LIVING = frozenset(InstanceState) - {InstanceState.GONE}


class Harness(Protocol):
    """What the suite needs beside the provider: clock, other processes, the machine's side."""

    provider: Provider
    clock: Clock
    step_s: float  # between two looks
    slack_s: float  # how late a real machine may be, beyond its traits
    life_s: float  # a life long enough to be seen, short enough to be waited out

    def sibling(self) -> Provider:
        """Return the same account as another process sees it, with no memory of ours."""
        ...

    def request(self, label: str, lifetime_s: float = 3600.0) -> LaunchRequest:
        """Return a request for the cheapest offer."""
        ...

    def seen_host_key(self, instance: Instance) -> HostKey:
        """Return the host key that the ready machine really shows."""
        ...

    def self_destruct(self, instance: Instance) -> None:
        """Run `traits.self_destruct` on the ready machine."""
        ...


def new_label() -> str:
    return f"gpujob-contract-{uuid.uuid4().hex[:12]}"


def until(harness: Harness, limit_s: float, done: Callable[[], bool]) -> bool:
    """Return whether `done` came true within the limit."""
    end = harness.clock.monotonic() + limit_s
    while not done():
        if harness.clock.monotonic() >= end:
            return False
        harness.clock.sleep(harness.step_s)
    return True


def listed(provider: Provider, label: str) -> list[InstanceId]:
    return [i.id for i in provider.find(label) if i.state is not InstanceState.GONE]


def absent(provider: Provider, instance: Instance) -> bool:
    """Return whether one look at both reads says that the machine is no more."""
    try:
        state = provider.describe(instance.id).state
    except NotFound:
        state = InstanceState.GONE
    return state is InstanceState.GONE and instance.id not in listed(provider, instance.label)


def alike(one: Instance, other: Instance) -> bool:
    """Return whether two reads tell the same; describe alone may know the host key."""
    if one.host_key is None or other.host_key is None:
        one, other = replace(one, host_key=None), replace(other, host_key=None)
    return one == other


class ProviderContract:
    """About thirty promises. Each test makes its own machines and labels."""

    # ---------------------------------------------------------------- helpers

    def launch(self, h: Harness, label: str | None = None, life_s: float = 3600.0) -> Instance:
        """Launch and wait until both reads know the machine."""
        instance = h.provider.launch(h.request(label or new_label(), life_s))
        lag_s = h.provider.traits.list_lag_s + h.slack_s
        assert until(h, lag_s, lambda: instance.id in listed(h.provider, instance.label))
        return instance

    def ready(self, h: Harness, label: str | None = None, life_s: float = 3600.0) -> Instance:
        instance = self.launch(h, label, life_s)
        assert until(
            h,
            h.provider.traits.boot_timeout_s,
            lambda: h.provider.describe(instance.id).state is InstanceState.READY,
        )
        return h.provider.describe(instance.id)

    def assert_goes(self, h: Harness, instance: Instance, provider: Provider | None = None) -> None:
        """Assert that two looks, a lag apart, both miss it."""
        reader = provider or h.provider
        lag_s = reader.traits.list_lag_s + h.slack_s
        assert until(h, lag_s, lambda: absent(reader, instance))
        h.clock.sleep(max(reader.traits.list_lag_s, h.step_s))
        assert absent(reader, instance)

    # ---------------------------------------------------------------- traits and offers

    def test_traits_are_sane(self, harness: Harness) -> None:
        traits = harness.provider.traits
        assert harness.provider.name
        assert traits.list_lag_s >= 0
        assert traits.boot_timeout_s > 0
        assert traits.billing_step_s >= 0
        assert traits.self_destruct is None or traits.self_destruct.strip()

    def test_offers_are_well_formed(self, harness: Harness) -> None:
        offers = harness.provider.offers()
        assert offers
        for offer in offers:
            assert offer.provider == harness.provider.name
            assert offer.key
            assert offer.gpu_count >= 0
            for money in (offer.price_usd_per_hour, offer.storage_usd_per_gib_hour):
                assert isinstance(money, Decimal)
                assert money.is_finite()
                assert money >= 0
            if offer.gpu == "CPU":
                assert offer.vram_gib == 0
            else:
                assert offer.gpu_count >= 1
                assert offer.vram_gib > 0
        assert len({o.key for o in offers}) == len(offers)

    def test_offers_can_be_read_twice_and_by_others(self, harness: Harness) -> None:
        keys = {o.key for o in harness.provider.offers()}
        assert {o.key for o in harness.provider.offers()} == keys
        assert {o.key for o in harness.sibling().offers()} == keys

    # ---------------------------------------------------------------- launch

    def test_launch_returns_what_was_asked_for(self, harness: Harness) -> None:
        request = harness.request(new_label())
        instance = harness.provider.launch(request)
        assert instance.id
        assert instance.label == request.label
        assert instance.owner == request.owner
        assert instance.state in {InstanceState.STARTING, InstanceState.READY}

    def test_launch_does_not_wait(self, harness: Harness) -> None:
        began = harness.clock.monotonic()
        harness.provider.launch(harness.request(new_label()))
        assert harness.clock.monotonic() - began <= ONE_HTTP_TIMEOUT_S

    def test_price_is_the_quoted_one(self, harness: Harness) -> None:
        request = harness.request(new_label())
        launched = harness.provider.launch(request)
        described = self.ready(harness)
        for instance in (launched, described):
            price = instance.price_usd_per_hour
            assert price is None or price == request.offer.price_usd_per_hour

    def test_two_launches_are_two_machines(self, harness: Harness) -> None:
        one, two = self.launch(harness), self.launch(harness)
        assert one.id != two.id
        assert harness.provider.describe(one.id).label == one.label
        assert harness.provider.describe(two.id).label == two.label

    def test_one_label_twice_is_refused_or_is_two_machines(self, harness: Harness) -> None:
        first = self.launch(harness)
        try:
            second = harness.provider.launch(harness.request(first.label))
        except InvalidRequest:
            assert listed(harness.provider, first.label) == [first.id]
            return
        assert second.id != first.id
        lag_s = harness.provider.traits.list_lag_s + harness.slack_s
        both = {first.id, second.id}
        assert until(harness, lag_s, lambda: set(listed(harness.provider, first.label)) == both)

    def test_an_unknown_offer_is_refused_and_leaves_nothing(self, harness: Harness) -> None:
        request = harness.request(new_label())
        unknown = replace(request.offer, key=OfferKey("no-such-offer"))
        with pytest.raises((InvalidRequest, NoCapacity)):
            harness.provider.launch(replace(request, offer=unknown))
        harness.clock.sleep(harness.provider.traits.list_lag_s)
        assert listed(harness.provider, request.label) == []

    @pytest.mark.parametrize("label", ["../escape", "a b;c", "-rf", "x" * 300, "nul\0byte", ""])
    def test_an_odd_label_is_refused_or_kept_exactly(self, harness: Harness, label: str) -> None:
        try:
            instance = harness.provider.launch(harness.request(label))
        except InvalidRequest:
            return
        assert instance.label == label
        lag_s = harness.provider.traits.list_lag_s + harness.slack_s
        assert until(harness, lag_s, lambda: instance.id in listed(harness.provider, label))

    def test_terminate_may_follow_launch_at_once(self, harness: Harness) -> None:
        instance = harness.provider.launch(harness.request(new_label()))
        harness.provider.terminate(instance.id)
        self.assert_goes(harness, instance)

    # ---------------------------------------------------------------- describe

    def test_it_becomes_reachable_within_its_boot_timeout(self, harness: Harness) -> None:
        instance = self.ready(harness)
        assert instance.host
        assert instance.port
        assert instance.user
        assert instance.state is InstanceState.READY

    def test_describe_keeps_the_facts_of_the_launch(self, harness: Harness) -> None:
        before = harness.clock.now()
        request = harness.request(new_label())
        launched = harness.provider.launch(request)
        after = harness.clock.now()
        lag_s = harness.provider.traits.list_lag_s + harness.slack_s
        assert until(harness, lag_s, lambda: bool(listed(harness.provider, request.label)))
        for provider in (harness.provider, harness.sibling()):
            seen = provider.describe(launched.id)
            assert seen.id == launched.id
            assert seen.label == request.label
            assert seen.owner in {None, request.owner}
            assert seen.deadline_at in {None, request.deadline_at}
            assert seen.created_at is None or before - 1 <= seen.created_at <= after + 1
            assert launched.host_key in {None, seen.host_key}

    def test_the_host_key_told_is_the_one_shown(self, harness: Harness) -> None:
        instance = self.ready(harness)
        if instance.host_key is None:
            return  # no authenticated way to it: trust on first use is the caller's decision
        body = base64.b64decode(instance.host_key.base64, validate=True)
        name = instance.host_key.type.encode()
        assert body.startswith(len(name).to_bytes(4, "big") + name)
        assert harness.seen_host_key(instance) == instance.host_key

    def test_two_machines_have_two_host_keys(self, harness: Harness) -> None:
        keys = [self.ready(harness).host_key for _ in range(2)]
        assert keys[0] is None or keys[0] != keys[1]

    def test_describe_of_the_unknown_is_not_found(self, harness: Harness) -> None:
        living = self.launch(harness)
        for unknown in (living.id[:-1], living.id + "0", "no-such-machine"):
            with pytest.raises(NotFound):
                harness.provider.describe(InstanceId(unknown))

    @pytest.mark.parametrize("odd", ["", ".", "..", "../..", "/", "nul\0byte", "x" * 5000, "*"])
    def test_odd_ids_meet_only_provider_errors(self, harness: Harness, odd: str) -> None:
        living = self.launch(harness)
        with pytest.raises((NotFound, InvalidRequest)):
            harness.provider.describe(InstanceId(odd))
        try:
            harness.provider.terminate(InstanceId(odd))
        except ProviderError as error:
            assert isinstance(error, InvalidRequest)  # noqa: PT017 - any other class is the bug
        assert harness.provider.describe(living.id).state in LIVING

    def test_reading_changes_nothing(self, harness: Harness) -> None:
        instance = self.ready(harness)
        reads = [harness.provider.describe(instance.id) for _ in range(3)]
        assert reads == [instance] * 3
        assert [list(harness.provider.find(instance.label)) for _ in range(2)] == [[instance]] * 2

    # ---------------------------------------------------------------- find

    def test_find_sees_by_label_and_by_prefix(self, harness: Harness) -> None:
        instance = self.launch(harness)
        assert listed(harness.provider, instance.label) == [instance.id]
        assert listed(harness.provider, instance.label[:-1]) == [instance.id]
        assert instance.id in listed(harness.provider, "gpujob-")
        assert instance.id in listed(harness.provider, "")

    def test_find_takes_a_prefix_for_a_prefix(self, harness: Harness) -> None:
        label = new_label()
        one, ten = self.launch(harness, f"{label}-1"), self.launch(harness, f"{label}-10")
        assert set(listed(harness.provider, f"{label}-1")) == {one.id, ten.id}
        assert listed(harness.provider, f"{label}-10") == [ten.id]

    def test_find_never_returns_another_prefix(self, harness: Harness) -> None:
        instance = self.launch(harness)
        others = (instance.label[1:], instance.label + "x", instance.label.upper(), "*", "foreign")
        for prefix in others:
            assert list(harness.provider.find(prefix)) == []

    def test_find_and_describe_agree(self, harness: Harness) -> None:
        instance = self.ready(harness)
        (found,) = harness.provider.find(instance.label)
        assert alike(found, instance)

    def test_another_process_finds_what_it_never_launched(self, harness: Harness) -> None:
        instance = self.ready(harness)
        (found,) = harness.sibling().find(instance.label)
        assert alike(found, instance)

    def test_find_shows_whose_it_is(self, harness: Harness) -> None:
        label = new_label()
        mine = self.launch(harness, f"{label}-mine")
        theirs = replace(harness.request(f"{label}-theirs"), owner="somebody-else")
        foreign = harness.provider.launch(theirs)
        lag_s = harness.provider.traits.list_lag_s + harness.slack_s
        assert until(harness, lag_s, lambda: len(listed(harness.provider, label)) == 2)
        owners = {i.id: i.owner for i in harness.provider.find(label)}
        assert owners in (
            {mine.id: harness.request("any").owner, foreign.id: "somebody-else"},
            {mine.id: None, foreign.id: None},  # a vendor without any stamp
        )

    # ---------------------------------------------------------------- terminate

    def test_terminated_is_gone_for_good(self, harness: Harness) -> None:
        instance = self.ready(harness)
        harness.provider.terminate(instance.id)
        if harness.provider.traits.proves_absence:
            self.assert_goes(harness, instance)
            self.assert_goes(harness, instance, harness.sibling())

    def test_terminate_twice_and_after_the_end(self, harness: Harness) -> None:
        instance = self.launch(harness)
        harness.provider.terminate(instance.id)
        harness.provider.terminate(instance.id)
        self.assert_goes(harness, instance)
        harness.provider.terminate(instance.id)
        self.assert_goes(harness, instance)

    def test_terminate_of_the_unknown_is_success(self, harness: Harness) -> None:
        harness.provider.terminate(InstanceId("no-such-machine"))

    def test_terminate_touches_no_other(self, harness: Harness) -> None:
        label = new_label()
        one, ten = self.ready(harness, f"{label}-1"), self.ready(harness, f"{label}-10")
        harness.provider.terminate(one.id)
        self.assert_goes(harness, one)
        assert harness.provider.describe(ten.id) == ten
        assert listed(harness.provider, label) == [ten.id]

    def test_another_process_can_terminate(self, harness: Harness) -> None:
        instance = self.ready(harness)
        harness.sibling().terminate(instance.id)
        self.assert_goes(harness, instance)

    def test_a_machine_can_end_itself(self, harness: Harness) -> None:
        if harness.provider.traits.self_destruct is None:
            return
        instance = self.ready(harness)
        harness.self_destruct(instance)
        self.assert_goes(harness, instance)

    # ---------------------------------------------------------------- the deadline

    def test_the_instance_ends_itself_at_its_deadline(self, harness: Harness) -> None:
        if not harness.provider.traits.proves_absence:
            return
        instance = self.launch(harness, life_s=harness.life_s)
        rest_s = harness.life_s * 0.7 - harness.provider.traits.list_lag_s
        harness.clock.sleep(max(0.0, rest_s))
        assert harness.provider.describe(instance.id).state in LIVING
        harness.clock.sleep(harness.life_s - max(0.0, rest_s))
        self.assert_goes(harness, instance)

    def test_a_deadline_in_the_past_leaves_no_machine(self, harness: Harness) -> None:
        if not harness.provider.traits.proves_absence:
            return
        try:
            instance = harness.provider.launch(harness.request(new_label(), -5.0))
        except InvalidRequest:
            return
        self.assert_goes(harness, instance)
