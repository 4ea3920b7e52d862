"""The sweep: what is ours and unexplained is dealt with; what is not ours is never touched."""

from dataclasses import replace

import pytest

from orchestrator import events as ev
from orchestrator.attempt import label_of
from orchestrator.home import owner8
from orchestrator.policy import ALL_RULES
from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.sweep import Kind, sweep
from providers.base import InstanceState, LaunchRequest
from providers.errors import Unavailable
from providers.fake import DEFAULT_OFFERS, Phase, Verb
from tests.support.bench import Bench
from tests.support.core import opened

OURS = owner8("owner")


@pytest.fixture
def bench(tmp_path):
    yield (made := Bench(tmp_path, list_lag_s=0.0))
    made.store.close()


def plant(bench, job_id="0dd0dd", number=1, *, owner="owner", lasts_s=600.0):
    """Create a machine of that label that no record explains."""
    label = label_of(OURS, job_id, number, "cccccc")
    request = LaunchRequest(label, owner or "", DEFAULT_OFFERS[0], "", bench.clock.now() + lasts_s)
    machine = bench.cloud.create(request)
    machine.owner = owner
    return machine


def kinds(report):
    return [(f.kind, f.instance_id) for f in report.findings]


def suspect(bench):
    """Leave a closed job whose launch was never answered; return its first attempt's label."""
    bench.submit(max_machines=1)
    bench.fail(Verb.LAUNCH, Unavailable("502"))
    job = bench.drive()
    assert job.teardown is Teardown.SUSPECT
    assert job.closed_at is not None
    return job.attempts[0].label


def test_nothing_is_wrong_nothing_is_said(bench):
    bench.submit()
    bench.stub.work_s = 1000.0
    bench.drive(until=lambda: bench.stub.starts)
    assert sweep(bench.runner()).findings == []
    assert len(bench.cloud.living()) == 1


def test_foreign_machines_are_never_touched_whatever_they_are_called(bench):
    label = label_of(OURS, "abc123", 1, "eeeeee")
    foreign = [
        bench.cloud.add_foreign("web-server"),
        bench.cloud.add_foreign(label_of(owner8("somebody"), "abc123", 1, "ffffff"), owner="x"),
        bench.cloud.add_foreign(label, owner="somebody"),
        bench.cloud.add_foreign(label_of(OURS, "abc123", 2, "dddddd"), owner=None),
    ]
    for unknown in ("report", "end", "adopt"):
        report = sweep(bench.runner(), unknown=unknown)
        assert kinds(report) == [
            (Kind.FOREIGN, foreign[2].id), (Kind.UNSTAMPED, foreign[3].id),
        ]  # fmt: skip
    assert len(bench.cloud.living()) == 4
    assert [m.terminate_calls for m in foreign] == [0] * 4
    assert [s.instance_id for s in bench.store.strays()] == [foreign[3].id]


def test_a_stamp_of_another_protects_even_a_label_that_we_drew(bench):
    label = suspect(bench)
    machine = bench.cloud.add_foreign(label, owner="somebody")
    assert kinds(sweep(bench.runner())) == [(Kind.FOREIGN, machine.id)]
    assert machine.terminate_calls == 0


def test_an_orphan_is_reported_until_its_deadline_then_ended_and_billed(bench):
    bench.cloud.settings = replace(bench.cloud.settings, enforces_deadline=False)
    machine = plant(bench)
    assert kinds(sweep(bench.runner())) == [(Kind.ORPHAN, machine.id)]
    (stray,) = bench.store.strays()
    assert (stray.kind, stray.deadline_at) == ("orphan", machine.deadline_at)
    bench.clock.advance(601.0)
    report = sweep(bench.runner())
    assert kinds(report) == [(Kind.ENDED, machine.id)]
    assert report.jobs == ["0dd0dd"]
    assert machine.deleted_at is not None
    assert bench.store.strays() == []
    job = bench.drive(bench.runner().take("0dd0dd"))
    assert (job.reason, job.teardown) == (Reason.ORPHANED, Teardown.GONE)
    assert job.cost_usd >= bench.cloud.total_bill()


def test_an_orphan_is_ended_at_once_when_told_so(bench):
    machine = plant(bench)
    assert kinds(sweep(bench.runner(), unknown="end")) == [(Kind.ENDED, machine.id)]
    assert machine.deleted_at is not None


def test_a_lost_database_is_rebuilt_from_the_listing(bench):
    machine = plant(bench, "beef01", 2)
    bench.clock.advance(30.0)
    assert kinds(sweep(bench.runner(), unknown="adopt")) == [(Kind.ADOPTED, machine.id)]
    job = bench.store.job("beef01", now=bench.clock.now())
    (attempt,) = job.attempts
    assert (attempt.number, attempt.label, attempt.state) == (2, machine.label, State.BOOTING)
    assert attempt.price_usd_per_hour == machine.price_usd_per_hour
    assert attempt.deadline_at == machine.deadline_at
    assert attempt.intent_at == machine.created_at
    assert sweep(bench.runner()).findings == []
    assert machine.deleted_at is None


def test_an_adopted_training_comes_home(bench):
    machine = plant(bench, "beef01", lasts_s=3000.0)
    bench.stub.started_at, bench.stub.starts = bench.clock.now(), 1
    bench.stub.work_s = 100.0
    sweep(bench.runner(), unknown="adopt")
    job = bench.drive(bench.runner().take("beef01"))
    assert (job.outcome, job.teardown) == (Outcome.SUCCEEDED, Teardown.GONE)
    assert bench.stub.starts == 1
    assert machine.deleted_at is not None


