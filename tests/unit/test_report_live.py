"""The screen of a running job: phases with seconds, a bar with a pace, plain lines."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orchestrator.report_live import (
    Curve,
    Live,
    Transfer,
    closing_lines,
    cost_words,
    left,
    live_lines,
    opening_lines,
    plain_lines,
    progress_words,
    seconds_per_step,
)
from orchestrator.report_text import Screen, cells
from orchestrator.states import State, Teardown
from tests.support.job_views import ATTEMPT, JOB, NOW, billing, failed, job, succeeded

WIDE = Screen(width=200)
CURVE = Curve(
    points=tuple((NOW - 100 + 2 * i, 462 + i) for i in range(51)),
    losses=tuple(2.1 - 0.016 * i for i in range(51)),
    gpu_util_percent=97.0,
    gpu_used_gib=16.1,
    gpu_total_gib=23.6,
)


def _live(one=None, **changes):
    return Live(**{"job": one or job(), "now": NOW, "curve": CURVE, **changes})


def _stage(state, **attempt):
    blank = {
        "launched_at": None, "ssh_ready_at": None, "trainer_started_at": None, "step": None,
        "max_steps": None, "loss": None, "eval_loss": None, "tokens_per_s": None,
    }  # fmt: skip
    return job({**blank, **attempt}, state=state)


INTENDED = _stage(State.INTENDED)
BOOTING = _stage(State.BOOTING, launched_at=NOW - 998)
PREPARING = _stage(
    State.PREPARING, launched_at=NOW - 998, ssh_ready_at=NOW - 837, prepare_step="data"
)


def test_the_pace_is_the_newest_one():
    assert seconds_per_step([]) is None
    assert seconds_per_step([(0.0, 5), (9.0, 5)]) is None
    assert seconds_per_step([(0.0, 0), (10.0, 5)]) == 2.0
    slow_then_fast = [(100.0 * i, i) for i in range(50)] + [
        (4900.0 + 2 * i, 49 + i) for i in range(1, 31)
    ]
    assert seconds_per_step(slow_then_fast) == 2.0


def test_a_whole_training_screen():
    text = "\n".join(live_lines(_live(), WIDE))
    assert "step 512/902  2.0 s/it  ETA 13m00s" in text
    assert "loss 1.284 (eval 1.311), 2,531 tok/s, GPU 97 %, 16.1 of 23.6 GiB" in text
    assert re.search(r"loss +2\.100 [▁▂▃▄▅▆▇█]+ 1\.300", text)
    assert "$0.21 so far, about $0.37 ($0.36 - $0.37) at the end, at most $8.00" in text
    assert re.search(r"boot +SSH, host key checked  2m41s", text)


def test_a_fast_training_counts_steps_a_second():
    fast = replace(CURVE, points=tuple((NOW - 10 + 0.2 * i, 462 + i) for i in range(51)))
    assert "5.0 it/s" in progress_words(_live(curve=fast))


def test_before_the_first_step_it_says_that_it_loads():
    one = job({"step": None, "max_steps": None, "loss": None, "eval_loss": None})
    assert progress_words(_live(one, curve=Curve())) == "loading  13m50s"


@pytest.mark.parametrize(
    ("one", "last_phase"),
    [(INTENDED, "launch"), (BOOTING, "boot"), (PREPARING, "prepare"), (job(), "train")],
)
def test_each_state_shows_its_phase(one, last_phase):
    labels = [line.split()[0] for line in live_lines(_live(one, curve=Curve()), WIDE)]
    assert last_phase in labels
    later = ["launch", "boot", "prepare", "train"]
    assert not set(later[later.index(last_phase) + 1 :]) & set(labels)


def test_a_job_without_an_attempt():
    assert "intent" in live_lines(_live(replace(JOB, attempts=())), WIDE)[0]


def test_an_upload_has_a_bar():
    live = _live(PREPARING, transfer=Transfer("train.jsonl", 3_100_000, 6_200_000))
    assert "data: train.jsonl ######------ 3.1 MB of 6.2 MB" in "\n".join(live_lines(live, WIDE))


def test_still_billing_opens_the_live_screen():
    assert live_lines(_live(billing()), WIDE)[0].startswith("STILL BILLING")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("one", [INTENDED, BOOTING, PREPARING, job(), succeeded()])
def test_no_line_is_wider_than_the_screen(one, width):
    screen = Screen(width=width)
    live = _live(one, transfer=Transfer("a-long-name-of-a-file.safetensors", 1, 2))
    lines = [*opening_lines(one, screen), *live_lines(live, screen)]
    assert all(cells(line) <= width for line in lines)


def test_the_cost_at_the_end_needs_a_pace():
    assert left(_live(curve=Curve())) is None
    assert "at the end" not in cost_words(_live(curve=Curve()))


def test_the_end_of_a_success():
    text = "\n".join(closing_lines(succeeded(), 3, NOW, WIDE))
    assert "training SUCCEEDED   machine GONE" in text
    assert "3 files verified, /home/ada/out" in text
    assert "1.284 train, 1.311 eval" in text
    assert "16m01s from submit, 12m50s trained" in text
    assert "$0.21 estimated; the provider's bill follows" in text


def test_the_end_of_a_failure_says_why_and_what_next():
    text = "\n".join(closing_lines(failed(), None, NOW, WIDE))
    assert "OUT_OF_MEMORY" in text
    assert "next " in text
    assert "adapter" not in text


def test_a_notional_cost_is_nobodys_bill():
    one = replace(succeeded(), attempts=(replace(ATTEMPT, price_is_notional=True),))
    assert "at a notional price; nobody bills it" in "\n".join(closing_lines(one, 1, NOW, WIDE))


def test_plain_lines_come_once_a_change():
    assert not plain_lines(_live(), _live(now=NOW + 5), WIDE)
    assert plain_lines(None, _live(INTENDED), WIDE)
    booted = plain_lines(_live(BOOTING, curve=Curve()), _live(PREPARING, curve=Curve()), WIDE)
    assert [line.split()[0] for line in booted] == ["boot", "prepare"]
    assert not plain_lines(_live(), _live(job({"step": 513})), WIDE)  # the same twentieth
    stepped = plain_lines(_live(), _live(job({"step": 555})), WIDE)
    assert "step 555/902" in stepped[0]
    assert "loss 1.284" in stepped[0]


def test_plain_lines_do_not_repeat_a_running_phase():
    before = _live(BOOTING, curve=Curve())
    assert not plain_lines(before, _live(BOOTING, curve=Curve(), now=NOW + 30), WIDE)


def test_plain_lines_tell_of_billing_once():
    first = plain_lines(_live(), _live(billing()), WIDE)
    assert any(line.startswith("STILL BILLING") for line in first)
    again = plain_lines(_live(billing()), _live(billing(), now=NOW + 60), WIDE)
    assert not any(line.startswith("STILL BILLING") for line in again)


def test_plain_text_has_the_same_words_as_the_screen():
    screen = "\n".join(live_lines(_live(), WIDE))
    words = set(screen.split())
    for line in plain_lines(None, _live(), WIDE):
        assert set(line.split()) <= words


def test_teardown_is_a_phase_of_its_own():
    one = job(
        {"trainer_exited_at": NOW - 60, "terminate_first_asked_at": NOW - 5, "terminate_calls": 1,
         "teardown": Teardown.STOPPING},
        state=State.STOPPING, teardown=Teardown.STOPPING,
    )  # fmt: skip
    assert "asked once, not yet read as gone" in "\n".join(live_lines(_live(one), WIDE))
