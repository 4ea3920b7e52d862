"""Keys, types, ranges and contradictions of an Axolotl configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.axolotl import Layout, axolotl_config
from jobs.axolotl_fold import KEYS
from jobs.axolotl_keys import check_keys, choices, nearest, nested_types, top_types
from jobs.axolotl_names import CHAT_TEMPLATES, OPTIMIZER_WORDS, OPTIMIZERS, OWNED, PLUGINS
from jobs.axolotl_removed import ATTENTION_SWITCHES, IDLE, REMOVED, RENAMED, modernise
from jobs.axolotl_rules import RANGES, check_config, check_rules
from jobs.axolotl_table import NESTED, TOP
from jobs.spec import JobSpec, Training

BAD = yaml.safe_load(
    (Path(__file__).parents[1] / "cases/bad_jobs/axolotl.yml").read_text(encoding="utf-8")
)
GOOD = {
    **axolotl_config(
        JobSpec.model_validate(
            {
                "name": "a", "model": "o/m", "method": "lora",
                "data": {"train": "/rows.jsonl", "format": "alpaca"},
                "checkpoints": {"every_steps": 8}, "training": {"max_steps": 8},
            }
        ),
        layout=Layout("/i"),
        stack="cpu",
    )
}  # fmt: skip


def words(config: dict[str, Any]) -> str:
    current, _, faults = modernise({k: v for k, v in config.items() if v is not None})
    return "\n".join(f"{f.path} {f.message} {f.remedy}" for f in faults + check_config(current))


def test_the_good_one_is_good() -> None:
    assert words(GOOD) == ""


@pytest.mark.parametrize("bad", BAD, ids=[json.dumps(bad["set"]) for bad in BAD])
def test_each_wrong_one_is_found(bad: dict[str, Any]) -> None:
    assert bad["ours"] in words({**GOOD, **bad["set"]})


@pytest.mark.parametrize(
    ("key", "value", "settled"),
    [
        ("lora_r", "8", 8), ("lora_r", 8.0, 8), ("learning_rate", "1e-4", 1e-4),
        ("learning_rate", "2", 2), ("sample_packing", "yes", True), ("sample_packing", "NO", False),
        ("bf16", "auto", "auto"), ("bf16", "true", True), ("wandb_name", "no", "no"),
        ("lora_target_modules", "q_proj", "q_proj"), ("lora_target_modules", ["a"], ["a"]),
        ("deepspeed", {"a": 1}, {"a": 1}), ("seed", None, None), ("num_epochs", 3, 3),
        ("peft_init_lora_weights", "pissa", "pissa"), ("peft_init_lora_weights", "false", False),
        ("fsdp_config", {"fsdp_offload_params": "true"}, {"offload_params": True}),
        ("max_memory", {"0": "20GiB"}, {"0": "20GiB"}),
        ("peft_trainable_token_indices", ["1", 2], [1, 2]),
        ("model_config", {"any": {"thing": [1]}}, {"any": {"thing": [1]}}),
    ],
)  # fmt: skip
def test_values_are_brought_to_their_type(key: str, value: Any, settled: Any) -> None:
    config, faults = check_keys({key: value})
    assert faults == []
    assert config[key] == settled
    assert type(config[key]) is type(settled)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lora_r", True, "true is not a whole number"),
        ("lora_r", 1.5, "1.5 is not a whole number"),
        ("lora_r", "1:30", "1:30 is not a whole number"),
        ("lora_r", [1], "a list is not a whole number"),
        ("num_epochs", float("nan"), "nan is not a number"),
        ("num_epochs", float("inf"), "inf is not a number"),
        ("num_epochs", "010", "010 is not a number"),
        ("sample_packing", 1, "1 is not true or false"),
        ("wandb_name", 7, "7 is not text"),
        ("trl", 3, "3 is not a mapping"),
        ("lora_modules_to_save", "x", "x is not a list"),
        ("merge_method", "x", "x is not legacy or memory_efficient"),
    ],
)
def test_values_of_another_type(key: str, value: Any, message: str) -> None:
    _, (fault,) = check_keys({key: value})
    assert fault.path == (key,)
    assert fault.message == message


def test_faults_deep_inside_name_their_path() -> None:
    _, faults = check_keys(
        {"datasets": [{"path": "x"}, {"pth": "y", "shards": "z"}], "trl": {"vllm_mode": "x"}}
    )
    assert [(f.path, f.remedy) for f in faults] == [
        (("datasets", 1, "pth"), "Did you mean path?"),
        (("datasets", 1, "shards"), ""),
        (("trl", "vllm_mode"), ""),
    ]


def test_a_member_of_a_list_is_never_null() -> None:
    _, faults = check_keys({"lora_modules_to_save": ["a", None], "datasets": [None]})
    assert [f.path for f in faults] == [("lora_modules_to_save", 1), ("datasets", 0)]
    assert check_keys({"model_config": {"a": None, "b": [None]}})[1] == []


def test_keys_of_a_plugin_need_it() -> None:
    assert check_keys({"liger_rope": True}, ["liger"])[1] == []
    assert check_keys({"liger_rope": True}, [PLUGINS["liger"][0]])[1] == []
    (fault,) = check_keys({"liger_rope": True}, ["spectrum"])[1]
    assert "plugin liger" in fault.message


def test_huge_numbers_break_nothing() -> None:
    assert "out of range" in words({**GOOD, "lora_r": 10**400})
    assert "out of range" in words({**GOOD, "sequence_len": 10**30})


# ------------------------------------------------------------------ the tables themselves
def test_the_table_reads_whole() -> None:
    assert len(top_types()) > 420
    assert len(TOP) < 60
    kinds = {*TOP, *(kind for groups in NESTED.values() for kind in groups)}
    for kind in kinds:
        for choice in choices(kind):
            bare = choice.removeprefix("list:").removeprefix("map:").strip("()")
            assert bare.startswith(("'", "@", "list:", "map")) or set(bare.split("|")) & {
                "bool", "int", "num", "str", "any", "map",
            } or "@" in bare, kind  # fmt: skip
    for groups in NESTED.values():
        assert all(groups.values())
    assert nested_types("SFTDataset")["path"] == "str"


def test_no_key_is_both_known_and_removed() -> None:
    """What the schema still names, but refuses, is in REMOVED; the rest of REMOVED is unknown."""
    refused_by_schema = {
        "max_packed_sequence_len", "rope_scaling", "s2_attention", "flash_attn_rms_norm",
        "dpo_use_logits_to_keep", "dpo_generate_during_eval", "dpo_norm_loss", "rpo_alpha",
    }  # fmt: skip
    assert set(REMOVED) & set(top_types()) == refused_by_schema
    for new in RENAMED.values():
        assert new in top_types()
    assert {*RENAMED, *ATTENTION_SWITCHES, *IDLE, "gc_steps"} <= set(top_types())


def test_owned_keys_are_axolotls() -> None:
    assert set(OWNED) <= set(top_types())
    assert set(OPTIMIZER_WORDS.values()) <= OPTIMIZERS
    assert "chatml" in CHAT_TEMPLATES


def test_ranges_are_those_of_the_job_file() -> None:
    """A value that passes the rules must pass JobSpec, into which it is folded."""
    for name, (key, _) in {
        **KEYS,
        "epochs": ("num_epochs", 0),
        "max_steps": ("max_steps", 0),
    }.items():
        if key not in RANGES or name in ("packing", "gradient_checkpointing"):
            continue
        least, most, inclusive = RANGES[key]
        integer = isinstance(Training().model_dump()[name], int) or name == "max_steps"
        step = 1 if integer else 1e-9
        for value in (least if inclusive else least + step, most):
            number = int(value) if integer else value
            Training.model_validate({name: number})


def test_modernise_changes_nothing_that_is_current() -> None:
    assert modernise(GOOD) == (GOOD, [], [])
    assert check_rules(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"flash_attention": True}, {"attn_implementation": "flash_attention_2"}),
        ({"flash_attention": True, "sage_attention": True}, {"attn_implementation": "sage"}),
        ({"flash_attention": False}, {}),
        ({"dataset_processes": 4}, {"dataset_num_proc": 4}),
        ({"gradient_checkpointing": "offload"},
         {"gradient_checkpointing": True, "activation_offloading": True}),
        ({"gradient_checkpointing": "offload_disk"},
         {"gradient_checkpointing": True, "activation_offloading": "disk"}),
        ({"gc_steps": 3}, {"gc_collect_steps": 3, "torch_empty_cache_steps": 3}),
        ({"gc_steps": -1}, {"gc_collect_steps": -1}),
        ({"eval_table_size": 5}, {}),
        ({"max_packed_sequence_len": None}, {}),
        ({"s2_attention": False}, {}),
        ({"fsdp_config": {"fsdp_offload_params": True, "use_orig_params": True, "version": 2}},
         {"fsdp_config": {"offload_params": True, "fsdp_version": 2}}),
    ],
)  # fmt: skip
def test_old_words_in_new_ones(old: dict[str, Any], new: dict[str, Any]) -> None:
    current, notes, faults = modernise(old)
    assert current == new
    assert faults == []
    assert bool(notes) == any(value not in (None, False) for value in old.values())


def test_old_and_new_name_together() -> None:
    (fault,) = modernise({"dataset_processes": 4, "dataset_num_proc": 5})[2]
    assert "both are given" in fault.message
    assert modernise({"dataset_processes": 4, "dataset_num_proc": 4})[2] == []


@pytest.mark.parametrize(
    ("slip", "right"),
    [("lora_rr", "lora_r"), ("Learning-Rate", "learning_rate"), ("learing_rate", "learning_rate"),
     ("sequence_length", "sequence_len"), ("qqqq", None)],
)  # fmt: skip
def test_nearest(slip: str, right: str | None) -> None:
    assert nearest(slip, top_types()) == right
