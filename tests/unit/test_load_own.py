"""A person's own Axolotl file: what stands, what is brought to the instance, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.axolotl import Layout, axolotl_config, uploads
from jobs.findings import JobFileError
from jobs.load import LoadedJob, load_job
from jobs.spec import Method

OWN: dict[str, Any] = {
    "base_model": "owner/name",
    "datasets": [{"path": "rows.jsonl", "type": "alpaca", "ds_type": "json"}],
    "val_set_size": 0.1,
    "adapter": "lora",
    "lora_r": 8,
    "lora_alpha": 16,
    "lora_target_linear": True,
    "sequence_len": 1024,
    "learning_rate": "1e-4",  # as YAML 1.1 readers write it
    "num_epochs": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    row = {"instruction": "a", "input": "", "output": "b"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return tmp_path


def load(folder: Path, own: dict[str, Any], job: str = "", *overrides: str) -> LoadedJob:
    kept = {key: value for key, value in own.items() if value is not None}
    (folder / "my.yml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    text = f"name: a\naxolotl:\n  config: my.yml\n{job}"
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return load_job(folder / "job.yaml", overrides)


def derived(job: LoadedJob) -> dict[str, Any]:
    return axolotl_config(job.spec, layout=Layout("/i"), stack="cuda")


def test_model_method_and_data_are_read_from_it(folder: Path) -> None:
    spec = load(folder, OWN).spec
    assert (spec.model, spec.method) == ("owner/name", Method.LORA)
    assert spec.data.validation == 0.1
    assert spec.data.train is None


def test_nothing_of_ours_is_added_to_the_training(folder: Path) -> None:
    config = derived(load(folder, OWN))
    ours = {"output_dir", "dataset_prepared_path", "auto_resume_from_checkpoints", "plugins"}
    assert set(config) == set(OWN) | ours | {"save_steps", "save_total_limit", "dynamic_checkpoint"}
    assert config["sequence_len"] == 1024
    assert config["learning_rate"] == 1e-4


def test_training_shows_axolotls_defaults_where_the_file_is_silent(folder: Path) -> None:
    training = load(folder, {**OWN, "sequence_len": None}).spec.training
    assert training.sequence_len == 512
    assert training.micro_batch_size == 1
    assert training.packing is False
    assert training.gradient_checkpointing is False
    assert (training.lora_r, training.lora_alpha, training.epochs) == (8, 16, 2.0)


@pytest.mark.parametrize(
    ("adapter", "more", "method"),
    [
        ("lora", {}, Method.LORA),
        ("qlora", {"load_in_4bit": True}, Method.QLORA),
        (None, {"lora_r": None, "lora_alpha": None, "lora_target_linear": None}, Method.FULL),
    ],
)
def test_the_method_of_a_file(
    folder: Path, adapter: str | None, more: dict[str, Any], method: Method
) -> None:
    assert load(folder, {**OWN, "adapter": adapter, **more}).spec.method is method
    agreeing = load(folder, {**OWN, "adapter": adapter, **more}, f"method: {method}\n")
    assert agreeing.spec.method is method


def test_places_are_brought_to_the_instance_with_notes(folder: Path) -> None:
    job = load(folder, {**OWN, "output_dir": "./x", "dataset_prepared_path": "y", "strict": False})
    config = derived(job)
    assert config["output_dir"] == "/i/out"
    assert config["dataset_prepared_path"] == "/i/prepared"
    assert [note.split(" is ")[0] for note in job.notes] == [
        "my.yml: dataset_prepared_path",
        "my.yml: output_dir",
    ]


def test_local_data_is_uploaded(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "val.jsonl").write_text((folder / "rows.jsonl").read_text("utf-8"), "utf-8")
    data = [*OWN["datasets"], {"path": "acme/open-set", "type": "alpaca"}]
    tests = [{"path": "sub/val.jsonl", "type": "alpaca"}]
    job = load(folder, {**OWN, "datasets": data, "test_datasets": tests, "val_set_size": None})
    config = derived(job)
    assert [entry["path"] for entry in config["datasets"]] == [
        "/i/data/datasets-0.jsonl",
        "acme/open-set",
    ]
    assert config["test_datasets"][0]["path"] == "/i/data/test_datasets-0.jsonl"
    assert [(u.local, u.remote) for u in uploads(job.spec, Layout("/i"))] == [
        (folder / "rows.jsonl", "/i/data/datasets-0.jsonl"),
        (folder / "sub" / "val.jsonl", "/i/data/test_datasets-0.jsonl"),
    ]
    assert any("acme/open-set is fetched" in note for note in job.notes)


def test_paths_count_from_the_files_folder_then_from_the_jobs(folder: Path) -> None:
    (folder / "configs").mkdir()
    (folder / "configs" / "my.yml").write_text(yaml.safe_dump(OWN), encoding="utf-8")
    text = "name: a\naxolotl: {config: configs/my.yml}\n"
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    (upload,) = uploads(load_job(folder / "job.yaml").spec, Layout("/i"))
    assert upload.local == folder / "rows.jsonl"
    (folder / "configs" / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    (upload,) = uploads(load_job(folder / "job.yaml").spec, Layout("/i"))
    assert upload.local == folder / "configs" / "rows.jsonl"


def test_the_jobs_data_wins(folder: Path) -> None:
    job = load(folder, OWN, "data: {train: rows.jsonl, format: alpaca, validation: 0.2}\n")
    config = derived(job)
    assert config["datasets"] == [
        {"path": "/i/data/train.jsonl", "ds_type": "json", "split": "train", "type": "alpaca"}
    ]
    assert config["val_set_size"] == 0.2
    assert any("datasets is left out" in note for note in job.notes)


def test_the_jobs_model_wins_with_a_note(folder: Path) -> None:
    job = load(folder, OWN, "model: other/model\n")
    assert derived(job)["base_model"] == "other/model"
    assert any("base_model is left out" in note for note in job.notes)


def test_training_and_keys_of_the_job_lie_over_the_file(folder: Path) -> None:
    job = load(
        folder,
        OWN,
        "  lora_dropout: 0.1\ntraining: {sequence_len: 256, lora_targets: [q_proj]}\n",
        "training.max_steps=5",
    )
    config = derived(job)
    assert config["sequence_len"] == 256
    assert config["lora_dropout"] == 0.1
    assert config["lora_target_modules"] == ["q_proj"]
    assert "lora_target_linear" not in config
    assert config["max_steps"] == 5
    assert "num_epochs" not in config
    assert job.spec.training.max_steps == 5


def test_saving_of_the_file_stays_unless_the_job_has_checkpoints(folder: Path) -> None:
    own = {**OWN, "saves_per_epoch": 3, "save_total_limit": 7}
    config = derived(load(folder, own))
    assert (config["saves_per_epoch"], config["save_total_limit"]) == (3, 7)
    assert "save_steps" not in config
    config = derived(load(folder, own, "checkpoints: {every_steps: 9}\n"))
    assert (config["save_steps"], config["save_total_limit"]) == (9, 2)
    assert "saves_per_epoch" not in config


def test_a_job_that_must_go_on_is_saved_whole(folder: Path) -> None:
    job = load(folder, {**OWN, "save_strategy": "no", "save_only_model": True})
    config = derived(job)
    assert config["save_steps"] == 0.1
    assert "save_only_model" not in config
    assert len(job.notes) == 2


def test_plugins_of_the_file_stay_and_ours_is_added(folder: Path) -> None:
    own = {**OWN, "plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": True}
    assert derived(load(folder, own))["plugins"] == [
        "axolotl.integrations.liger.LigerPlugin",
        "gpujob_plugin.GpujobPlugin",
    ]


def test_with_a_strange_plugin_unknown_keys_may_be_its_own(folder: Path) -> None:
    with pytest.raises(JobFileError, match="Axolotl has no such key"):
        load(folder, {**OWN, "house_key": 1})
    job = load(folder, {**OWN, "plugins": ["acme.Plugin"], "house_key": 1})
    assert derived(job)["house_key"] == 1


def test_small_files_are_sent_by_content(folder: Path) -> None:
    (folder / "t.jinja").write_text("{{ x }}", encoding="utf-8")
    (folder / "z.json").write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8")
    own = {**OWN, "chat_template_jinja": "t.jinja", "chat_template": "jinja", "deepspeed": "z.json"}
    config = derived(load(folder, own))
    assert config["chat_template_jinja"] == "{{ x }}"
    assert config["deepspeed"] == {"zero_optimization": {"stage": 2}}


def test_a_local_model_counts_from_the_files_folder(folder: Path) -> None:
    (folder / "m").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / "m" / name).write_text("{}", encoding="utf-8")
    job = load(folder, {**OWN, "base_model": "./m"})
    assert job.spec.model_folder == folder / "m"
    assert derived(job)["base_model"] == "./model"


def test_a_file_with_only_places_is_no_base(folder: Path) -> None:
    job_text = "model: o/m\nmethod: lora\ndata: {train: rows.jsonl, format: alpaca}\n"
    job = load(folder, {"output_dir": "x"}, job_text)
    assert derived(job)["lora_r"] == 16


def test_the_base_is_kept_in_the_spec(folder: Path) -> None:
    """A job that is taken up again is derived from what was loaded, not from the file of then."""
    job = load(folder, OWN)
    (folder / "my.yml").unlink()
    again = type(job.spec).model_validate(job.spec.model_dump(mode="json"))
    assert axolotl_config(again, layout=Layout("/i"), stack="cuda") == derived(job)
