"""Any bytes give a job or JobFileError; any spec derives a configuration that passes the check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.axolotl import Layout, Stack, axolotl_config, to_yaml
from jobs.axolotl_fold import effective
from jobs.axolotl_names import OPTIMIZERS, PLUGINS, SCHEDULERS
from jobs.axolotl_rules import check_config
from jobs.findings import JobFileError
from jobs.load import load_job
from jobs.load_words import known_keys
from jobs.load_yaml import parse
from jobs.spec import DataFormat, JobSpec

LAYOUT = Layout("/i")
SEED_FILE = """\
name: a
model: owner/name
method: qlora
data: {train: rows.jsonl, format: alpaca, validation: 0.1}
training: {epochs: 2, lora_r: 8, learning_rate: 1e-4, packing: yes, lora_targets: [q_proj]}
axolotl: {neftune_noise_alpha: 5, special_tokens: {pad_token: x}, flash_attention: true}
gpu: {types: [A100], count: 1, max_price_usd_per_hour: 1.5}
limits: {budget_usd: 5, hours: 2}
output: &o out
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    row = {"instruction": "a", "input": "", "output": "b"}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return folder


def load_or_say(folder: Path, content: bytes, *overrides: str) -> None:
    (folder / "job.yaml").write_bytes(content)
    job, said = None, ["nothing"]
    try:
        job = load_job(folder / "job.yaml", overrides)
    except JobFileError as error:
        said = [finding.message for finding in error.findings]
    assert said
    assert all(said)
    if job is None:
        return
    for stack in ("cpu", "cuda"):
        config = axolotl_config(job.spec, layout=LAYOUT, stack=stack)
        assert check_config(config) == []
        assert yaml.safe_load(to_yaml(config)) == config
    assert JobSpec.model_validate(job.spec.model_dump(mode="json")) == job.spec


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes(folder: Path, content: bytes) -> None:
    load_or_say(folder, content)


YAMLISH = st.text(alphabet="ab:-?[]{},&*!|>'\"#%@ \n\t10.~<", max_size=120)


@given(YAMLISH)
@settings(max_examples=200, deadline=None)
def test_any_text_of_yaml_signs(text: str) -> None:
    document = parse(text, "f")
    for finding in document.findings:
        assert finding.message


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_good_file_with_a_piece_exchanged(folder: Path, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SEED_FILE)))
    end = data.draw(st.integers(start, min(start + 30, len(SEED_FILE))))
    piece = data.draw(st.one_of(YAMLISH, st.text(max_size=20), st.just("")))
    text = SEED_FILE[:start] + piece + SEED_FILE[end:]
    load_or_say(folder, text.encode("utf-8", "surrogatepass"))


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["1e-4", "1:30", "yes", "auto", "/etc", "s3://x", "~", "$HOME", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
NAMES = [
    (section, key) for section, keys in known_keys().items() for key in keys if section
] + [("axolotl", key) for key in (
    "config", "lora_r", "special_tokens", "datasets", "trl", "fsdp_config", "deepspeed",
    "lora_target_modules", "gc_steps", "gradient_checkpointing", "attn_implementation", "plugins",
    "save_steps", "eval_steps", "batch_size", "chat_template_jinja", "adapter", "val_set_size",
)]  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), JUNK, min_size=1, max_size=4), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_value_at_any_key(
    folder: Path, wrong: dict[tuple[str, str], Any], through_set: bool
) -> None:
    content = yaml.safe_load(SEED_FILE)
    overrides = []
    for (section, key), value in wrong.items():
        if through_set:
            overrides.append(f"{section}.{key}={json.dumps(value)}")
        else:
            content.setdefault(section, {})[key] = value
    load_or_say(folder, json.dumps(content).encode(), *overrides)


