"""What a person reads about jobs: both outcomes, how each claim is known, and money first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orchestrator.report import (
    MACHINE_WORD,
    headline,
    machine_claim,
    ps_lines,
    status_lines,
    still_billing_lines,
)
from orchestrator.report_text import ACCENT, Screen, cells, moment
from orchestrator.states import Outcome, Reason, State, Teardown
from tests.support.job_views import ATTEMPT, NOW, billing, failed, job, succeeded

WIDE = Screen(width=200)
WIDTHS = (40, 60, 80, 120, 200)


def _plain(lines):
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def test_still_billing_stands_first_and_says_what_to_do():
    lines = ps_lines([job(), billing()], NOW, WIDE)
    assert lines[0].startswith("STILL BILLING   support-tone #3f2a91   9k2x7   $0.74/h")
    assert "$0.19 so far" in lines[0]
    text = "\n".join(lines)
    assert "answered 500" in text
    assert "7 terminate calls" in text
    assert "gpujob sweep" in text
    assert ATTEMPT.label in text


def test_a_driver_that_keeps_trying_is_named():
    text = "\n".join(still_billing_lines([replace(billing(), supervised_by="box:7")], NOW, WIDE))
    assert "box:7 keeps trying" in text
    assert "Nobody" not in text


def test_nothing_is_said_of_billing_when_nothing_bills():
    assert not still_billing_lines([job(), succeeded(), failed()], NOW, WIDE)


def test_an_older_attempt_that_still_bills_is_not_forgotten():
    old = replace(billing().attempts[0], number=1)
    both = replace(succeeded(), attempts=(old, replace(succeeded().attempts[0], number=2)))
    assert still_billing_lines([both], NOW, WIDE)[0].startswith("STILL BILLING")


def test_ps_has_a_line_a_job():
    lines = ps_lines([job(), succeeded(), failed()], NOW, WIDE)
    assert lines[0].split() == [
        "job", "id", "state", "where", "age", "training", "machine", "cost",
    ]  # fmt: skip
    assert "step 512/902" in lines[1]
    assert "living" in lines[1]
    assert lines[1].endswith("$0.21")
    assert "SUCCEEDED" in lines[2]
    assert "gone" in lines[2]
    assert "FAILED" in lines[3]


def test_no_jobs_yet():
    assert "gpujob submit" in ps_lines([], NOW, WIDE)[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_table_is_wider_than_the_screen(width):
    jobs = [job(), succeeded(), failed(), replace(job(), name="n" * 63)]
    assert all(cells(line) <= width for line in ps_lines(jobs, NOW, Screen(width=width)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("one", [job(), succeeded(), failed(), billing()])
def test_no_word_of_a_status_is_lost_to_a_narrow_screen(one, width):
    wide = " ".join(" ".join(_plain(status_lines(one, NOW, WIDE))).split())
    narrow = " ".join(" ".join(_plain(status_lines(one, NOW, Screen(width=width)))).split())
    assert narrow == wide


@pytest.mark.parametrize("colour", [False, True])
def test_colour_only_where_it_is_welcome(colour):
    text = "\n".join(ps_lines([billing()], NOW, Screen(width=80, colour=colour)))
    assert (ACCENT in text) is colour
    assert ("\x1b" in text) is colour


def test_a_success_with_its_proof():
    line = headline(succeeded(), NOW)
    assert re.fullmatch(
        r"support-tone #3f2a91   training SUCCEEDED   "
        r"machine GONE \(proven \d\d:\d\d:\d\d, 2 reads\)",
        line,
    )


def test_a_failed_teardown_never_hides_a_success():
    assert "training SUCCEEDED   machine STILL BILLING" in headline(billing(), NOW)


@pytest.mark.parametrize("teardown", list(Teardown))
def test_every_teardown_has_words(teardown):
    one = job({"teardown": teardown, "suspect_until": NOW + 9}, teardown=teardown)
    assert machine_claim(one, NOW).startswith(("machine ", "no machine"))
    assert MACHINE_WORD[teardown]


def test_a_suspect_is_watched_until_the_latest_end_of_all_attempts():
    one = job({"suspect_until": NOW + 9}, teardown=Teardown.SUSPECT)
    newer = replace(one.attempts[0], number=2, suspect_until=None)
    later = replace(one, attempts=(*one.attempts, newer))
    assert f"watched until {moment(NOW + 9, NOW)}" in machine_claim(later, NOW)
    looking = job({"suspect_until": None}, teardown=Teardown.SUSPECT)
    assert "being looked for" in machine_claim(looking, NOW)


def test_status_says_why_and_what_next():
    text = "\n".join(status_lines(failed(), NOW, WIDE))
    assert "OUT_OF_MEMORY: The GPU ran out of memory." in text
    assert "micro_batch_size" in text
    assert "Tried to allocate" in text


def test_a_job_that_ended_early_names_its_checkpoint():
    one = failed()
    kept = replace(one, attempts=tuple(replace(a, kept_step=1200) for a in one.attempts))
    assert f"gpujob resume {one.id} goes on from step 1,200" in "\n".join(
        status_lines(kept, NOW, WIDE)
    )
    assert "gpujob resume" not in "\n".join(status_lines(one, NOW, WIDE))


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SUCCEEDED])
def test_every_reason_is_explained(reason):
    one = replace(failed(), reason=reason)
    text = "\n".join(status_lines(one, NOW, WIDE))
    assert f"{reason}: " in text
    assert "next " in text


def test_a_running_job_names_its_driver_and_its_end():
    text = "\n".join(status_lines(job(), NOW, WIDE))
    assert "driven by somehost:4242" in text
    assert "the machine ends itself" in text


def test_a_job_without_an_attempt_yet():
    one = replace(job(), attempts=(), state=State.INTENDED, teardown=Teardown.NONE)
    assert "no machine" in status_lines(one, NOW, WIDE)[0]
    assert ps_lines([one], NOW, WIDE)[1].split()[3] == "-"


def test_a_notional_price_is_called_so():
    text = "\n".join(status_lines(job({"price_is_notional": True}), NOW, WIDE))
    assert "$0.74/h notional" in text
    assert "$0.21 notional" in text


def test_evidence_cannot_paint_the_terminal():
    one = replace(failed(), evidence="boom\x1b[2J\x07")
    assert "\x1b" not in "\n".join(status_lines(one, NOW, WIDE))


def test_attempts_are_listed_when_there_are_several():
    first = replace(
        ATTEMPT, reason=Reason.BOOT_TIMEOUT, teardown=Teardown.GONE, trainer_started_at=None
    )
    one = replace(job(), attempts=(first, replace(ATTEMPT, number=2)))
    lines = status_lines(one, NOW, WIDE)
    assert any("BOOT_TIMEOUT" in line for line in lines)
    assert one.outcome is Outcome.RUNNING
