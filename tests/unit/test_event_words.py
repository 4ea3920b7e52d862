"""The journal in words: every event that there is, whatever its fields hold."""

from __future__ import annotations

import typing
from decimal import Decimal

import pytest

from orchestrator import codec
from orchestrator import events as ev
from orchestrator.event_words import words_of
from orchestrator.report import event_lines
from orchestrator.report_text import Screen
from orchestrator.states import Reason
from providers.base import InstanceId
from tests.support.core import T0, opened

SEEN = ev.MachineSeen(T0, InstanceId("m-1"), "answered", Decimal("0.74"))
EXITED = ev.TrainerExited(T0, Reason.OUT_OF_MEMORY, "CUDA out of memory", 1, 7, 20)


def told(event) -> str:
    fields = {k: v for k, v in codec.encode(event).items() if k != "at"}
    return words_of(type(event).__name__, fields)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (opened(), "attempt 1 is intended: A100-80GB at fake, $1.80/h"),
        (SEEN, "the machine m-1 was made, $0.74/h"),
        (EXITED, "the training ended at step 7 of 20: OUT_OF_MEMORY: CUDA out of memory"),
        (ev.ArtifactsPushed(T0, (("a", 1000, "x"), ("b", 500, "y"))), "2 files are at home"),
        (
            ev.TerminateFailed(T0, InstanceId("m-1"), "503", definite=True),
            "will not pass by itself",
        ),
        (ev.InstanceGone(T0, "reads"), "two reads prove it"),
        (ev.StillBilling(T0, "m-1: 3 terminate calls: 503"), "STILL BILLING  m-1: 3 terminate"),
    ],
)
def test_what_is_said(event, text):
    assert text in told(event)


@pytest.mark.parametrize("name", sorted(ev.EVENTS))
def test_an_event_with_unknown_fields_is_told_all_the_same(name):
    assert words_of(name, {})
    assert words_of(name, {"what": "ever"})
    assert words_of("NeverHeardOf", {"a": 1, "b": None}) == "never heard of: a 1"


def test_every_event_of_a_job_has_words_of_its_own():
    """Not its bare name."""
    simple = typing.get_args(ev.JobEvent)
    for cls in simple:
        assert cls.__name__.lower() not in words_of(cls.__name__, {"name": "x", "reason": "y"})


def test_lines_are_wrapped_below_their_words():
    body = {"attempt": 1, "at_unix_s": T0, "text": "word " * 40}
    lines = event_lines([body], T0, Screen(60))
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60
    assert lines[1].startswith(" ")
