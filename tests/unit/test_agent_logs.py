"""The log is untrusted bytes of any length: bounded, never a crash, and what matters is found."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent import logs
from orchestrator.agent.logs import clean, lines_of, read_exceptions, read_log

LOGS = Path(__file__).parents[1] / "cases" / "axolotl_logs"


def test_an_absent_log_is_an_empty_one(tmp_path):
    facts = read_log(str(tmp_path / "none"))
    assert facts == logs.LogFacts("", False, None, None, False, [], "", "")


def test_the_partial_run_tells_its_step():
    facts = read_log(str(LOGS / "sigint_partial_rc0.log"))
    assert (facts.last_step, facts.max_steps, facts.saved) == (60, 300, "")


def test_bars_of_examples_are_no_steps():
    facts = read_log(str(LOGS / "wrong_columns.log"))
    assert (facts.last_step, facts.max_steps) == (None, None)


def test_chained_exceptions_are_one_chain():
    names = [
        (caught.name, caught.chained)
        for caught in read_log(str(LOGS / "hub_model_offline.log")).exceptions
    ]
    assert names == [
        ("huggingface_hub.errors.LocalEntryNotFoundError", False),
        ("OSError", True),
        ("subprocess.CalledProcessError", False),
    ]


def test_ranks_that_print_through_each_other():
    caught, _ = read_exceptions(
        b"[rank1]: Traceback (most recent call last):\n"
        b"[rank0]: Traceback (most recent call last):\n"
        b'[rank1]:   File "a.py", line 1, in one\n'
        b'[rank0]:   File "b.py", line 1, in nought\n'
        b"[rank1]: ValueError: one\n"
        b"[rank0]: ValueError: nought\n"
    )
    assert {(one.text, "a.py" in one.frames) for one in caught} == {
        ("ValueError: one", True),
        ("ValueError: nought", False),
    }


def test_a_traceback_glued_to_a_bar_is_seen():
    caught, _ = read_exceptions(
        b"\r 5%|#  | 1/20 [00:01<00:19]Traceback (most recent call last):\n"
        b"  File x\nKeyError: 'a'\r 5%|#  | 1/20 [00:01<00:19]"
    )
    assert [one.text for one in caught] == ["KeyError: 'a'"]


@given(st.binary(max_size=2000))
def test_no_bytes_make_a_crash(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("log") / "train.log"
    path.write_bytes(
        b"[axolotl.train] Starting trainer...\nTraceback (most recent call last):\n" + data
    )
    facts = read_log(str(path))
    assert facts.last_line.isprintable()


@given(st.text(max_size=300))
def test_clean_is_printable_and_idempotent(text):
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)


def test_lines_split_on_both_ends_and_are_cut():
    data = b"a\rb\n\nc\r\n" + b"x" * 10_000 + b"\nend"
    assert [line[:3] for line in lines_of(data)] == ["a", "b", "c", "xxx", "end"]
    assert max(map(len, lines_of(data))) == logs.LINE_CHARS


@pytest.mark.parametrize("filler", [b"x" * (1 << 20), b"\n" * (1 << 20), b"\x00\xff" * (1 << 19)])
def test_a_huge_log_is_read_in_bounded_memory(tmp_path, filler):
    path = tmp_path / "train.log"
    ending = (LOGS / "success_0.21.log").read_bytes()
    with path.open("wb") as file:
        for _ in range(200):
            file.write(filler)
        file.write(b"\n" + ending)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = read_log(str(path))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert facts.finished
    assert (facts.last_step, facts.max_steps) == (20, 20)
    assert grown_kib < 100 << 10


def test_a_nan_between_two_reads_is_seen(tmp_path):
    path = tmp_path / "train.log"
    record = b"{'loss': '0', 'grad_norm': 'nan', 'epoch': '1'}\n"
    for before in range((1 << 20) - 40, (1 << 20) + 4, 4):
        path.write_bytes(b"x" * before + record)
        assert read_log(str(path)).not_finite, before
    path.write_bytes(b"x" * 100 + record.replace(b"nan", b"0.3"))
    assert not read_log(str(path)).not_finite
    path.write_bytes(b"{'eval_loss': 'nan', 'epoch': '1'}\n")
    assert not read_log(str(path)).not_finite
