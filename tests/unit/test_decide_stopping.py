"""decide in STOPPING: never given up, never believed without proof."""

from dataclasses import replace

from orchestrator import events as ev
from orchestrator import ledger
from orchestrator.actions import (
    Describe,
    Farewell,
    Find,
    Record,
    Terminate,
    Wait,
)
from orchestrator.decide import decide
from orchestrator.fold import apply, fold
from orchestrator.observation import Described, Observation, Terms
from orchestrator.states import Reason, State, Teardown
from orchestrator.views_build import teardown_of
from providers.base import InstanceId, InstanceState
from tests.support.core import M1, T0, TRAITS, launched, opened
from tests.support.situations import (
    LIMITS,
    RUNNING,
    TERMS,
    UNCLEAR,
    absent,
    ask,
    event,
    listing,
    machine,
)

# ---------------------------------------------------------------- INTENDED


STOPPING = [*launched(), ev.Aborted(T0 + 60, Reason.CANCELLED, "")]
ASKED = [*STOPPING, ev.TerminateAsked(T0 + 60, M1), ev.TerminateAccepted(T0 + 60, M1)]


def test_nothing_asked_needs_no_proof():
    history = [opened(), ev.Aborted(T0, Reason.CANCELLED, "")]
    assert event(ask(history, T0)) == ev.InstanceGone(T0, "never asked")


def test_terminate_is_asked_even_of_a_machine_that_seems_gone():
    assert ask(STOPPING, T0 + 60, **absent(T0 + 60)) == [Terminate(M1)]


def test_the_return_of_terminate_proves_nothing():
    actions = ask(ASKED, T0 + 60)
    assert actions == [Describe(M1), Find(T0 + 60)]


def test_proof_is_two_reads_a_gap_apart():
    first = event(ask(ASKED, T0 + 61, **absent(T0 + 61)))
    assert first == ev.AbsenceRead(T0 + 61, M1)
    history = [*ASKED, first]
    assert ask(history, T0 + 62, **absent(T0 + 61)) == [Wait(T0 + 71)]
    assert ask(history, T0 + 71, **absent(T0 + 61)) == [Describe(M1), Find(T0 + 71)]
    history.append(event(ask(history, T0 + 71, **absent(T0 + 71))))
    assert history[-1] == ev.MachineGone(T0 + 71, M1)
    assert event(ask(history, T0 + 71)) == ev.InstanceGone(T0 + 71, "reads")


def test_terminate_is_asked_again_with_growing_pauses_for_ever():
    attempt, calls, alarms, now = fold(STOPPING), [], [], T0 + 60
    while now < T0 + 4000:
        seen = Observation(
            listing=listing(now, machine()), described={M1: Described(now, machine())}
        )
        for action in decide(attempt, seen, now, TERMS):
            if isinstance(action, Terminate):
                calls.append(now - T0 - 60)
                attempt = apply(attempt, ev.TerminateAsked(now, M1))
                attempt = apply(attempt, ev.TerminateFailed(now, M1, "Unavailable: 500"))
            elif isinstance(action, Record):
                alarms.append(action.event.at - T0 - 60)
                attempt = apply(attempt, action.event)
        now += 1.0
    assert calls[:8] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0]
    assert calls[-1] > 3800
    assert alarms[0] <= 8.0  # three failures
    assert 3600 <= alarms[1] - alarms[0] <= 3601
    assert attempt.state is State.STOPPING


def test_the_alarm_sounds_after_a_minute_of_silence():
    alive = {
        "listing": listing(T0 + 119, machine()),
        "described": {M1: Described(T0 + 119, machine())},
    }
    assert not any(isinstance(a, Record) for a in ask(ASKED, T0 + 119, **alive))
    assert isinstance(event(ask(ASKED, T0 + 120, **alive)), ev.StillBilling)


def test_a_refused_key_alarms_at_once_and_is_never_the_end():
    history = [*STOPPING, ev.TerminateAsked(T0 + 60, M1),
               ev.TerminateFailed(T0 + 60, M1, "AuthFailed: 401", definite=True)]  # fmt: skip
    alarm = event(ask(history, T0 + 60))
    assert isinstance(alarm, ev.StillBilling)
    assert "401" in alarm.text
    assert Terminate(M1) in ask([*history, alarm], T0 + 61)


def test_a_wait_that_the_provider_asked_for_is_kept():
    history = [*STOPPING, ev.TerminateAsked(T0 + 60, M1),
               ev.TerminateFailed(T0 + 60, M1, "429", retry_at=T0 + 90)]  # fmt: skip
    alive = {
        "listing": listing(T0 + 80, machine()),
        "described": {M1: Described(T0 + 80, machine())},
    }
    assert Terminate(M1) not in ask(history, T0 + 80, **alive)
    assert Terminate(M1) in ask(history, T0 + 90, **alive)


