"""From a job file to a workload and its tokens; what several GPUs change in Axolotl's file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.architectures import ArchitectureError, find
from jobs.sizing import Lengths, architecture_of, on_gpus, shared_out, sizing_of, tokens_of
from jobs.spec import JobSpec

LLAMA = find("Llama-3.1-8B")


def spec(**more: Any) -> JobSpec:
    body = {"name": "x", "model": "meta-llama/Llama-3.1-8B", "method": "qlora"}
    return JobSpec.model_validate({**body, **more})


def test_what_the_training_section_says_is_sized() -> None:
    training = {"lora_r": 8, "lora_targets": ["q_proj", "v_proj"], "micro_batch_size": 3}
    work = sizing_of(spec(training=training), LLAMA).work
    assert (work.lora_rank, work.micro_batch_size) == (8, 3)
    assert work.lora_targets == {"q", "v"}
    assert (work.attention, work.loss_kernel, work.optimizer) == ("sdpa", "hf", "adamw_torch_fused")


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"liger_fused_linear_cross_entropy": True}, "loss_kernel", "liger"),
        ({"cut_cross_entropy": True}, "loss_kernel", "cce"),
        ({"attn_implementation": "flash_attention_2"}, "attention", "flash"),
        ({"attn_implementation": "eager"}, "attention", "eager"),
        ({"activation_offloading": True}, "activation_offload", True),
    ],
)
def test_axolotl_keys_count(keys: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(sizing_of(spec(axolotl=keys), LLAMA).work, field) == value


def test_what_is_not_known_is_said() -> None:
    training = {"optimizer": "came_pytorch", "lora_targets": ["odd_name"]}
    sizing = sizing_of(spec(training=training), LLAMA)
    assert sizing.work.optimizer == "adamw_torch"
    assert len(sizing.supposed) == 2
    with pytest.raises(ArchitectureError, match="nearest known"):
        architecture_of(spec(model="acme/Llama-9B"))


def test_packed_tokens_are_whole_sequences() -> None:
    work = sizing_of(spec(), LLAMA).work
    found = Lengths((100,) * 1000, 10_000, "counted")
    tokens = tokens_of(spec(training={"epochs": 2}), work, found, 0.0)
    assert tokens.data == 10_000 * 100 * 2
    assert 1.0 < tokens.trained / tokens.data < 1.05  # 97 % of a packed sequence is filled
    assert tokens.evaluated == 0


def test_unpacked_tokens_are_padded_to_the_longest_of_the_batch() -> None:
    lengths = tuple(range(1, 1001))
    training = {"packing": False, "epochs": 1}
    one = replace(sizing_of(spec(training=training), LLAMA).work, micro_batch_size=1)
    four = replace(one, micro_batch_size=4)
    found = Lengths(lengths, 1000, "counted")
    alone = tokens_of(spec(training=training), one, found, 0.0)
    padded = tokens_of(spec(training=training), four, found, 0.0)
    assert alone.trained == alone.data == pytest.approx(500_500)
    assert padded.trained / alone.trained == pytest.approx(1.6, rel=0.01)  # E[max of 4] = 0.8 n


def test_held_back_records_are_evaluated_and_not_trained() -> None:
    work = sizing_of(spec(), LLAMA).work
    found = Lengths((100,) * 100, 100_000, "counted")
    tokens = tokens_of(spec(training={"epochs": 1}), work, found, 0.1)
    assert tokens.data == pytest.approx(100_000 * 0.9 * 100)
    assert tokens.evaluated == pytest.approx(10 * 10_000 * 100, rel=0.15)


def test_max_steps_count_steps() -> None:
    job = spec(training={"max_steps": 7})
    tokens = tokens_of(job, sizing_of(job, LLAMA).work, Lengths((50,), 50, "counted"), 0.0)
    assert tokens.trained == 7 * 8 * 2048


def test_several_gpus_keep_the_batch() -> None:
    work = sizing_of(spec(), LLAMA).work
    two = on_gpus(work, 2, "ddp", keep_batch=True)
    assert two is not None
    assert two.gradient_accumulation_steps * 2 == work.gradient_accumulation_steps
    assert on_gpus(work, 3, "ddp", keep_batch=True) is None
    named = on_gpus(work, 3, "ddp", keep_batch=False)
    assert named is not None
    assert named.gradient_accumulation_steps == work.gradient_accumulation_steps


def test_fsdp_keys() -> None:
    job = spec(method="full")
    work = on_gpus(sizing_of(job, LLAMA).work, 4, "fsdp", keep_batch=True)
    assert work is not None
    assert work.optimizer == "adamw_torch_fused"  # bitsandbytes' 8-bit states are never sharded
    config = {
        "gradient_accumulation_steps": 4,
        "gradient_checkpointing": True,
        "optimizer": "paged_adamw_8bit",
    }
    shared = shared_out(config, work)
    assert shared["fsdp_version"] == 2
    assert shared["fsdp_config"]["activation_checkpointing"] is True
    assert "gradient_checkpointing" not in shared
    assert (shared["gradient_accumulation_steps"], shared["optimizer"]) == (1, "adamw_torch_fused")
    own = {"deepspeed": "zero3.json", "gradient_accumulation_steps": 4}
    assert shared_out(own, work) == own
