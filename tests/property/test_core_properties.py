"""Few and strong: what holds for every history, every observation, every amount."""

from dataclasses import fields, replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import codec, ledger
from orchestrator import events as ev
from orchestrator.actions import Launch, Record, Terminate, Wait
from orchestrator.attempt import Attempt, label_of, parse_label
from orchestrator.decide import decide
from orchestrator.fold import ImpossibleEventError, apply, fold
from orchestrator.observation import Terms
from orchestrator.plan import NewJob
from orchestrator.policy import ALL_RULES, Rules
from orchestrator.states import TRANSITIONS, State
from tests.support.core import T0, TRAITS, offer, opened
from tests.support.strategies import any_event, histories, money, observations, of_type, times

few = settings(deadline=None, max_examples=50)
many = settings(deadline=None, max_examples=200)


@few
@given(any_event)
def test_events_survive_the_journal(event):
    assert codec.load(type(event), codec.dump(event)) == event


@few
@given(of_type(NewJob))
def test_jobs_survive_the_store(new):
    new = replace(new, spec={})
    assert codec.load(NewJob, codec.dump(new)) == new


@few
@given(histories())
def test_the_fold_is_deterministic_and_its_snapshot_survives(history):
    attempt = fold(history)
    assert fold(history) == attempt
    assert codec.load(Attempt, codec.dump(attempt)) == attempt
    longer = fold(history[:-1]) if len(history) > 1 else None
    assert apply(longer, history[-1]) == attempt


@few
@given(histories())
def test_state_moves_only_along_the_table(history):
    attempt, state = None, State.INTENDED
    for event in history:
        attempt = apply(attempt, event)
        if event.moves is None:
            assert attempt.state is state
        else:
            assert TRANSITIONS[state, event.moves] is attempt.state
        state = attempt.state


@few
@given(histories(), any_event)
def test_an_event_that_the_table_does_not_name_is_refused(history, event):
    attempt = fold(history)
    moves = getattr(event, "moves", None)
    if moves is not None and (attempt.state, moves) not in TRANSITIONS:
        with pytest.raises(ImpossibleEventError):
            apply(attempt, event)


@few
@given(histories())
def test_the_first_reason_wins(history):
    attempt, first = None, None
    for event in history:
        attempt = apply(attempt, event)
        first = first or attempt.reason
        assert attempt.reason is first


@given(
    histories(),
    observations(),
    times,
    st.none() | money,
    st.sampled_from([ALL_RULES] + [replace(ALL_RULES, **{f.name: False}) for f in fields(Rules)]),
)
@many
def test_decide_is_total_and_its_answers_can_be_carried_out(history, seen, now, budget, rules):
    attempt = fold(history)
    actions = decide(attempt, seen, now, Terms(TRAITS, rules=rules, budget_usd=budget))
    assert actions
    for action in actions:
        if isinstance(action, Record):
            apply(attempt, action.event)  # raises where the state does not allow it
        elif isinstance(action, Terminate):
            assert attempt.machine(action.instance_id) is not None
        elif isinstance(action, Launch):
            assert attempt.state is State.INTENDED
            assert not attempt.launch_open
            assert not attempt.machines
        elif isinstance(action, Wait):
            assert now < action.until <= now + 30.0
            assert len(actions) == 1


@few
@given(histories(), observations(), times)
def test_stopping_never_ends_without_a_proof(history, seen, now):
    attempt = fold(history)
    for action in decide(attempt, seen, now, Terms(TRAITS)):
        if isinstance(action, Record) and isinstance(action.event, ev.InstanceGone):
            assert not attempt.living
            if attempt.machines:
                assert all(m.gone_at is not None for m in attempt.machines)
            else:
                assert not attempt.launch_open or attempt.settle_reads >= 14
        if isinstance(action, Record) and isinstance(action.event, ev.MachineGone):
            machine = attempt.machine(action.event.instance_id)
            assert machine is not None
            assert machine.absent_at is not None
            assert machine.terminate_first_at is not None
            assert now - machine.absent_at >= 0 or seen.listing is not None


@few
@given(histories(), times)
def test_money_is_decimal_and_never_falls(history, now):
    attempt = fold(history)
    at_first = ledger.cost([attempt], now)
    assert isinstance(at_first, Decimal)
    for line in ledger.lines([attempt], now):
        assert isinstance(line.usd, Decimal)
        assert isinstance(line.usd_per_hour, Decimal)
        assert line.usd >= 0
        assert line.usd == line.usd.quantize(Decimal("0.000001"))
    assert ledger.cost([attempt], now + 3600.0) >= at_first


@few
@given(histories(), times)
def test_the_sums_add_up_however_they_are_cut(history, now):
    attempt = fold(history)
    whole = ledger.cost([attempt], now)
    for by in ("job", "day", "provider"):
        parts = ledger.totals([attempt], by, now)
        assert sum((p.total_usd for p in parts), Decimal(0)) == whole


@few
@given(st.floats(0.0, 400_000.0), money, st.sampled_from([0.0, 1.0, 60.0, 3600.0]))
def test_an_estimate_covers_the_exact_price(lasted, price, step):
    attempt = fold(
        [
            opened(offer=offer(price=str(price)), billing_step_s=step),
            ev.LaunchAsked(T0),
        ]
    )
    exact = price * Decimal(lasted) / 3600
    estimate = ledger.cost([attempt], T0 + lasted)
    assert estimate >= exact - Decimal("0.000001")
    assert estimate <= exact + price * Decimal(step + 0.001) / 3600 + Decimal("0.000002")


@few
@given(st.text(alphabet="0123456789abcdef", min_size=6, max_size=6), st.integers(1, 999_999))
def test_labels_can_be_read_back(job_id, number):
    label = label_of("ad2a0ab6", job_id, number, "fedcba")
    assert parse_label(label) == ("ad2a0ab6", job_id, number)


@few
@given(st.text())
def test_no_label_of_others_harms_the_reader(text):
    parsed = parse_label(text)
    assert parsed is None or text.startswith("gpujob-")
