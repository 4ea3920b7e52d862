"""The model against everything that was measured: the bars, as a regression test."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benches.memory_accuracy import GROUPS, fails, judge, judge_oom, ours
from benches.points import points
from jobs.architectures import find
from jobs.memory import WORKSPACE_BYTES, footprint
from jobs.memory_allocator import GIB
from jobs.workload import Workload

HERE = Path(__file__).parents[1] / "cases" / "points"
BENCH = Path(__file__).parents[2] / "benches" / "memory_accuracy.py"
TARGETS = {"all": "q k v o gate up down", "qv": "q v", "qkvo": "q k v o", "mlp": "gate up down"}


def oracle_rows():
    with (HERE / "oracle_points.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def family_rows():
    with (HERE / "oracle_families.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", oracle_rows(), ids=lambda r: "-".join(list(r.values())[:9]))
def test_the_closed_form_meets_every_oracle_point(row):
    work = Workload(
        find(row["model"]),
        method=row["method"],
        lora_rank=max(1, int(row["rank"])),
        lora_targets=frozenset(TARGETS.get(row["targets"], "q").split()),
        sequence_len=int(row["seq"]),
        micro_batch_size=int(row["micro_batch"]),
        checkpointing=row["grad_ckpt"] == "True",
        attention="eager" if row["attn"] == "eager" else "flash",
        loss_kernel="hf" if row["hf_outputs_kept"] == "True" else "hf_dropped",
        packing=False,
        stack="hf",
    )
    found = footprint(work).allocated_gib - WORKSPACE_BYTES / GIB
    assert found == pytest.approx(float(row["oracle_gib"]), rel=0.002)


@pytest.mark.parametrize("row", family_rows(), ids=lambda r: "-".join(list(r.values())[:8]))
def test_the_closed_form_meets_the_oracle_on_other_families(row):
    from dataclasses import replace

    arch = replace(find(row["model"]), layers=int(row["layers"]), vocab=int(row["vocab"]))
    work = Workload(
        arch,
        method=row["method"],
        sequence_len=int(row["seq"]),
        micro_batch_size=int(row["micro_batch"]),
        checkpointing=row["grad_ckpt"] == "True",
        stack="hf",
    )
    found = footprint(work).allocated_gib - WORKSPACE_BYTES / GIB
    assert found == pytest.approx(float(row["oracle_gib"]), rel=0.015)


def test_the_bars_hold_on_the_points_at_hand():
    rows, skipped = points(HERE / "memory_points.csv")
    assert not skipped
    found = {errors.name: errors for errors in judge(rows, ours, GROUPS)}
    assert found["all"].n == 418
    assert found["all"].median_pct <= 1.5
    assert found["all"].p90_pct <= 10
    assert found["all"].under_10_pct <= 5
    assert found["hf_allocated"].median_pct <= 0.3
    assert found["hf_allocated"].p90_pct <= 2
    assert found["device"].median_pct <= 4


def test_out_of_memory_is_told_from_fits():
    found = judge_oom(HERE / "oom_runs.csv", fails)
    assert found["rows"] == 232
    assert found["right_pct"] >= 99
    assert found["false_alarms"] == 0


def test_the_bench_prints_the_agreed_json():
    command = [sys.executable, str(BENCH), str(HERE / "memory_points.csv"), "--json"]
    command += ["--oom", str(HERE / "oom_runs.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [group["name"] for group in found["groups"]] == list(GROUPS)
    assert set(found["groups"][0]) == {
        "name",
        "n",
        "median_pct",
        "p90_pct",
        "worst_pct",
        "bias_pct",
        "under_10_pct",
    }
    assert set(found["oom"]) == {"rows", "right_pct", "missed", "false_alarms"}
