"""Records to JSON and back: exact, without floats for money, refusing what cannot come back."""

import json
from dataclasses import dataclass
from decimal import Decimal

import pytest

from orchestrator import codec
from orchestrator.attempt import Attempt
from orchestrator.events import EVENTS, AttemptEvent, Launched, Opened
from orchestrator.plan import NewJob
from orchestrator.store_rows import Progress
from tests.support.core import T0, new_job, opened


def test_money_is_text():
    told = json.loads(codec.dump(new_job(budget_usd=Decimal("3.50"))))
    assert told["caps"]["budget_usd"] == "3.50"
    assert told["offers"][0]["price_usd_per_hour"] == "1.80"


def test_defaults_are_left_out_and_come_back():
    assert codec.dump(Progress(T0, step=5)) == f'{{"at":{T0},"step":5}}'
    assert codec.load(Progress, codec.dump(Progress(T0))) == Progress(T0)


def test_an_optional_field_of_a_newer_writer_is_ignored():
    told = json.loads(codec.dump(opened()))
    assert codec.decode(Opened, {**told, "invented_later": 1}) == opened()


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.dump(Progress(T0, loss=float("nan")))
    with pytest.raises(TypeError, match="no record may hold a set"):
        codec.encode({1, 2})


def test_a_class_that_could_not_be_read_back_is_refused_when_first_met():
    @dataclass(frozen=True)
    class Odd:
        things: frozenset[int]

    Odd.__annotations__["things"] = frozenset[int]
    with pytest.raises(TypeError, match="no record may hold a"):
        codec.decode(Odd, {})


@pytest.mark.parametrize("cls", [*EVENTS.values(), Attempt, NewJob, Progress])
def test_every_record_of_ours_can_be_read_back(cls):
    codec._decoder(cls)


def test_every_event_is_in_the_table_and_knows_its_arrow():
    assert EVENTS["Launched"] is Launched
    for cls in AttemptEvent.__args__:
        assert hasattr(cls, "moves"), cls
