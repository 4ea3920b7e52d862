"""Shared reads: one list for all, a bounded number a minute, errors that are never answers."""

from dataclasses import replace
from typing import cast

import pytest

from orchestrator.observation import Described
from orchestrator.policy import ALL_RULES, Limits
from orchestrator.reads import Listed, NotNow, Reads
from providers.base import Instance, InstanceId, InstanceState, Provider
from providers.errors import AuthFailed, NotFound, RateLimited, Unavailable
from tests.support.clocks import VirtualClock
from tests.support.core import TRAITS

PREFIX = "gpujob-ad2a0ab6-"
ID = InstanceId("m-1")


class Scripted:
    """A provider whose next answers are given; counts the calls."""

    name = "scripted"

    def __init__(self, *, remote=True):
        self.traits = replace(TRAITS, remote=remote)
        self.calls = 0
        self.error = None
        self.machines = [Instance(ID, PREFIX + "abc123-1-ffffff", InstanceState.READY)]

    def _answer(self, answer):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return answer

    def find(self, prefix):
        return self._answer(self.machines)

    def describe(self, instance_id):
        return self._answer(self.machines[0])


def make(**options):
    clock, provider = VirtualClock(), Scripted(**options)
    return clock, provider, Reads(cast("Provider", provider), PREFIX, clock, Limits(), ALL_RULES)


def test_ten_jobs_cost_what_one_costs():
    clock, provider, reads = make()
    answers = [reads.find(clock.now()) for _ in range(10)]
    assert provider.calls == 1
    assert all(answer is answers[0] for answer in answers)


def test_a_listing_is_only_shared_with_who_asked_before_it():
    clock, provider, reads = make()
    first = reads.find(clock.now())
    clock.advance(30.0)
    second = reads.find(clock.now())
    assert (first.at, second.at) == (clock.now() - 30.0, clock.now())
    assert provider.calls == 2


@pytest.mark.parametrize("step", [0.05, 0.4, 3.0])
def test_no_minute_sees_more_than_twelve_reads(step):
    clock, provider, reads = make()
    times = []
    while clock.monotonic() < 400.0:
        before = provider.calls
        answer = reads.find(clock.now())
        if provider.calls > before:
            times.append(clock.monotonic())
        else:
            assert isinstance(answer, NotNow)
            assert answer.until > clock.now()
        if isinstance(reads.describe(ID), Described):
            times.append(clock.monotonic())
        clock.advance(step)
    assert len(times) > 40
    for at in times:
        assert sum(1 for other in times if at <= other < at + 60.0) <= 12


def test_this_very_machine_is_read_as_often_as_needed():
    clock, provider, reads = make(remote=False)
    for _ in range(100):
        reads.find(clock.now() + 1.0)
        clock.advance(1.0)
    assert provider.calls == 100


def test_an_error_is_no_answer_and_backs_off():
    clock, provider, reads = make()
    provider.error = Unavailable("find: 500")
    pauses = []
    for _ in range(6):
        answer = reads.find(clock.now())
        assert isinstance(answer, NotNow)
        assert "500" in answer.error
        pauses.append(answer.until - clock.now())
        assert reads.find(clock.now()) == NotNow(answer.until)
        clock.advance(pauses[-1] + 20.0)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    provider.error = None
    assert isinstance(reads.find(clock.now()), Listed)


def test_a_404_is_an_answer_other_errors_are_not():
    clock, provider, reads = make()
    provider.error = NotFound("describe m-1: 404")
    assert reads.describe(ID) == Described(clock.now(), None)
    for error in (Unavailable("500"), AuthFailed("401")):
        clock.advance(100.0)
        provider.error = error
        assert isinstance(reads.describe(ID), NotNow)


def test_a_rate_limit_holds_every_read_of_the_provider():
    clock, provider, reads = make()
    provider.error = RateLimited("429", retry_after_s=33.0)
    assert reads.find(clock.now()).until == clock.now() + 33.0
    provider.error = None
    calls = provider.calls
    assert reads.describe(ID) == NotNow(clock.now() + 33.0)
    assert provider.calls == calls
    clock.advance(33.0)
    assert isinstance(reads.describe(ID), Described)


def test_what_does_not_bear_our_prefix_is_not_ours():
    clock, provider, reads = make()
    provider.machines.append(Instance(InstanceId("x"), "web-server", InstanceState.READY))
    assert [m.id for m in reads.find(clock.now()).machines] == [ID]


def test_shows_needs_no_call():
    clock, provider, reads = make()
    label = PREFIX + "abc123-1-ffffff"
    assert reads.shows(label, newer_than=0.0) is None
    reads.find(clock.now())
    assert reads.shows(label, newer_than=clock.now() - 11.0).id == ID
    assert reads.shows(label, newer_than=clock.now()) is None  # as old as the list's lag
    assert reads.shows("another", newer_than=0.0) is None
    assert provider.calls == 1
