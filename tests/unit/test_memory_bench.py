"""The point reader on other labs' words, and on files that are not what they should be."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benches.points import optimizer_of, points, strategy_of, targets
from benches.statistics_of import errors_of, quantile

ROOT = Path(__file__).parents[2]
POINTS = ROOT / "tests" / "cases" / "points" / "memory_points.csv"


def written(path, **changes):
    with POINTS.open(newline="") as file:
        row = next(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow({**row, **changes})
    return path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("qkvo", "q k v o"),
        ("all", "q k v o gate up down"),
        ("all+head", "q k v o gate up down head"),
        ("qvo+mlp", "q v o gate up down"),
        ("gate_proj, up_proj", "gate up"),
        ("", "q v"),
    ],
)
def test_targets_are_read_from_their_shorthand(text, found):
    assert targets(text) == frozenset(found.split())


def test_words_of_strategy_and_optimizer():
    assert strategy_of("FSDP2", 4) == "fsdp"
    assert strategy_of("deepspeed zero-3", 2) == "zero3"
    assert strategy_of("ddp", 2) == strategy_of("", 8) == "ddp"
    assert strategy_of("fsdp", 1) == "none"
    assert optimizer_of("adamw_torch_fused+opt_in_bwd") == "adamw_torch_fused"
    assert optimizer_of("PagedAdamW8bit") == "paged_adamw_8bit"
    assert optimizer_of("") == "adamw_torch"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "Nonesuch-9B"}, "unknown model"),
        ({"peak_gib": "many"}, "many"),
        ({"method": "lora_emb"}, "method"),
        ({"seq_len": "", "tokens_per_gpu_step": ""}, ""),
    ],
)
def test_a_row_that_cannot_be_read_is_named_not_fatal(tmp_path, changes, words):
    found, skipped = points(written(tmp_path / "x.csv", **changes))
    assert found == []
    assert len(skipped) == 1
    assert words in skipped[0]


def test_rows_not_usable_are_left_out(tmp_path):
    assert points(written(tmp_path / "x.csv", usable="0")) == ([], [])


def test_a_missing_file_ends_with_2_and_its_name():
    bench = str(ROOT / "benches" / "memory_accuracy.py")
    done = subprocess.run([sys.executable, bench, "none.csv"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "none.csv: no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_six_figures():
    found = errors_of("x", [0.8, 1.0, 1.1, 1.3])
    assert found.n == 4
    assert found.worst_pct == pytest.approx(30)
    assert found.under_10_pct == 25
    assert found.median_pct == pytest.approx(15)
    assert found.bias_pct == pytest.approx(5)
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