def test_an_unclear_launch_keeps_its_window_after_a_cancel():
    history = [*UNCLEAR, ev.Aborted(T0 + 3, Reason.CANCELLED, "")]
    assert ask(history, T0 + 5) == [Find(T0)]
    found = listing(T0 + 40, machine())
    late = event(ask(history, T0 + 40, listing=found))
    assert (late.instance_id, late.how) == (M1, "late")
    assert ask([*history, late], T0 + 40, listing=found) == [Terminate(M1)]


def test_a_settled_window_leaves_a_suspect():
    history = [*UNCLEAR, ev.Aborted(T0 + 3, Reason.CANCELLED, "")]
    history += [ev.SettleRead(T0 + n) for n in range(14)]
    assert event(ask(history, T0 + 950)) == ev.InstanceGone(T0 + 950, "suspect", T0 + 950 + 86_400)


def test_a_machine_rented_by_hand_is_asked_and_left_to_its_owner():
    terms = Terms(replace(TRAITS, proves_absence=False))
    assert ask(STOPPING, T0 + 60, terms) == [Terminate(M1)]
    gone = event(ask(ASKED, T0 + 60, terms))
    assert gone == ev.MachineGone(T0 + 60, M1)
    assert event(ask([*ASKED, gone], T0 + 60, terms)).proof == "yours"


def test_a_farewell_is_said_once_and_only_where_it_can_be_heard():
    history = [*RUNNING, ev.Aborted(T0 + 60, Reason.CANCELLED, "")]
    assert ask(history, T0 + 60) == [Farewell()]
    assert ask(history, T0 + 60, farewell_done=True) == [Terminate(M1)]
    assert ask(history, T0 + 60 + LIMITS.farewell_s) == [Terminate(M1)]
    for reason in (Reason.HOST_KEY_MISMATCH, Reason.INSTANCE_LOST, Reason.SSH_LOST):
        assert ask([*RUNNING, ev.Aborted(T0 + 60, reason, "")], T0 + 60) == [Terminate(M1)]
    assert ask([*STOPPING], T0 + 60) == [Terminate(M1)]  # it was never reached


def test_closed_wants_nothing():
    history = [*ASKED, ev.AbsenceRead(T0 + 61, M1), ev.MachineGone(T0 + 71, M1),
               ev.InstanceGone(T0 + 71, "reads")]  # fmt: skip
    assert isinstance(ask(history, T0 + 99)[0], Wait)
    back = apply(fold(history), ev.Resurfaced(T0 + 500, M1))
    assert back.state is State.STOPPING
    assert back.living == back.machines


HERE = Terms(replace(TRAITS, list_lag_s=0.0, remote=False, knows_labels=True))
NOT_LISTED = [*UNCLEAR, ev.Aborted(T0 + 3, Reason.CANCELLED, ""),
              *(ev.SettleRead(T0 + n) for n in range(1, 6))]  # fmt: skip


def test_where_reads_are_never_behind_what_never_came_is_no_suspect():
    label = InstanceId(opened().label)
    assert ask(NOT_LISTED, T0 + 9, HERE) == [Describe(label)]
    old = {label: Described(T0 + 4, None)}  # from before the last empty list
    assert ask(NOT_LISTED, T0 + 9, HERE, described=old) == [Describe(label)]
    never = {label: Described(T0 + 9, None)}
    end = event(ask(NOT_LISTED, T0 + 9, HERE, described=never))
    assert end == ev.InstanceGone(T0 + 9, "never came")
    without_memory = Terms(replace(HERE.traits, knows_labels=False))
    assert event(ask(NOT_LISTED, T0 + 9, without_memory)) == end


def test_a_machine_that_lived_and_died_unseen_takes_the_way_to_its_proof():
    label = InstanceId(opened().label)
    lived = {label: Described(T0 + 9, replace(machine(), state=InstanceState.GONE))}
    seen = event(ask(NOT_LISTED, T0 + 9, HERE, described=lived))
    assert (seen.instance_id, seen.how) == (M1, "late")
    history: list[ev.AttemptEvent] = [*NOT_LISTED, seen]
    assert ask(history, T0 + 9, HERE) == [Terminate(M1)]
    proof: list[ev.AttemptEvent] = [ev.TerminateAsked(T0 + 9, M1), ev.TerminateAccepted(T0 + 9, M1),
             ev.AbsenceRead(T0 + 10, M1), ev.MachineGone(T0 + 15, M1)]  # fmt: skip
    over = fold([*history, *proof, ev.InstanceGone(T0 + 15, "reads")])
    assert teardown_of(over, T0 + 16) is Teardown.GONE
    paid = ledger.lines([over], T0 + 99)[0]
    assert (paid.start, paid.end) == (over.launch_asked_at, T0 + 15)
