"""Each failure that a user can meet gets its reason, its evidence and its words."""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path

import pytest

from orchestrator.agent.bundle import agent_source
from orchestrator.agent.failures import RULES, classify
from orchestrator.agent.logs import read_log
from orchestrator.failure_words import FAILURE_WORDS
from orchestrator.states import Reason

CASES = Path(__file__).parents[1] / "cases"
REAL = {
    "bad_config": ("CONFIG_REFUSED", "micro_batch_size Input should be a valid integer"),
    "broken_checkpoint": ("CHECKPOINT_BROKEN", "header too large"),
    "hub_model_offline": ("HUB_UNREACHABLE", "couldn't connect"),
    "missing_data": ("DATA_MISSING", "nope.jsonl"),
    "missing_model": ("MODEL_MISSING", "no-such-model"),
    "sharegpt_removed": ("DATA_FORMAT", "sharegpt"),
    "unknown_dataset_type": ("DATA_FORMAT", "alpacaa"),
    "wrong_columns": ("DATA_FORMAT", "KeyError: 'instruction'"),
}
with (CASES / "synthesised_logs" / "index.csv").open() as index:
    SYNTHESISED = list(csv.DictReader(index))


@pytest.mark.parametrize("name", REAL)
def test_real_log(name):
    reason, words = REAL[name]
    found = classify(read_log(str(CASES / "axolotl_logs" / f"{name}.log")), 1, False)
    assert found.reason == reason
    assert words in " ".join(found.evidence.split())


@pytest.mark.parametrize("row", SYNTHESISED, ids=lambda row: row["file"])
def test_synthesised_log(row):
    path = CASES / "synthesised_logs" / row["file"]
    found = classify(read_log(str(path)), int(row["rc"]), False)
    assert found.reason == row["reason"], found.evidence
    assert found.evidence


def test_every_row_of_the_contract_is_recognised_or_listed_as_not():
    failures = (CASES.parents[1] / "docs" / "failures.md").read_text()
    recognised = {row["row"] for row in SYNTHESISED} | {"13"}  # 13 is told by numbers, not words
    for row in range(1, 23):
        listed = next(line for line in failures.splitlines() if line.startswith(f"| {row} |"))
        assert str(row) in recognised or "not classified" in listed, row


def test_every_reason_of_the_agent_is_a_reason_and_has_words():
    ours = {rule.reason for rule in RULES} | {
        "DIVERGED", "INCOMPLETE", "NOTHING_LEARNED", "TRAINER_KILLED", "TRAINER_FAILED",
    }  # fmt: skip
    assert ours == {reason.value for reason in FAILURE_WORDS}
    for cause, next_step in FAILURE_WORDS.values():
        assert cause
        assert not cause.endswith(".")
        assert len(next_step) > 20
    assert Reason.SUCCEEDED not in FAILURE_WORDS


def test_every_reason_that_the_agent_can_write_is_one():
    """Reasons are plain strings on the instance; look at every capital word in what is shipped."""
    tree = ast.parse(agent_source())
    words = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    capital = {word for word in words if re.fullmatch(r"[A-Z][A-Z0-9]+(_[A-Z0-9]+)*", word)}
    others = {
        "CLOCK_BOOTTIME",
        "GPUJOB_FOLDER",
        "PYTHONPATH",
        "O_NOFOLLOW",
        "BOOL",
        "SC_CLK_TCK",
        "PUT",
    }
    capital = {word for word in capital - others if not re.fullmatch(r"B?[FIU]\d.*", word)}
    assert len(capital) > 25
    assert capital <= {reason.value for reason in Reason}


def test_the_kernels_counter_tells_want_of_memory_from_a_kill(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("working\n")
    assert classify(read_log(str(log)), -9, True).reason == "HOST_OUT_OF_MEMORY"
    assert classify(read_log(str(log)), 137, True).reason == "HOST_OUT_OF_MEMORY"
    assert classify(read_log(str(log)), -9, False).reason == "TRAINER_KILLED"


def test_an_exception_that_was_handled_long_ago_does_not_decide(tmp_path):
    log = tmp_path / "train.log"
    handled = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
    log.write_text(
        handled
        + "torch.OutOfMemoryError: CUDA out of memory.\n[2026-11-30 12:00:00,000] retrying\n"
        + handled
        + "ValueError: eval dataset split is too small for sample_packing.\n"
    )
    assert classify(read_log(str(log)), 1, False).reason == "EVAL_SPLIT_TOO_SMALL"


def test_evidence_is_one_bounded_printable_line_without_keys(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(
        b"Traceback (most recent call last):\n  File x\n"
        b"OSError: \x1b[31mNo space left on device\x00 hf_abcdefghijklmnopqrstuv " + b"y" * 90_000
    )
    evidence = classify(read_log(str(log)), 1, False).evidence
    assert "No space left on device" in evidence
    assert "hf_abc" not in evidence
    assert evidence.isprintable()
    assert len(evidence) <= 4096
