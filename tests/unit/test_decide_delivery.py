"""Before a lost attempt is given up, the store is asked once what its machine delivered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import events as ev
from orchestrator.actions import LookForRescue, Record, Wait
from orchestrator.decide_delivery import RESCUE_S, rescued
from orchestrator.fold import fold
from orchestrator.observation import Observation, Terms
from orchestrator.site import Collected, ExitReport
from orchestrator.states import Reason, State
from tests.support.core import T0
from tests.support.situations import RUNNING, TERMS

ATTEMPT = fold(RUNNING)
NOW = T0 + 500
WITH = replace(TERMS, rescue=True)
ENDED = ExitReport("succeeded", Reason.SUCCEEDED, "", 0, None, 0.0, 0.0, 12, 12, 1)


def lost(reason: Reason = Reason.INSTANCE_LOST):
    return [(NOW, Record(ev.Aborted(NOW, reason, "")))]


def ask(wanted, seen: Observation | None = None, terms: Terms = WITH, attempt=ATTEMPT):
    return rescued(wanted, attempt, seen or Observation(), NOW, terms)


@pytest.mark.parametrize("reason", Reason)
def test_only_an_end_that_nobody_saw_is_looked_into(reason):
    unseen = {Reason.INSTANCE_LOST, Reason.SSH_LOST, Reason.AGENT_LOST, Reason.DEADLINE}
    found = ask(lost(reason))
    assert found == ([(0.0, LookForRescue())] if reason in unseen else lost(reason))


def test_nobody_looks_where_there_is_no_set_or_no_training():
    assert ask(lost(), terms=TERMS) == lost()
    assert ask(lost(), attempt=replace(ATTEMPT, state=State.BOOTING)) == lost()
    assert ask(lost(), attempt=replace(ATTEMPT, reason=Reason.TRAINER_FAILED)) == lost()
    waiting = [(NOW + 5, Wait(NOW + 5))]
    assert ask(waiting) == waiting


def test_one_look_settles_it_and_a_store_that_is_away_delays_it_a_little():
    assert ask(lost(), Observation(rescue_over=True)) == lost()
    away = Observation(rescue_since=NOW - RESCUE_S + 1, rescue_after=NOW + 5)
    assert ask(lost(), away) == [(NOW + 5, LookForRescue())]
    assert ask(lost(), Observation(rescue_since=NOW - RESCUE_S)) == lost()


def test_what_was_found_is_the_end_of_the_training():
    home = Collected(Path("/out"), (("adapter_model.safetensors", 1, "00"),))
    seen = Observation(rescued=ENDED, collected=home, rescue_over=True)
    ((at, action),) = ask(lost(), seen)
    assert at == NOW
    assert isinstance(action, Record)
    assert action.event == ev.TrainerExited(NOW, Reason.SUCCEEDED, "", 0, 12, 12, 1)
    collecting = fold([*RUNNING, action.event])
    assert collecting.state is State.COLLECTING
    pushed = [(NOW, Record(ev.ArtifactsPushed(NOW, home.files, "/out")))]
    assert ask(pushed, seen, attempt=collecting) == pushed