def test_a_known_job_id_is_not_overwritten(bench):
    bench.submit()
    bench.drive()
    machine = plant(bench, "abc123", 7)
    (finding,) = sweep(bench.runner(), unknown="end").findings
    assert finding.job_id not in {None, "abc123"}
    assert machine.deleted_at is not None


def test_a_suspect_that_comes_up_after_its_job_is_closed_is_ended_and_billed(bench):
    label = suspect(bench)
    bench.clock.advance(5000.0)
    request = LaunchRequest(label, "owner", DEFAULT_OFFERS[0], "", bench.clock.now() + 3600.0)
    machine = bench.cloud.create(request)
    bench.clock.advance(60.0)
    assert kinds(sweep(bench.runner())) == [(Kind.RESURFACED, machine.id)]
    assert machine.deleted_at is not None
    view = bench.view()
    assert (view.state, view.teardown) == (State.STOPPING, Teardown.STOPPING)
    bench.drive()
    view = bench.view()
    assert (view.state, view.teardown, view.reason) == (
        State.CLOSED, Teardown.GONE, Reason.LAUNCH_UNKNOWN,
    )  # fmt: skip
    assert len(view.attempts) == 1  # nothing is tried again for a job that was over
    assert view.cost_usd >= bench.cloud.total_bill() > 0


def test_a_closed_job_is_not_tried_again_though_offers_are_left(bench):
    bench.submit(*DEFAULT_OFFERS[:2])
    now = bench.clock.now()
    label = label_of(OURS, "abc123", 1, "aaaaaa")
    driver = bench.runner().take("abc123")
    driver.begin(
        [
            opened(now, label=label, offer=DEFAULT_OFFERS[0]),
            ev.LaunchAsked(now),
            ev.LaunchUnclear(now, "502"),
            ev.Aborted(now, Reason.LAUNCH_UNKNOWN, "502"),
            ev.InstanceGone(now, "suspect", now + 86_400.0),
        ]
    )
    closed = ev.JobClosed(now, Reason.LAUNCH_UNKNOWN)
    bench.store.journal.close_job(driver.lease, closed, ttl_s=60.0)
    driver.release()
    request = LaunchRequest(label, "owner", DEFAULT_OFFERS[0], "", now + 3600.0)
    late = bench.cloud.create(request)
    bench.clock.advance(60.0)
    sweep(bench.runner("sweeper"))
    job = bench.drive(bench.runner("last").take("abc123"))
    assert late.deleted_at is not None
    assert (len(job.attempts), job.reason) == (1, Reason.LAUNCH_UNKNOWN)
    assert job.teardown is Teardown.GONE


def test_a_list_that_lags_resurrects_nothing(bench):
    bench.submit()
    bench.drive()
    (machine,) = bench.cloud.machines.values()
    lag_s = bench.clock.now() - machine.created_at - 1.0  # the list still shows it, and as living
    bench.cloud.settings = replace(bench.cloud.settings, list_lag_s=lag_s)
    assert [m.state for m in bench.provider.find("gpujob-")] == [InstanceState.READY]
    assert sweep(bench.runner()).findings == []
    assert bench.view().state is State.CLOSED


def test_a_teardown_that_nobody_drives_is_pushed_on(bench):
    bench.submit()
    bench.stub.work_s = 1000.0
    driver = bench.runner("dead").take("abc123")
    bench.drive(driver, until=lambda: bench.stub.starts)
    bench.fail(Verb.TERMINATE, Unavailable("500"))
    bench.store.ask_cancel("abc123", now=bench.clock.now())
    driver.tick()
    assert bench.view().state is State.STOPPING
    driver.release()
    for _ in range(6):
        bench.clock.advance(60.0)
        assert len(sweep(bench.runner()).findings) <= 1
    assert (bench.view().outcome, bench.view().teardown) == (Outcome.CANCELLED, Teardown.GONE)
    assert bench.view().closed_at is not None


def test_a_job_in_another_process_hands_is_left_alone(bench):
    bench.submit()
    bench.stub.work_s = 1000.0
    bench.drive(bench.runner("busy").take("abc123"), until=lambda: bench.stub.starts)
    bench.store.ask_cancel("abc123", now=bench.clock.now())
    assert sweep(bench.runner("other")).findings == []
    assert len(bench.cloud.living()) == 1


def test_an_unreadable_provider_is_said_and_nothing_is_concluded(bench):
    machine = plant(bench)
    sweep(bench.runner())
    bench.fail(Verb.FIND, Unavailable("503"))
    (finding,) = sweep(bench.runner(), unknown="end").findings
    assert (finding.kind, finding.text) == (Kind.UNREADABLE, "503")
    assert [s.instance_id for s in bench.store.strays()] == [machine.id]  # still known


def test_with_the_rule_off_it_would_touch_others(bench):
    machine = bench.cloud.add_foreign(label_of(OURS, "abc123", 1, "eeeeee"), owner="somebody")
    rules = replace(ALL_RULES, own_label_only=False)
    sweep(bench.runner(rules=rules), unknown="end")
    assert machine.terminate_calls == 1


def test_faults_of_the_bench_are_really_met(bench):
    bench.fail(Verb.FIND, Unavailable("x"), phase=Phase.AFTER)
    assert sweep(bench.runner()).findings[0].kind is Kind.UNREADABLE
