"""decide, one situation at a time; the simulation looks for those that nobody thought of."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator.actions import (
    Collect,
    Describe,
    Drain,
    Find,
    Follow,
    KeepCheckpoint,
    Launch,
    Peek,
    PrepareNext,
    Probe,
    Record,
    StartTrainer,
    Terminate,
    Wait,
)
from orchestrator.fold import fold
from orchestrator.observation import Described, Terms
from orchestrator.site import AgentStatus, Collected, ExitReport
from orchestrator.states import Reason, State
from providers.base import InstanceState
from tests.support.core import M1, M2, T0, TRAITS, launched, opened
from tests.support.situations import (
    AT,
    FAILED,
    LIMITS,
    READY,
    RUNNING,
    TERMS,
    TRAINED,
    UNCLEAR,
    absent,
    ask,
    event,
    listing,
    machine,
)

# ---------------------------------------------------------------- INTENDED


def test_what_was_never_asked_is_launched():
    assert ask([opened()], T0) == [Launch()]


def test_a_crash_between_intent_and_answer_reads_as_unclear():
    actions = ask([opened(), ev.LaunchAsked(T0)], T0 + 3000)
    assert actions == [Find(T0)]


@pytest.mark.parametrize("now", [T0, T0 + 100, T0 + 5000])
def test_an_unclear_launch_is_never_repeated(now):
    history = [*UNCLEAR]
    for reads in range(14):
        assert Launch() not in ask(history, now), reads
        history.append(ev.SettleRead(T0 + reads))


def test_on_this_very_machine_the_window_is_five_looks():
    terms = Terms(replace(TRAITS, remote=False))
    history = [*UNCLEAR, *(ev.SettleRead(T0 + n) for n in range(4))]
    assert ask(history, T0 + 3.5, terms) == [Wait(T0 + 4)]
    history.append(event(ask(history, T0 + 4, terms, listing=listing(T0 + 4))))
    assert event(ask(history, T0 + 4, terms)).reason is Reason.LAUNCH_UNKNOWN


def test_the_settle_window_is_twelve_reads_ten_seconds_apart_then_two_late_ones():
    history, reads, now = [*UNCLEAR], [], T0
    while True:
        actions = ask(history, now, listing=listing(now))
        if isinstance(actions[0], Record) and isinstance(actions[0].event, ev.SettleRead):
            reads.append(actions[0].event.at - T0)
            history.append(actions[0].event)
        elif isinstance(actions[0], Record):
            break
        else:
            now += 1.0
    assert reads == [10.0 * n for n in range(12)] + [300.0, 900.0]
    assert event(actions).reason is Reason.LAUNCH_UNKNOWN
    assert "500" in event(actions).evidence


def test_only_well_formed_empty_reads_count():
    assert ask(UNCLEAR, T0 + 50, find_after=T0 + 55) == [Wait(T0 + 55)]
    assert isinstance(ask(UNCLEAR, T0 + 50)[0], Find)


def test_a_listing_from_before_the_launch_adopts_nothing_and_counts_nothing():
    assert ask(UNCLEAR, T0 + 5, listing=listing(T0 - 5, machine())) == [Find(T0)]


def test_one_of_several_is_adopted_the_others_are_ended():
    found = listing(T0 + 20, machine(M2, InstanceState.STARTING), machine(M1))
    first = event(ask(UNCLEAR, T0 + 20, listing=found))
    assert (first.instance_id, first.how) == (M1, "adopted")
    history = [*UNCLEAR, first]
    second = event(ask(history, T0 + 20, listing=found))
    assert second == ev.Launched(T0 + 20, M1)
    history.append(second)
    third = event(ask(history, T0 + 20, listing=found))
    assert (third.instance_id, third.how) == (M2, "double")
    assert ask([*history, third], T0 + 20, listing=found) == [Terminate(M2)]


def test_a_crash_between_sight_and_adoption_adopts():
    history = [*UNCLEAR, ev.MachineSeen(T0 + 9, M1, "adopted")]
    assert event(ask(history, T0 + 9)) == ev.Launched(T0 + 9, M1)


def test_a_rate_limited_launch_waits_and_gives_up_in_the_end():
    history = [opened(), ev.LaunchAsked(T0), ev.LaunchDelayed(T0, "429", T0 + 20)]
    assert ask(history, T0 + 5) == [Wait(T0 + 20)]
    assert ask(history, T0 + 20) == [Launch()]
    late = event(ask(history, T0 + LIMITS.launch_retry_s))
    assert (late.reason, late.evidence) == (Reason.LAUNCH_REFUSED, "429")


# ---------------------------------------------------------------- what ends any attempt

EVERYWHERE = [[opened()], UNCLEAR, launched(), READY, RUNNING, TRAINED]


@pytest.mark.parametrize("history", EVERYWHERE)
def test_cancel_is_heeded_in_every_state(history):
    assert event(ask(history, T0 + 95, cancel=Reason.CANCELLED)).reason is Reason.CANCELLED


@pytest.mark.parametrize("history", EVERYWHERE)
def test_the_deadline_ends_every_state(history):
    assert event(ask(history, T0 + 3600)).reason is Reason.DEADLINE


@pytest.mark.parametrize("history", EVERYWHERE[1:])
def test_the_budget_ends_every_state_and_keeps_its_reserve(history):
    terms = replace(TERMS, budget_usd=Decimal(2), reserve_usd=Decimal("0.5"))
    reached = ask(history, T0 + 95, terms, cost_usd=Decimal(2))
    assert event(reached).reason is Reason.BUDGET
    reserve = ask(history, T0 + 95, terms, cost_usd=Decimal("1.6"))
    if fold(history).state is State.COLLECTING:  # that is what it is kept for
        assert not isinstance(reserve[0], Record)
    else:
        assert event(reserve).reason is Reason.BUDGET
    assert not isinstance(ask(history, T0 + 95, terms, cost_usd=Decimal("1.4"))[0], Record)


def test_what_the_instance_refuses_ends_the_attempt_with_its_reason():
    said = (Reason.HOST_KEY_MISMATCH, "another key")
    aborted = event(ask(launched(), T0 + 9, refused=said))
    assert (aborted.reason, aborted.evidence) == said


def test_the_outcome_is_known_before_a_cancel_that_came_too_late():
    status = AgentStatus("done", alive=False, heartbeat_age_s=1.0, log_bytes=0, metrics_bytes=0,
                         exit=_report(Reason.OUT_OF_MEMORY))  # fmt: skip
    exited = event(ask(RUNNING, T0 + 95, status=status, cancel=Reason.CANCELLED))
    assert exited.reason is Reason.OUT_OF_MEMORY


# ---------------------------------------------------------------- BOOTING


def test_booting_looks_and_then_knocks():
    assert ask(launched(), T0) == [Find(T0), Describe(M1)]
    where = Described(T0 + 1, machine(host="h", port=22, user="root"))
    seen = {"listing": listing(T0 + 1, machine()), "described": {M1: where}}
    found = event(ask(launched(), T0 + 1, **seen))
    assert found.endpoint == AT
    assert ask([*launched(), found], T0 + 1, **seen) == [Probe()]
    assert event(ask([*launched(), found], T0 + 2, site_ok_at=T0 + 2, **seen)) == ev.SshReady(
        T0 + 2
    )


def test_a_boot_has_an_end():
    late = event(ask(launched(), T0 + 300, site_error="connection refused"))
    assert late.reason is Reason.BOOT_TIMEOUT
    assert "connection refused" in late.evidence
    terms = replace(TERMS, boot_timeout_s=900.0)
    assert not isinstance(ask(launched(), T0 + 300, terms)[0], Record)


def test_a_dearer_machine_is_ended():
    seen = {"described": {M1: Described(T0 + 1, machine(price_usd_per_hour=Decimal("2.40")))}}
    price = event(ask(launched(), T0 + 1, **seen))
    assert price == ev.PriceSeen(T0 + 1, M1, Decimal("2.40"))
    aborted = event(ask([*launched(), price], T0 + 1, **seen))
    assert aborted.reason is Reason.PRICE_ABOVE_QUOTE


def test_a_cheaper_machine_is_welcome():
    seen = {"described": {M1: Described(T0 + 1, machine(price_usd_per_hour=Decimal("1.20")))}}
    price = event(ask(launched(), T0 + 1, **seen))
    assert isinstance(ask([*launched(), price], T0 + 1, **seen)[0], Find)


# ---------------------------------------------------------------- a machine that vanishes


def test_a_404_right_after_the_launch_means_nothing():
    actions = ask(launched(), T0 + 9, **absent(T0 + 9))
    assert not any(isinstance(a, Record) for a in actions)


def test_loss_takes_two_reads_a_gap_apart():
    first = event(ask(RUNNING, T0 + 100, **absent(T0 + 100)))
    assert first == ev.AbsenceRead(T0 + 100, M1)
    soon = ask([*RUNNING, first], T0 + 109, **absent(T0 + 109))
    assert not any(isinstance(a, Record) for a in soon)
    lost = event(ask([*RUNNING, first], T0 + 110, **absent(T0 + 110)))
    assert lost.reason is Reason.INSTANCE_LOST


def test_a_machine_that_answers_is_not_lost():
    assert not any(
        isinstance(a, Record)
        for a in ask(RUNNING, T0 + 100, site_ok_at=T0 + 100, **absent(T0 + 99))
    )


def test_one_verb_alone_proves_nothing():
    for seen in (
        {"listing": listing(T0 + 100), "described": {M1: Described(T0 + 100, machine())}},
        {"listing": listing(T0 + 100, machine()), "described": {M1: Described(T0 + 100, None)}},
        {"listing": listing(T0 + 100)},
        {"described": {M1: Described(T0 + 100, None)}},
    ):
        assert not any(isinstance(a, Record) for a in ask(RUNNING, T0 + 100, **seen))


def test_a_machine_seen_again_takes_the_first_read_back():
    history = [*RUNNING, ev.AbsenceRead(T0 + 100, M1)]
    seen = {"listing": listing(T0 + 120, machine()), "described": {M1: Described(T0 + 99, None)}}
    assert event(ask(history, T0 + 120, **seen)) == ev.AbsenceDenied(T0 + 120, M1)


def test_a_stopped_machine_is_lost_but_not_gone():
    stop = machine(state=InstanceState.STOPPED)
    seen = {"listing": listing(T0 + 100, stop), "described": {M1: Described(T0 + 100, stop)}}
    lost = event(ask(RUNNING, T0 + 100, **seen))
    assert lost.reason is Reason.INSTANCE_LOST
    stopping = [*RUNNING, lost, ev.TerminateAsked(T0 + 100, M1), ev.TerminateAccepted(T0 + 100, M1)]
    again = ask(stopping, T0 + 130, **seen)
    assert not any(isinstance(a, Record) for a in again)
    assert Terminate(M1) in again


# ---------------------------------------------------------------- PREPARING to COLLECTING


def test_prepare_then_start_once():
    calm = {"listing": listing(T0 + 5, machine()), "described": {M1: Described(T0 + 5, machine())}}
    assert ask(READY, T0 + 6, **calm) == [Peek()]  # after a restart: it may be running already
    fresh = {"known_fresh": True, **calm}
    assert ask(READY, T0 + 6, **fresh) == [PrepareNext()]
    asked = event(ask(READY, T0 + 6, prepared=True, **fresh))
    assert asked == ev.StartAsked(T0 + 6)
    assert ask([*READY, asked], T0 + 6, prepared=True, **fresh) == [StartTrainer()]
    status = AgentStatus("training", alive=True, heartbeat_age_s=0.1, log_bytes=0,
                         metrics_bytes=0, exit=None)  # fmt: skip
    started = event(ask([*READY, asked], T0 + 6, prepared=True, status=status, **calm))
    assert started == ev.TrainerStarted(T0 + 6)


def test_preparing_has_an_end():
    history: list[Any] = [*READY, ev.StepDone(T0 + 9, "agent")]
    history[0] = replace(history[0], deadline_at=T0 + 99_999)
    late = event(ask(history, T0 + 5 + LIMITS.prepare_timeout_s, site_error="broken pipe"))
    assert (late.reason, late.evidence) == (
        Reason.PREPARE_TIMEOUT,
        "at step agent: broken pipe",
    )


def test_what_the_watchdog_beside_sees_ends_a_running_attempt():
    history: list[Any] = [*READY, ev.StartAsked(T0 + 6), ev.TrainerStarted(T0 + 7)]
    calm = {"listing": listing(T0 + 95, machine()), "site_ok_at": T0 + 95}
    nothing = (Reason.STALLED, "no step")
    found = event(ask(history, T0 + 96, nothing=nothing, **calm))
    assert found == ev.Aborted(T0 + 96, Reason.STALLED, "no step")
    silent = ask(history, T0 + 96, nothing=nothing, site_down_since=T0 + 96, **calm)
    assert not any(isinstance(action, Record) for action in silent)


def test_running_follows():
    calm = {
        "listing": listing(T0 + 95, machine()),
        "described": {M1: Described(T0 + 95, machine())},
    }
    assert ask(RUNNING, T0 + 96, **calm) == [Follow()]
    assert ask(RUNNING, T0 + 96, site_after=T0 + 98, **calm) == [Wait(T0 + 98)]


def test_a_silent_ssh_is_waited_for_while_the_provider_says_it_runs():
    calm = {
        "listing": listing(T0 + 95, machine()),
        "described": {M1: Described(T0 + 95, machine())},
    }
    down = {"site_down_since": T0 + 10, "site_error": "timed out", "site_error_at": T0 + 90}
    assert not isinstance(ask(RUNNING, T0 + 96, **down, **calm)[0], Record)
    lost = event(ask(RUNNING, T0 + 10 + LIMITS.ssh_lost_s, **down, **calm))
    assert (lost.reason, lost.evidence) == (Reason.SSH_LOST, "timed out")


def test_a_moved_address_is_looked_up_after_a_failure():
    seen = {
        "listing": listing(T0 + 95, machine()),
        "described": {M1: Described(T0 + 20, machine())},
        "site_down_since": T0 + 90,
        "site_error_at": T0 + 90,
        "site_after": T0 + 99,
    }
    assert ask(RUNNING, T0 + 95, **seen) == [Describe(M1)]


def test_a_dead_agent_without_a_verdict_ends_the_attempt_after_a_while():
    assert not isinstance(ask(RUNNING, T0 + 95, dead_since=T0 + 90)[0], Record)
    lost = event(ask(RUNNING, T0 + 150, dead_since=T0 + 90))
    assert lost.reason is Reason.AGENT_LOST


def _report(reason):
    return ExitReport("v", reason, "line", 0, None, T0, T0 + 90, 5, 5, 1)


def test_a_verdict_is_collected_log_first():
    calm = {
        "listing": listing(T0 + 95, machine()),
        "described": {M1: Described(T0 + 95, machine())},
    }
    assert ask(TRAINED, T0 + 96, **calm) == [Drain()]
    assert ask(TRAINED, T0 + 96, drained=True, **calm) == [Collect()]
    files = (("adapter_model.safetensors", 9, "ab"),)
    pushed = event(
        ask(TRAINED, T0 + 96, drained=True, collected=Collected(Path("/o"), files), **calm)
    )
    after = fold([*TRAINED, pushed])
    assert (after.state, after.reason, after.files) == (State.STOPPING, Reason.SUCCEEDED, files)


def test_collecting_has_an_end():
    late = event(ask(TRAINED, T0 + 90 + LIMITS.collect_timeout_s, site_error="reset"))
    assert (late.reason, late.evidence) == (Reason.ARTIFACTS_FAILED, "reset")


def test_after_a_failure_only_the_log_is_fetched_and_not_for_long():
    assert ask(FAILED, T0 + 91) == [Drain()]
    for seen in ({"drained": True}, {"cancel": Reason.CANCELLED}):
        assert event(ask(FAILED, T0 + 91, **seen)).files == ()
    late = event(ask(FAILED, T0 + 90 + LIMITS.drain_timeout_s))
    assert fold([*FAILED, late]).reason is Reason.OUT_OF_MEMORY


def test_a_failed_training_brings_its_newest_checkpoint_home_first():
    saved = {"drained": True, "saved_step": 40}
    terms = replace(TERMS, keep_checkpoints=2)
    assert ask(FAILED, T0 + 95, terms, **saved) == [KeepCheckpoint(40)]
    for settled in (
        {"tried_step": 40},
        {"saved_step": None},
        {"cancel": Reason.CANCELLED},
        {"refused": (Reason.DISK_FULL, "")},
    ):
        over = event(ask(FAILED, T0 + 95, terms, **{**saved, **settled}))
        assert isinstance(over, ev.ArtifactsPushed)
    late = T0 + 90 + LIMITS.drain_timeout_s
    unreachable = event(ask(FAILED, late, terms, **saved, site_down_since=T0 + 95))
    assert isinstance(unreachable, ev.ArtifactsPushed)
    assert ask(FAILED, late, terms, **saved) == [KeepCheckpoint(40)]
    end = T0 + 90 + LIMITS.collect_timeout_s
    assert isinstance(event(ask(FAILED, end, terms, **saved)), ev.ArtifactsPushed)
    poor = replace(terms, budget_usd=Decimal(1))
    spent = event(ask(FAILED, T0 + 95, poor, **saved, cost_usd=Decimal(1)))
    assert isinstance(spent, ev.ArtifactsPushed)
