"""What must hold of every footprint and forecast, whatever the settings."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from jobs.architectures import Architecture, bundled
from jobs.memory import PHASES, footprint
from jobs.memory_levers import levers
from jobs.throughput import GpuFacts, speed
from jobs.workload import QUANT_BYTES, Workload

ARCHITECTURES = sorted({a.name: a for a in bundled().values()}.items())
TARGETS = ("q", "k", "v", "o", "gate", "up", "down")


@st.composite
def workloads(draw: st.DrawFn, /, **fixed):
    arch = replace(draw(st.sampled_from([a for _, a in ARCHITECTURES])), max_positions=None)
    method = fixed.get("method") or draw(st.sampled_from(("full", "lora", "qlora")))
    strategy = fixed.get("strategy") or draw(
        st.sampled_from(("none", "ddp", "zero1", "zero2", "zero3", "fsdp"))
    )
    gpus = 1 if strategy == "none" else draw(st.integers(2, 8))
    quant = draw(st.sampled_from(sorted(QUANT_BYTES))) if method == "qlora" else None
    settings = {
        "architecture": arch,
        "method": method,
        "quant": quant,
        "lora_rank": draw(st.integers(1, 256)),
        "lora_targets": draw(st.frozensets(st.sampled_from(TARGETS), min_size=1)),
        "sequence_len": draw(st.integers(1, 8192)),
        "micro_batch_size": draw(st.integers(1, 8)),
        "gradient_accumulation_steps": draw(st.integers(1, 4)),
        "optimizer": draw(
            st.sampled_from(("adamw_torch", "adamw_torch_fused", "adamw_8bit", "adafactor", "sgd"))
        ),
        "checkpointing": draw(st.booleans()),
        "attention": draw(st.sampled_from(("flash", "sdpa", "eager"))),
        "loss_kernel": draw(st.sampled_from(("hf", "liger", "cce"))),
        "fused_kernels": draw(st.booleans()),
        "fp32_weights": method != "qlora" and draw(st.booleans()),
        "packing": False,
        "gpus": gpus,
        "strategy": strategy,
        "stack": draw(st.sampled_from(("axolotl", "hf", "torchtune"))),
    }
    return Workload(**{**settings, **fixed})


GROWTH = {
    "length": lambda w, k: replace(w, sequence_len=w.sequence_len + k),
    "batch": lambda w, k: replace(w, micro_batch_size=w.micro_batch_size + k),
    "rank": lambda w, k: replace(w, lora_rank=w.lora_rank + k),
    "vocabulary": lambda w, k: replace(
        w, architecture=replace(w.architecture, vocab=w.architecture.vocab + 64 * k)
    ),
    "layers": lambda w, k: replace(
        w, architecture=replace(w.architecture, layers=w.architecture.layers + k)
    ),
    "width": lambda w, k: replace(w, architecture=wider(w.architecture, k)),
}


def wider(arch: Architecture, k: int) -> Architecture:
    return replace(
        arch,
        hidden=arch.hidden + 64 * k,
        intermediate=arch.intermediate + 256 * k,
        moe_intermediate=arch.moe_intermediate + 64 * k if arch.experts else 0,
    )


@given(workloads(), st.sampled_from(sorted(GROWTH)), st.integers(1, 16))
def test_more_of_anything_never_needs_less(work, kind, k):
    more = GROWTH[kind](work, k)
    before, after = footprint(work), footprint(more)
    for name in ("allocated_gib", "reserved_gib", "device_gib", "floor_gib", "high_gib"):
        assert getattr(after, name) >= getattr(before, name) - 1e-9, (kind, name)


@given(workloads(strategy="none", checkpointing=True, fp32_weights=False))
def test_qlora_needs_at_most_lora_and_lora_at_most_full(work):
    # Past about a million hidden units a step, PEFT's fp32 copies outgrow a small model's states.
    assume(work.tokens * work.architecture.hidden <= 2e7)
    assume(work.attention != "eager")
    assume(work.architecture.params > 1.5e9)
    assume(work.lora_rank <= 64)
    same = {"optimizer": "adamw_torch", "quant": None}
    full = footprint(replace(work, method="full", **same))
    lora = footprint(replace(work, method="lora", **same))
    qlora = footprint(replace(work, method="qlora", **same))
    assert qlora.allocated_gib <= lora.allocated_gib + 1e-9
    assert qlora.device_gib <= lora.device_gib + 1e-9
    assert lora.allocated_gib <= full.allocated_gib + 1e-9


@given(workloads())
def test_parts_add_up_and_figures_are_in_order(work):
    found = footprint(work)
    totals = {phase: found.phase_gib(phase) for phase in PHASES}
    assert abs(found.allocated_gib - max(totals.values())) < 1e-9
    assert all(part.gib > 0 for phase in found.phases.values() for part in phase)
    assert 0 < found.allocated_gib <= found.reserved_gib <= found.device_gib
    assert found.floor_gib <= found.device_gib + 1e-9
    assert found.floor_gib <= found.low_gib <= found.device_gib + 1e-9 <= found.high_gib + 1e-9


@given(workloads(), st.integers(2, 8))
def test_more_gpus_never_need_more_weights_on_each(work, factor):
    assume(work.strategy in {"zero3", "fsdp"})
    wider_job = replace(work, gpus=work.gpus * factor)
    assert footprint(wider_job).allocated_gib <= footprint(work).allocated_gib + 1e-9


@given(workloads())
def test_every_lever_frees_what_it_says(work):
    before = footprint(work).device_gib
    for lever in levers(work):
        assert lever.saves_gib > 0
        assert abs(before - footprint(lever.apply(work)).device_gib - lever.saves_gib) < 1e-6


@given(
    workloads(),
    st.floats(20, 3000),
    st.floats(200, 9000),
    st.sampled_from((0.0, 600.0, 1800.0)),
    st.floats(1.01, 3),
)
def test_a_better_card_is_never_slower(work, tflops, bandwidth, nvlink, factor):
    base = GpuFacts("x", tflops, bandwidth, nvlink)
    now = speed(work, base)
    assert 0 < now.low < now.tokens_per_s < now.high
    for better in (
        replace(base, bf16_tflops=tflops * factor),
        replace(base, bandwidth_gbs=bandwidth * factor),
    ):
        assert speed(work, better).tokens_per_s >= now.tokens_per_s - 1e-9


@given(workloads(), st.integers(1, 8))
def test_a_longer_step_takes_longer(work, k):
    card = GpuFacts("x", 312, 2039, 600)
    more = replace(work, micro_batch_size=work.micro_batch_size + k)
    assert speed(more, card).step_s > speed(work, card).step_s