@given(st.dictionaries(st.sampled_from(sorted(known_keys()[""])), JUNK, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_any_value_at_the_top(folder: Path, wrong: dict[str, Any]) -> None:
    load_or_say(folder, json.dumps({**yaml.safe_load(SEED_FILE), **wrong}).encode())


OWN_KEYS = st.sampled_from(
    [
        "base_model", "datasets", "test_datasets", "adapter", "load_in_4bit", "lora_r", "plugins",
        "save_steps", "save_strategy", "val_set_size", "learning_rate", "deepspeed", "fsdp_config",
        "chat_template_jinja", "pretraining_dataset", "hub_model_id", "sequence_len", "gc_steps",
    ]
)  # fmt: skip


@given(st.dictionaries(OWN_KEYS, JUNK, max_size=5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_own_file(folder: Path, wrong: dict[str, Any], has_data: bool) -> None:
    own = {
        "base_model": "o/m", "adapter": "lora", "lora_r": 8, "lora_alpha": 8,
        "lora_target_linear": True, "learning_rate": 1e-4,
        "datasets": [{"path": "rows.jsonl", "type": "alpaca"}],
    }  # fmt: skip
    (folder / "own.yml").write_text(json.dumps({**own, **wrong}), encoding="utf-8")
    job = {"name": "a", "axolotl": {"config": "own.yml"}}
    if has_data:
        job["data"] = {"train": "rows.jsonl", "format": "alpaca"}
    load_or_say(folder, json.dumps(job).encode())


# ------------------------------------------------------------------ specs
TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "sequence_len": st.integers(16, 1 << 20),
        "micro_batch_size": st.integers(1, 4096),
        "gradient_accumulation_steps": st.integers(1, 65536),
        "learning_rate": st.floats(1e-12, 1),
        "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
        "lr_scheduler": st.sampled_from(sorted(SCHEDULERS)),
        "warmup_ratio": st.floats(0, 0.99),
        "weight_decay": st.floats(0, 1),
        "max_grad_norm": st.floats(0, 1e6),
        "lora_r": st.integers(1, 4096),
        "lora_alpha": st.integers(1, 65536),
        "lora_dropout": st.floats(0, 0.99),
        "lora_targets": st.just("all-linear") | st.lists(st.just("q_proj"), min_size=1, max_size=3),
        "gradient_checkpointing": st.booleans(),
        "packing": st.booleans(),
        "eval_every_steps": st.integers(1, 10**6),
        "plugins": st.lists(st.sampled_from(sorted(PLUGINS)), unique=True),
        "seed": st.integers(0, 2**32 - 1),
    },
)
LENGTH: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.floats(1e-6, 1000).map(lambda value: {"epochs": value}),
    st.integers(1, 10**9).map(lambda value: {"max_steps": value}),
)
SPECS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
        "model": st.sampled_from(["owner/name", "gpt2", "/somewhere/model"]),
        "method": st.sampled_from(["qlora", "lora", "full"]),
        "data": st.fixed_dictionaries(
            {
                "train": st.sampled_from(["/a.jsonl", "/b.CSV"]),
                "format": st.sampled_from(DataFormat),
            },
            optional={
                "validation": st.floats(0, 0.5) | st.just("/val.jsonl"),
                "train_on_inputs": st.booleans(),
            },
        ),
        "training": st.tuples(TRAINING, LENGTH).map(lambda pair: {**pair[0], **pair[1]}),
        "checkpoints": st.fixed_dictionaries(
            {}, optional={"every_steps": st.integers(1, 10**6), "keep": st.integers(1, 100)}
        ),
    }
)


@given(SPECS, st.sampled_from(["cpu", "cuda"]))
@settings(max_examples=200, deadline=None)
def test_any_spec_derives_a_configuration_that_passes(values: dict[str, Any], stack: Stack) -> None:
    spec = JobSpec.model_validate(values)
    config = axolotl_config(spec, layout=LAYOUT, stack=stack)
    assert check_config(config) == []
    assert yaml.safe_load(to_yaml(config)) == config
    assert None not in config.values()
    again = JobSpec.model_validate(spec.model_dump(mode="json"))
    assert again == spec
    folded = effective(spec)
    assert axolotl_config(folded, layout=LAYOUT, stack=stack) == config
    assert effective(folded) == folded
