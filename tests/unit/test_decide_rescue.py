"""A result that does not come home: its machine lives on for a while, and the person is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator.actions import Record
from orchestrator.fold import fold
from orchestrator.observation import Described
from orchestrator.report import status_lines
from orchestrator.report_live import Live, live_lines
from orchestrator.report_text import Screen
from orchestrator.states import State
from orchestrator.views_build import attempt_view
from tests.support.core import M1, T0
from tests.support.job_views import JOB as RUNNING_JOB
from tests.support.situations import TRAINED, ask, event, listing, machine

CALM: dict[str, Any] = {
    "listing": listing(T0 + 95, machine()),
    "described": {M1: Described(T0 + 95, machine())},
    "drained": True,
}


@pytest.mark.parametrize(
    "trouble",
    [
        {"site_error": "connection reset", "site_down_since": T0 + 95},
        {"site_error": "on this machine: No space left on device"},
    ],
)
def test_why_how_long_and_for_how_much_is_told_once(trouble):
    note = event(ask(TRAINED, T0 + 96, **CALM, **trouble))
    assert isinstance(note, ev.Noted)
    assert trouble["site_error"] in note.text
    assert "20 min at the most" in note.text
    assert "costs $0.60" in note.text  # a third of an hour at $1.80
    for later in (97, 700):
        actions = ask([*TRAINED, note], T0 + later, **CALM, **trouble)
        assert not [one for one in actions if isinstance(one, Record)]
    silent = {"site_error": "timed out", "site_down_since": T0 + 95}
    other = event(ask([*TRAINED, note], T0 + 98, **CALM, **silent))
    assert "timed out" in other.text


def test_a_result_that_comes_home_is_not_talked_of():
    actions = ask(TRAINED, T0 + 96, **CALM, site_error="an old error")
    assert not [one for one in actions if isinstance(one, Record)]


def test_it_is_on_the_screen_while_it_lasts():
    note = event(ask(TRAINED, T0 + 96, **CALM, site_error="reset", site_down_since=T0 + 95))
    view = attempt_view(fold([*TRAINED, note]), None, T0 + 97)
    job = replace(RUNNING_JOB, attempts=(view,), state=State.COLLECTING)
    wide = Screen(width=200)
    for lines in (status_lines(job, T0 + 97, wide), live_lines(Live(job, T0 + 97), wide)):
        assert "the result does not come home: reset" in "\n".join(lines)
