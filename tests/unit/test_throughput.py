import math
from dataclasses import replace
from pathlib import Path

import pytest

from benches.speed_points import card, cards, points
from benches.throughput_accuracy import GROUPS, class_efficiency, judge
from jobs.architectures import find
from jobs.throughput import (
    FixedParts,
    GpuFacts,
    flops_per_token,
    forecast,
    remaining,
    speed,
)
from jobs.workload import Workload, WorkloadError

A100 = GpuFacts("A100-80GB", 312, 2039, 600)
H100 = GpuFacts("H100-80GB", 989, 3350, 900)
JOB = Workload(find("Llama-3-8B"), method="lora", sequence_len=4096, micro_batch_size=4)
POINTS = Path(__file__).parents[1] / "cases" / "points" / "throughput_points.csv"


def test_the_bars_hold_on_the_points_at_hand():
    rows, skipped = points(POINTS)
    assert not skipped
    found = {errors.name: (errors, inside) for errors, inside in judge(rows, GROUPS)}
    errors, inside = found["all"]
    assert errors.n == 202
    assert errors.median_pct <= 4.5
    assert errors.p90_pct <= 15
    assert 75 <= inside <= 90
    assert class_efficiency(rows).median_pct > 4 * errors.median_pct


def test_lora_with_checkpointing_costs_three_quarters_of_full():
    short = replace(JOB, sequence_len=1)
    ratio = flops_per_token(short) / flops_per_token(replace(short, method="full"))
    assert ratio == pytest.approx(0.75, abs=0.02)


def test_the_parts_make_the_step():
    found = speed(JOB, A100)
    parts = dict(found.parts_s)
    assert found.tokens_per_s == pytest.approx(JOB.tokens / found.step_s)
    assert max(parts.values()) == parts["matrix products"]
    assert parts["communication"] == parts["optimizer"] == parts["dequantise"] == 0
    assert found.low < found.tokens_per_s < found.high


@pytest.mark.parametrize(
    ("change", "faster"),
    [
        ({"fused_kernels": True}, True),
        ({"checkpointing": False}, True),
        ({"method": "full"}, False),
        ({"sequence_len": 8192, "micro_batch_size": 2}, False),
        ({"gpus": 4, "strategy": "fsdp"}, False),
        ({"kbit_fp32": True}, False),
    ],
)
def test_what_makes_a_gpu_faster(change, faster):
    assert (
        speed(replace(JOB, **change), A100).tokens_per_s > speed(JOB, A100).tokens_per_s
    ) is faster


def test_short_steps_are_bound_by_launches():
    tiny = replace(JOB, sequence_len=64, micro_batch_size=1)
    parts = dict(speed(tiny, H100).parts_s)
    assert parts["launch"] > parts["matrix products"]
    twice = replace(tiny, micro_batch_size=2)
    assert speed(twice, H100).tokens_per_s == pytest.approx(
        2 * speed(tiny, H100).tokens_per_s, rel=0.1
    )


def test_pcie_holds_fsdp_back():
    pair = replace(JOB, gpus=2, strategy="fsdp", micro_batch_size=1, method="full")
    slow = speed(pair, replace(A100, nvlink_gbs=0))
    assert slow.tokens_per_s < 0.6 * speed(pair, A100).tokens_per_s


def test_a_card_without_points_has_the_wider_band():
    known = speed(JOB, A100)
    unknown = speed(JOB, replace(A100, name="B200"))
    assert unknown.confidence == "no points"
    assert unknown.high / unknown.low > known.high / known.low
    assert speed(replace(JOB, sequence_len=256), A100).confidence == "few points"


def test_a_forecast_adds_the_fixed_parts_and_divides_among_gpus():
    fixed = FixedParts(boot_s=100, environment_s=200, download_s=300, push_s=0)
    one = forecast(JOB, A100, 10_000_000, fixed)
    assert one.hours == pytest.approx(one.training_h + 600 / 3600)
    assert one.low_h < one.hours < one.high_h
    two = forecast(replace(JOB, gpus=2, strategy="ddp"), A100, 10_000_000, fixed)
    assert two.training_h < 0.6 * one.training_h
    with pytest.raises(ValueError, match="below 1"):
        forecast(JOB, A100, 0)


def test_the_jobs_own_steps_take_over_from_the_plan():
    plan = forecast(JOB, A100, 10_000_000)
    planned = remaining(plan, 0, [], JOB.tokens)
    assert planned.seconds == pytest.approx(10_000_000 / plan.tokens_per_s)
    true_step = 1.5 * JOB.tokens / plan.tokens_per_s
    few = remaining(plan, 0, [9.0, *[true_step] * 2], JOB.tokens)
    many = remaining(plan, 0, [9.0, *[true_step] * 20], JOB.tokens)
    truth = 10_000_000 / JOB.tokens * true_step
    assert many.seconds == pytest.approx(truth, rel=0.02)
    assert abs(many.seconds - truth) < abs(few.seconds - truth) < abs(planned.seconds - truth)
    assert many.high_s - many.low_s < few.high_s - few.low_s < planned.high_s - planned.low_s
    half = remaining(plan, 5_000_000, [9.0, *[true_step] * 20], JOB.tokens)
    assert half.seconds == pytest.approx(many.seconds / 2)
    assert remaining(plan, 20_000_000, [], JOB.tokens).seconds == 0


def test_bad_settings_are_refused_here_too():
    with pytest.raises(WorkloadError, match="lora_rank"):
        speed(replace(JOB, lora_rank=0), A100)


def test_cards_are_found_by_their_many_names():
    known = cards()
    assert card("NVIDIA A100-80GB", known).bf16_tflops == 312
    assert card("RTX 4090", known).name == "RTX4090"
    assert card("H100", known).name.startswith("H100")
    with pytest.raises(ValueError, match="in no table"):
        card("Quantum 9000", known)
    assert math.isfinite(speed(JOB, card("B200", known)).tokens_per_s)
