"""The runner on the fake cloud: the order of writing, and what becomes of every kind of answer."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator import points
from orchestrator.runner import Runner
from orchestrator.site import SiteError, SiteRefused
from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.store_engine import StoreError
from providers.errors import (
    AuthFailed,
    NoCapacity,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.fake import DEFAULT_OFFERS, Fault, Phase, Verb
from tests.support.bench import Bench
from tests.support.core import new_job


@pytest.fixture
def bench(tmp_path):
    yield (made := Bench(tmp_path))
    points.install(None)
    made.store.close()


def test_the_main_job(bench):
    bench.submit(budget_usd=Decimal(5))
    job = bench.drive()
    assert (job.outcome, job.teardown, job.exit_code) == (Outcome.SUCCEEDED, Teardown.GONE, 0)
    assert bench.kinds() == [
        "Opened", "LaunchAsked", "MachineSeen", "Launched", "EndpointSeen", "SshReady",
        "StepDone", "StepDone", "StepDone", "StartAsked", "TrainerStarted", "TrainerExited",
        "ArtifactsPushed", "TerminateAsked", "TerminateAccepted", "AbsenceRead", "MachineGone",
        "InstanceGone",
    ]  # fmt: skip
    assert bench.stub.starts == 1
    assert bench.cloud.living() == []
    log = bench.home.log_path("abc123", 1)
    assert log.read_bytes() == bench.stub.log
    assert bench.store.log_offset("abc123", 1) == len(bench.stub.log)
    assert job.cost_usd >= bench.cloud.total_bill() > 0


def test_listeners_hear_every_event_in_order_after_its_commit(bench):
    bench.submit()
    seen = []

    def listen(happening):
        if happening.event is not None:
            stored = [r.event for r in bench.store.events("abc123")]
            assert happening.event in stored
            seen.append(happening.event)
        raise RuntimeError("a broken listener")

    runner = Runner(
        bench.store, {"fake": bench.provider}, bench.stub.make, bench.home, bench.clock, "owner",
        listeners=[listen],
    )  # fmt: skip
    driver = runner.take("abc123")
    job = bench.drive(driver)
    assert job.outcome is Outcome.SUCCEEDED
    assert seen == [r.event for r in bench.store.events("abc123")][1:]


def test_the_request_carries_the_stored_label_and_the_deadline(bench):
    bench.submit(budget_usd=Decimal("0.20"), max_s=7200.0)
    bench.drive(until=lambda: bench.cloud.machines)
    (machine,) = bench.cloud.machines.values()
    attempt = bench.view().attempts[0]
    assert machine.label == attempt.label
    assert machine.label.startswith("gpujob-")
    assert "-abc123-1-" in machine.label
    assert machine.owner == "owner"
    # 0.20 USD at 0.40 USD/h last half an hour: sooner than the two hours asked for.
    assert machine.deadline_at == attempt.deadline_at == pytest.approx(attempt.intent_at + 1800)
    assert machine.request.budget_usd == Decimal("0.20")


def test_the_intent_is_committed_before_the_call(bench):
    bench.submit()
    order: list[Any] = []
    points.install(order.append)
    bench.drive(until=lambda: bench.cloud.machines)
    launch = order.index("provider.before:launch")
    assert order[launch - 1] == "journal.after:LaunchAsked"
    assert order[launch + 1 : launch + 3] == ["provider.after:launch", "journal.before:Launched"]


@pytest.mark.parametrize(
    ("error", "reason", "tried"),
    [
        (NoCapacity("sold out"), Reason.NO_CAPACITY, 2),
        (QuotaExceeded("limit"), Reason.QUOTA, 1),
        (AuthFailed("401"), Reason.AUTH, 1),
    ],
)
def test_a_definite_refusal_costs_nothing_and_may_lead_to_the_next_offer(
    bench, error, reason, tried
):
    bench.submit(*DEFAULT_OFFERS[:2])
    bench.fail(Verb.LAUNCH, error, error)
    job = bench.drive()
    assert (job.outcome, job.reason, len(job.attempts)) == (Outcome.FAILED, reason, tried)
    assert (job.cost_usd, job.teardown, job.exit_code) == (0, Teardown.NONE, 3)
    assert str(error) in job.evidence


def test_the_next_offer_serves(bench):
    bench.submit(*DEFAULT_OFFERS[:2])
    bench.fail(Verb.LAUNCH, NoCapacity("sold out"))
    job = bench.drive()
    assert (job.outcome, len(job.attempts), job.attempts[1].gpu) == (
        Outcome.SUCCEEDED, 2, "A6000",
    )  # fmt: skip
    assert len({a.label for a in job.attempts}) == 2


def test_a_lost_reply_is_adopted_and_never_launched_twice(bench):
    bench.submit()
    bench.fail(Verb.LAUNCH, Unavailable("500"), phase=Phase.AFTER)
    job = bench.drive()
    assert job.outcome is Outcome.SUCCEEDED
    assert len(bench.cloud.machines) == 1
    assert bench.kinds()[:4] == ["Opened", "LaunchAsked", "LaunchUnclear", "SettleRead"]
    assert job.cost_usd >= bench.cloud.total_bill()


def test_an_adapter_that_breaks_counts_as_an_unclear_launch(bench):
    bench.submit()
    bench.fail(Verb.LAUNCH, KeyError("null in the answer"), phase=Phase.AFTER)
    job = bench.drive()
    assert (job.outcome, len(bench.cloud.machines)) == (Outcome.SUCCEEDED, 1)


def test_a_launch_that_never_was_leaves_a_suspect_and_goes_on(bench):
    bench.submit(*DEFAULT_OFFERS[:2])
    bench.fail(Verb.LAUNCH, Unavailable("502"))
    job = bench.drive()
    first, second = job.attempts
    assert (first.reason, first.teardown) == (Reason.LAUNCH_UNKNOWN, Teardown.SUSPECT)
    assert first.suspect_until - first.intent_at > 86_400
    assert second.teardown is Teardown.GONE
    assert job.outcome is Outcome.SUCCEEDED
    assert second.intent_at - first.intent_at >= 900


def test_a_suspect_that_appears_during_the_next_attempt_is_ended(bench):
    bench.submit(*DEFAULT_OFFERS[:2])
    bench.fail(Verb.LAUNCH, Unavailable("502"))
    bench.stub.work_s = 3000.0
    driver = bench.runner().take("abc123")
    bench.drive(driver, until=lambda: len(bench.view().attempts) == 2 and bench.stub.starts)
    first = bench.store.load("abc123")[1][0]
    request = next(iter(bench.cloud.machines.values())).request
    late = bench.cloud.create(replace(request, label=first.label))
    job = bench.drive(driver)
    assert late.deleted_at is not None
    assert late.deleted_at < bench.clock.now() - 1000
    assert (job.outcome, job.teardown) == (Outcome.SUCCEEDED, Teardown.GONE)
    assert job.cost_usd >= bench.cloud.total_bill()
    assert "Resurfaced" in bench.kinds(1)


def test_a_rate_limited_launch_waits_as_told(bench):
    bench.submit()
    bench.fail(Verb.LAUNCH, RateLimited("429", retry_after_s=40.0))
    began = bench.clock.now()
    bench.drive(until=lambda: bench.cloud.machines)
    assert bench.clock.now() - began >= 40.0
    assert bench.kinds()[:4] == ["Opened", "LaunchAsked", "LaunchDelayed", "LaunchAsked"]


def test_terminate_is_retried_until_proven(bench):
    bench.submit()
    bench.fail(Verb.TERMINATE, *[Unavailable("500")] * 5)
    job = bench.drive()
    assert (job.outcome, job.teardown) == (Outcome.SUCCEEDED, Teardown.GONE)
    assert bench.kinds().count("TerminateFailed") == 5
    assert "StillBilling" in bench.kinds()


def test_a_terminate_that_is_swallowed_is_caught_by_the_reads(bench):
    bench.submit()
    bench.faults[Verb.TERMINATE, Phase.BEFORE] = [Fault(swallow=True)] * 3
    job = bench.drive()
    assert job.teardown is Teardown.GONE
    assert 4 <= bench.kinds().count("TerminateAccepted") <= 5
    assert bench.cloud.living() == []


def test_training_and_teardown_are_two_outcomes(bench):
    bench.submit()
    bench.fail(Verb.TERMINATE, *[Unavailable("500")] * 999)
    job = bench.drive(for_s=600.0)
    assert (job.outcome, job.teardown, job.exit_code) == (
        Outcome.SUCCEEDED, Teardown.STILL_BILLING, 5,
    )  # fmt: skip
    assert job.closed_at is None


def test_an_instance_that_refuses_ends_the_attempt_with_its_reason(bench):
    bench.submit()
    bench.stub.errors["probe"] = SiteRefused(Reason.HOST_KEY_MISMATCH, "not the key we know")
    job = bench.drive()
    assert (job.reason, job.evidence) == (Reason.HOST_KEY_MISMATCH, "not the key we know")
    assert "stop" not in bench.stub.calls  # nothing is said to a stranger
    assert bench.cloud.living() == []


def test_a_failed_training_brings_its_log_and_its_reason_home(bench):
    bench.submit()
    bench.stub.reason = Reason.OUT_OF_MEMORY
    job = bench.drive()
    assert (job.reason, job.evidence, job.exit_code) == (
        Reason.OUT_OF_MEMORY, "the last line", 4,
    )  # fmt: skip
    assert "collect" not in bench.stub.calls
    assert bench.home.log_path("abc123", 1).read_bytes() == bench.stub.log


def test_a_cancel_says_farewell_and_pulls_the_tail(bench):
    bench.submit()
    bench.stub.work_s = 1000.0
    driver = bench.runner().take("abc123")
    bench.drive(driver, until=lambda: bench.stub.starts)
    bench.store.ask_cancel("abc123", now=bench.clock.now())
    bench.stub.log += b"the end\n"
    job = bench.drive(driver)
    assert (job.outcome, job.teardown) == (Outcome.CANCELLED, Teardown.GONE)
    assert bench.stub.stopped_at is not None
    assert bench.home.log_path("abc123", 1).read_bytes() == bench.stub.log


def test_a_farewell_that_fails_does_not_delay_the_end(bench):
    bench.submit()
    bench.stub.work_s = 1000.0
    driver = bench.runner().take("abc123")
    bench.drive(driver, until=lambda: bench.stub.starts)
    bench.stub.error = SiteError("no route to host")
    bench.store.ask_cancel("abc123", now=bench.clock.now())
    began = bench.clock.now()
    driver.tick()
    assert bench.cloud.living() == []
    assert bench.clock.now() - began < 1.0


def test_a_full_disk_does_not_keep_the_machine_billing(bench, monkeypatch):
    bench.submit()
    real = bench.store.journal.append
    failed: list[float] = []

    def append(lease, happened, attempt, **options):
        if isinstance(happened[-1], ev.TerminateAsked) and len(failed) < 2:
            failed.append(bench.clock.now())
            raise StoreError("database or disk is full")
        real(lease, happened, attempt, **options)

    monkeypatch.setattr(bench.store.journal, "append", append)
    driver = bench.runner().take("abc123")
    bench.drive(driver, until=lambda: failed)
    assert bench.cloud.living() == []
    job = bench.drive(driver)
    assert (job.outcome, job.teardown) == (Outcome.SUCCEEDED, Teardown.GONE)
    assert len(failed) == 2


def test_a_full_disk_at_home_delays_the_log_not_the_training(bench):
    bench.submit()
    bench.stub.work_s = 100.0
    bench.stub.errors["pull"] = OSError(28, "No space left on device")
    driver = bench.runner().take("abc123")
    bench.drive(driver, until=lambda: bench.stub.starts, for_s=60.0)
    bench.drive(driver, for_s=50.0)
    assert bench.view().state is State.RUNNING
    assert "SSH" not in bench.view().evidence
    del bench.stub.errors["pull"]
    job = bench.drive(driver)
    assert job.outcome is Outcome.SUCCEEDED
    assert bench.home.log_path("abc123", 1).read_bytes() == bench.stub.log


def test_the_budget_is_one_for_all_attempts(bench):
    # Two machines that never boot use up what a third would need.
    bench.cloud.settings = replace(bench.cloud.settings, boot_delay_s=9999.0)
    bench.submit(*DEFAULT_OFFERS[:4], budget_usd=Decimal("0.25"))
    job = bench.drive(for_s=20_000.0)
    assert job.outcome is Outcome.FAILED
    assert bench.cloud.total_bill() <= job.cost_usd <= Decimal("0.27")
    assert len(job.attempts) == 3


def test_attempts_with_machines_are_bounded(bench):
    bench.cloud.settings = replace(bench.cloud.settings, boot_delay_s=9999.0)
    bench.submit(*DEFAULT_OFFERS, max_machines=2)
    job = bench.drive(for_s=20_000.0)
    assert (len(job.attempts), job.reason) == (2, Reason.BOOT_TIMEOUT)


def test_all_jobs_share_one_listing(bench):
    runner = bench.runner()
    drivers = []
    bench.stub.work_s = 600.0
    for number in range(8):
        job = replace(new_job(f"{number:06x}", *DEFAULT_OFFERS[:1]))
        bench.store.create_job(job, now=bench.clock.now())
        drivers.append(runner.take(job.id))
    calls = []
    points.install(lambda n: calls.append((bench.clock.now(), n)))
    due = dict.fromkeys(range(8), 0.0)
    while any(at is not None for at in due.values()):
        for number, at in due.items():
            if at is not None and at <= bench.clock.now():
                due[number] = drivers[number].tick()
        bench.clock.advance(0.5)
        assert bench.clock.now() - 1_800_000_000 < 5000
    reads = [at for at, n in calls if n in {"provider.before:find", "provider.before:describe"}]
    for at in reads:
        assert sum(1 for other in reads if at <= other < at + 60) <= 12
    assert len([1 for n in range(8) if bench.store.job(f"{n:06x}", now=0.0).exit_code == 0]) == 8
