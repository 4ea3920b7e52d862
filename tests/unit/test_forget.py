"""Forgetting calls nothing gone, and a kept machine has a hard end."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator import events as ev
from orchestrator.actions import Drain, Wait
from orchestrator.forget import forget, unproven
from orchestrator.states import Outcome, Reason, State, Teardown
from providers.errors import Unavailable
from providers.fake import Verb
from tests.support.bench import Bench
from tests.support.core import T0
from tests.support.situations import FAILED, TERMS, absent, ask, event, listing, machine

KEPT = replace(TERMS, keep_on_failure_s=600.0)


@pytest.fixture
def stuck(tmp_path):
    """A job whose machine the provider will not end."""
    bench = Bench(tmp_path)
    bench.submit()
    bench.fail(Verb.TERMINATE, *[Unavailable("terminate: 500")] * 500)
    bench.drive(until=lambda: bench.view().teardown is Teardown.STILL_BILLING)
    return bench


def test_what_may_go_on_billing_is_named_with_its_price(stuck):
    (one,) = unproven(stuck.store.load("abc123")[1])
    living = stuck.cloud.living()[0]
    assert (one.instance_id, one.label) == (living.id, living.label)
    assert one.usd_per_hour == living.price_usd_per_hour


def test_forgotten_is_never_gone_and_goes_on_being_counted(stuck):
    old = stuck.runner("old").take("abc123", dead="me")
    assert old is not None
    asked = stuck.cloud.living()[0].terminate_calls
    assert forget(stuck.runner("forgetter"), "abc123")
    job = stuck.view()
    assert job.teardown is Teardown.YOURS_TO_CLOSE
    assert job.outcome is Outcome.SUCCEEDED  # a failed teardown hides no success
    before = job.cost_usd
    stuck.clock.advance(3600.0)
    assert stuck.view().cost_usd >= before + Decimal("0.39")
    assert old.tick() is None  # who drove it is out: fenced, without a further call
    assert old.lost
    assert stuck.cloud.living()[0].terminate_calls == asked
    assert not unproven(stuck.store.load("abc123")[1])


def test_a_failed_machine_is_kept_and_has_a_hard_end():
    drained = {"drained": True, "listing": listing(T0 + 95, machine())}
    assert event(ask(FAILED, T0 + 100, TERMS, **drained)) == ev.ArtifactsPushed(T0 + 100)
    said = event(ask(FAILED, T0 + 100, KEPT, **drained))
    assert isinstance(said, ev.Noted)
    assert "gpujob ssh" in said.text
    noted = [*FAILED, said]
    assert all(not isinstance(one, Drain) for one in ask(noted, T0 + 100, KEPT, **drained))
    assert isinstance(event(ask(noted, T0 + 690, KEPT, **drained)), ev.ArtifactsPushed)


@pytest.mark.parametrize("cause", ["cancel", "deadline", "budget", "loss"])
def test_what_ends_a_kept_machine_before(cause):
    said = event(ask(FAILED, T0 + 100, KEPT, drained=True, listing=listing(T0 + 95, machine())))
    noted = [*FAILED, said]
    at, terms, seen = T0 + 120, KEPT, {"drained": True, "listing": listing(T0 + 95, machine())}
    if cause == "cancel":
        seen["cancel"] = Reason.CANCELLED
    elif cause == "deadline":
        noted = [replace(noted[0], deadline_at=T0 + 110), *noted[1:]]
    elif cause == "budget":
        terms = replace(KEPT, budget_usd=Decimal(1))
        seen["cost_usd"] = Decimal(1)
    else:
        seen |= absent(T0 + 115)
    assert isinstance(event(ask(noted, at, terms, **seen)), (ev.Aborted, ev.AbsenceRead))


def test_a_success_is_not_kept(tmp_path):
    bench = Bench(tmp_path)
    bench.submit(keep_on_failure_s=3600.0)
    job = bench.drive()
    assert (job.outcome, job.teardown, job.state) == (
        Outcome.SUCCEEDED, Teardown.GONE, State.CLOSED,
    )  # fmt: skip
    assert bench.clock.now() - T0 < 1200.0
    assert isinstance(
        ask(FAILED, T0 + 91, TERMS, listing=listing(T0 + 91, machine()))[0], Drain | Wait
    )
