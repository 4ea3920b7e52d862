"""The tables of states.py, asserted on as tables."""

from orchestrator.states import (
    ENDINGS,
    EXIT_PRECEDENCE,
    EXIT_STILL_BILLING,
    MAY_HOLD_A_MACHINE,
    TRANSITIONS,
    Event,
    Outcome,
    Reason,
    State,
)


def test_every_reason_has_an_ending_in_words():
    assert set(ENDINGS) == set(Reason)
    for reason, ending in ENDINGS.items():
        assert ending.cause.endswith("."), reason
        assert ending.next_step.endswith("."), reason
        assert ending.outcome is not Outcome.RUNNING
        assert max(len(ending.cause), len(ending.next_step)) <= 110, reason


def test_only_success_exits_zero():
    assert [r for r, e in ENDINGS.items() if e.exit_code == 0] == [Reason.SUCCEEDED]
    assert [r for r, e in ENDINGS.items() if e.outcome is Outcome.SUCCEEDED] == [Reason.SUCCEEDED]


def test_precedence_ranks_every_code_and_still_billing_wins():
    codes = {e.exit_code for e in ENDINGS.values()} | {EXIT_STILL_BILLING}
    assert codes <= set(EXIT_PRECEDENCE)
    assert EXIT_PRECEDENCE[:4] == (5, 130, 7, 4)


def test_what_may_hold_a_machine_leaves_only_through_stopping():
    for (state, event), target in TRANSITIONS.items():
        if target is State.CLOSED:
            assert (state, event) in {
                (State.INTENDED, Event.REFUSED),
                (State.STOPPING, Event.INSTANCE_GONE),
            }


def test_every_state_that_may_hold_a_machine_can_be_aborted():
    for state in MAY_HOLD_A_MACHINE - {State.STOPPING}:
        assert TRANSITIONS[state, Event.ABORTED] is State.STOPPING


def test_stopping_has_one_way_out_and_closed_one_way_back():
    assert {t for (s, _), t in TRANSITIONS.items() if s is State.STOPPING} == {State.CLOSED}
    assert {(e, t) for (s, e), t in TRANSITIONS.items() if s is State.CLOSED} == {
        (Event.RESURFACED, State.STOPPING)
    }


def test_all_states_and_events_are_used():
    assert {s for s, _ in TRANSITIONS} == set(State)
    assert {e for _, e in TRANSITIONS} == set(Event)


def test_another_offer_is_never_tried_for_a_fault_of_the_job_itself():
    for reason in (
        Reason.SUCCEEDED, Reason.CANCELLED, Reason.OUT_OF_MEMORY, Reason.DATA_FORMAT,
        Reason.AUTH, Reason.DEADLINE, Reason.BUDGET, Reason.HOST_KEY_MISMATCH, Reason.INTERNAL,
    ):  # fmt: skip
        assert not ENDINGS[reason].next_offer, reason
    for reason in (Reason.NO_CAPACITY, Reason.BOOT_TIMEOUT, Reason.INSTANCE_LOST):
        assert ENDINGS[reason].next_offer, reason
