"""The derived configuration: who wins, what a CPU forces, what gpujob owns, where paths lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from jobs.axolotl import Layout, Upload, axolotl_config, to_yaml, trainer_argv, uploads
from jobs.axolotl_fold import effective
from jobs.axolotl_rules import check_config
from jobs.spec import DataFormat, JobSpec

LAYOUT = Layout("/inst/label")


def spec(**more: Any) -> JobSpec:
    values: dict[str, Any] = {
        "name": "a",
        "model": "owner/name",
        "method": "qlora",
        "data": {"train": "/here/rows.jsonl", "format": "chat"},
    }
    return JobSpec.model_validate({**values, **more})


def derive(*, stack: Literal["cpu", "cuda"] = "cuda", **more: Any) -> dict[str, Any]:
    return axolotl_config(spec(**more), layout=LAYOUT, stack=stack)


def test_the_whole_of_a_small_job() -> None:
    assert derive() == {
        "base_model": "owner/name",
        "datasets": [
            {
                "path": "/inst/label/data/train.jsonl",
                "ds_type": "json",
                "split": "train",
                "type": "chat_template",
                "chat_template": "tokenizer_default_fallback_chatml",
                "field_messages": "messages",
                "message_property_mappings": {"role": "role", "content": "content"},
            }
        ],
        "val_set_size": 0.05,
        "train_on_inputs": False,
        "excess_length_strategy": "drop",
        "chat_template": "tokenizer_default_fallback_chatml",
        "adapter": "qlora",
        "load_in_4bit": True,
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "lora_target_linear": True,
        "num_epochs": 3.0,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "learning_rate": 2e-4,
        "optimizer": "adamw_torch_fused",
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.03,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "gradient_checkpointing": True,
        "seed": 42,
        "logging_steps": 1,
        "sequence_len": 2048,
        "attn_implementation": "sdpa",
        "sample_packing": True,
        "eval_sample_packing": False,
        "bf16": "auto",
        "tf32": "auto",
        "eval_steps": 0.1,
        "metric_for_best_model": "eval_loss",
        "save_steps": 0.1,
        "save_total_limit": 2,
        "dynamic_checkpoint": {"enabled": True, "check_interval": 1},
        "output_dir": "/inst/label/out",
        "dataset_prepared_path": "/inst/label/prepared",
        "auto_resume_from_checkpoints": True,
        "plugins": ["gpujob_plugin.GpujobPlugin"],
    }


def test_lora_is_not_quantized() -> None:
    config = derive(method="lora")
    assert config["adapter"] == "lora"
    assert "load_in_4bit" not in config


def test_a_full_fine_tune_has_no_adapter() -> None:
    config = derive(method="full")
    assert not [key for key in config if key.startswith("lora_") or key == "adapter"]
    assert config["optimizer"] == "paged_adamw_8bit"


def test_modules_instead_of_all() -> None:
    config = derive(training={"lora_targets": ["q_proj", "v_proj"]})
    assert config["lora_target_modules"] == ["q_proj", "v_proj"]
    assert "lora_target_linear" not in config


def test_steps_instead_of_epochs() -> None:
    config = derive(training={"max_steps": 7})
    assert config["max_steps"] == 7
    assert "num_epochs" not in config


def test_checkpoints_set_the_pace_of_evaluation_too() -> None:
    config = derive(checkpoints={"every_steps": 50, "keep": 3})
    assert (config["save_steps"], config["eval_steps"], config["save_total_limit"]) == (50, 50, 3)
    config = derive(checkpoints={"every_steps": 50}, training={"eval_every_steps": 10})
    assert (config["save_steps"], config["eval_steps"]) == (50, 10)


def test_nothing_held_back_nothing_evaluated() -> None:
    data = {"train": "/rows.jsonl", "format": "alpaca", "validation": 0}
    config = derive(data=data)
    assert config["val_set_size"] == 0
    assert "eval_steps" not in config


def test_a_validation_file() -> None:
    data = {"train": "/a/rows.jsonl", "format": "alpaca", "validation": "/b/VAL.JSON"}
    config = derive(data=data)
    assert config["val_set_size"] == 0
    assert config["test_datasets"][0]["path"] == "/inst/label/data/validation.json"
    assert config["test_datasets"][0]["type"] == "alpaca"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jsonl", "json"), ("a.json", "json"), ("a.csv", "csv"), ("a.parquet", "parquet"),
     ("a.arrow", "arrow"), ("A.TXT", "text")],
)  # fmt: skip
def test_the_kind_of_file(name: str, kind: str) -> None:
    config = derive(data={"train": f"/d/{name}", "format": "completion"})
    assert config["datasets"][0]["ds_type"] == kind


def entry(form: DataFormat, **columns: str) -> dict[str, Any]:
    config = derive(data={"train": "/a.jsonl", "format": form, "columns": columns})
    found: dict[str, Any] = config["datasets"][0]
    return found


def test_formats_as_axolotl_takes_them() -> None:
    assert entry(DataFormat.ALPACA)["type"] == "alpaca"
    assert entry(DataFormat.SEGMENTS)["type"] == "input_output"
    completion = entry(DataFormat.COMPLETION, text="body")
    assert (completion["type"], completion["field"]) == ("completion", "body")
    sharegpt = entry(DataFormat.SHAREGPT)
    assert sharegpt["type"] == "chat_template"
    assert sharegpt["field_messages"] == "conversations"
    assert sharegpt["message_property_mappings"] == {"role": "from", "content": "value"}
    chat = entry(DataFormat.CHAT, messages="talk", role="who", content="says")
    assert chat["field_messages"] == "talk"
    assert chat["message_property_mappings"] == {"role": "who", "content": "says"}


def test_prompt_and_completion_are_joined_as_they_are() -> None:
    own = entry(DataFormat.PROMPT_COMPLETION, prompt="q", completion="a")["type"]
    assert (own["field_instruction"], own["field_output"]) == ("q", "a")
    assert own["format"] == own["no_input_format"] == "{instruction}"
    # A column "system" or "input" of the data must not slip into the prompt.
    assert own["field_system"] not in ("system", "input")
    assert own["field_input"] not in ("system", "input")


def test_alpaca_with_other_columns_keeps_its_prompt() -> None:
    own = entry(DataFormat.ALPACA, instruction="task")["type"]
    assert own["field_instruction"] == "task"
    assert own["field_input"] == "input"
    for text in (own["format"], own["no_input_format"]):
        assert text.format(instruction="I", input="X").startswith("Below is an instruction")
        assert text.endswith("### Response:\n")


def test_another_chat_template() -> None:
    config = derive(axolotl={"chat_template": "llama3"})
    assert config["chat_template"] == "llama3"
    assert config["datasets"][0]["chat_template"] == "llama3"
    config = derive(axolotl={"chat_template_jinja": "{{ x }}"})
    assert config["datasets"][0]["chat_template"] == "jinja"
    assert config["datasets"][0]["chat_template_jinja"] == "{{ x }}"


# ------------------------------------------------------------------ who wins
@pytest.mark.parametrize(
    ("key", "value", "gone"),
    [
        ("warmup_steps", 10, "warmup_ratio"),
        ("evals_per_epoch", 2, "eval_steps"),
        ("eval_strategy", "no", "eval_steps"),
        ("lora_target_modules", ["q_proj"], "lora_target_linear"),
        ("fp16", True, "bf16"),
        ("max_steps", 5, "num_epochs"),
        ("batch_size", 16, "gradient_accumulation_steps"),
        ("val_set_size", 0, "eval_steps"),
    ],
)
def test_a_key_of_the_person_takes_away_what_contradicts_it(
    key: str, value: Any, gone: str
) -> None:
    config = derive(axolotl={key: value})
    assert config[key] == value
    assert gone not in config
    assert check_config(config) == []


def test_null_takes_a_derived_key_away() -> None:
    assert "logging_steps" not in derive(axolotl={"logging_steps": None})


def test_special_tokens_are_added_to(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}', encoding="utf-8")
    config = derive(model=str(tmp_path), axolotl={"special_tokens": {"bos_token": "<s>"}})
    assert config["special_tokens"] == {"pad_token": "</s>", "bos_token": "<s>"}


def test_what_gpujob_owns_can_not_be_taken() -> None:
    for key in ("output_dir", "dataset_prepared_path", "plugins", "auto_resume_from_checkpoints"):
        assert derive(axolotl={key: "x"})[key] == derive()[key]


def test_plugins_by_short_name() -> None:
    assert derive(training={"plugins": ["liger"]})["plugins"] == [
        "axolotl.integrations.liger.LigerPlugin",
        "gpujob_plugin.GpujobPlugin",
    ]


# ------------------------------------------------------------------ on a CPU
def test_a_cpu_forces_what_it_can_run() -> None:
    wanted = {"bf16": True, "optimizer": "adamw_8bit", "attn_implementation": "flash_attention_2"}
    config = derive(stack="cpu", axolotl=wanted)
    assert (config["bf16"], config["fp16"], config["tf32"]) == (False, False, False)
    assert config["optimizer"] == "adamw_torch"
    assert config["sample_packing"] is False
    assert "eval_sample_packing" not in config
    assert config["attn_implementation"] == "sdpa"
    kernels = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
    assert all(config[kernel] is False for kernel in kernels)


def test_a_cpu_leaves_gpu_kernels_out() -> None:
    wanted = {
        "liger_rope": True, "deepspeed": {"zero_optimization": {"stage": 2}}, "fp8": True,
        "torch_compile": True, "torch_compile_options": {"shape_padding": True},
        "grokfast_alpha": 1,
    }  # fmt: skip
    training = {"plugins": ["liger", "grokfast"]}
    config = derive(stack="cpu", axolotl=wanted, training=training)
    assert [key for key in wanted if key in config] == ["grokfast_alpha"]
    assert config["plugins"] == [
        "axolotl.integrations.grokfast.GrokfastPlugin",
        "gpujob_plugin.GpujobPlugin",
    ]
    assert check_config(config) == []
    assert set(wanted) <= set(derive(axolotl=wanted, training=training))


def test_a_cpu_keeps_an_optimizer_that_it_can_run() -> None:
    assert derive(stack="cpu", training={"optimizer": "adafactor"})["optimizer"] == "adafactor"


def test_a_full_fine_tune_on_a_cpu_names_no_lora_kernel() -> None:
    assert not [key for key in derive(stack="cpu", method="full") if key.startswith("lora_")]


# ------------------------------------------------------------------ files, text, command line
def test_uploads(tmp_path: Path) -> None:
    job = spec(
        model=str(tmp_path),
        data={"train": "/a/rows.jsonl", "format": "chat", "validation": "/b/val.csv"},
    )
    assert uploads(job, LAYOUT) == (
        Upload(tmp_path, "/inst/label/model"),
        Upload(Path("/a/rows.jsonl"), "/inst/label/data/train.jsonl"),
        Upload(Path("/b/val.csv"), "/inst/label/data/validation.csv"),
    )
    assert [u.remote for u in uploads(spec(), LAYOUT)] == ["/inst/label/data/train.jsonl"]


def test_an_uploaded_model_is_named_without_the_folders_around_it(tmp_path: Path) -> None:
    """Axolotl reads "mpt" out of a path like /prompts/model and then refuses the job."""
    config = axolotl_config(spec(model=str(tmp_path)), layout=Layout("/prompts/x"), stack="cuda")
    assert config["base_model"] == "./model"


def test_every_other_path_is_below_the_root() -> None:
    text = to_yaml(derive(data={"train": "/a.jsonl", "format": "chat", "validation": "/b.jsonl"}))
    found = [word for word in text.split() if word.startswith("/")]
    assert len(found) == 4
    assert all(word.startswith("/inst/label/") for word in found)


def test_yaml_survives_readers_of_the_old_version() -> None:
    config = {"a": 1e-5, "b": "no", "c": "1:30", "d": "ünï", "e": "1e-4", "f": True, "g": "é\n"}
    assert yaml.safe_load(to_yaml(config)) == config


def test_the_command_line() -> None:
    assert trainer_argv("/x/axolotl", "/c.yml") == [
        "/x/axolotl", "train", "/c.yml", "--launcher", "python",
    ]  # fmt: skip
    assert trainer_argv("/x/axolotl", "/c.yml", 1) == trainer_argv("/x/axolotl", "/c.yml", 0)
    assert trainer_argv("/x/axolotl", "/c.yml", 4)[3:] == [
        "--launcher", "torchrun", "--", "--standalone", "--nproc_per_node", "4",
    ]  # fmt: skip


# ------------------------------------------------------------------ effective values
def test_effective_values_derive_the_same() -> None:
    job = spec(
        axolotl={
            "sequence_len": 512, "micro_batch_size": 8, "batch_size": 32, "optimizer": "adamw_8bit",
            "lora_target_modules": "^model.*q_proj$", "gradient_checkpointing": False,
            "val_set_size": 0.25, "eval_steps": 7, "max_steps": 9,
        }
    )  # fmt: skip
    folded = effective(job)
    assert folded.training.sequence_len == 512
    assert folded.training.gradient_accumulation_steps == 4
    assert folded.training.optimizer == "adamw_8bit"
    assert folded.training.lora_targets == ("^model.*q_proj$",)
    assert folded.training.gradient_checkpointing is False
    assert (folded.training.max_steps, folded.training.epochs) == (9, None)
    assert folded.training.eval_every_steps == 7
    assert folded.data.validation == 0.25
    for stack in ("cpu", "cuda"):
        assert axolotl_config(folded, layout=LAYOUT, stack=stack) == axolotl_config(
            job, layout=LAYOUT, stack=stack
        )
