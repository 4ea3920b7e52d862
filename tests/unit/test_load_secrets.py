"""A secret in a job file is refused at its line, wherever it stands."""

from __future__ import annotations

import pytest

from jobs.findings import JobFileError
from jobs.load import load_job
from jobs.load_secrets import secrets_of

TOKEN = "hf_" + "aB3" * 9
JOB = """name: x
model: owner/name
method: lora
data: {train: data.jsonl, format: alpaca}
"""


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("axolotl: {comet_api_key: abc}", "axolotl.comet_api_key"),
        (f"axolotl: {{wandb_run_id: {TOKEN}}}", "axolotl.wandb_run_id"),
        (
            "axolotl: {mlflow_tracking_uri: 'http://me:pass@host'}",
            "axolotl.mlflow_tracking_uri",
        ),
        ("axolotl: {comet_experiment_config: {api_key: a}}", "axolotl.comet_experiment_config"),
        (f"axolotl: {{model_kwargs: {{x: [{TOKEN}]}}}}", "axolotl.model_kwargs"),
        (f"training: {{plugins: [{TOKEN}]}}", "training.plugins"),
        ("gpu: {image: 'https://me:pass@registry/x'}", "gpu.image"),
    ],
)
def test_it_is_refused(tmp_path, lines, field):
    (tmp_path / "data.jsonl").write_text('{"instruction": "a", "input": "", "output": "b"}\n')
    path = tmp_path / "job.yaml"
    path.write_text(JOB + lines + "\n")
    with pytest.raises(JobFileError) as refused:
        load_job(path)
    found = [f for f in refused.value.findings if "a secret must not stand" in f.message]
    assert [(f.line, f.field.startswith(field)) for f in found] == [(5, True)], refused.value
    assert TOKEN not in "".join(f.message + f.remedy for f in found)


def test_in_the_own_axolotl_file_too(tmp_path):
    (tmp_path / "my.yml").write_text("adapter: lora\nbase_model: o/n\ncomet_api_key: abc\n")
    (tmp_path / "data.jsonl").write_text('{"instruction": "a", "input": "", "output": "b"}\n')
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "axolotl: {config: my.yml}\n")
    with pytest.raises(JobFileError, match=r"my.yml line 3: comet_api_key: a secret must not"):
        load_job(path)


def test_ordinary_words_are_none():
    config = {
        "special_tokens": {"pad_token": "<pad>", "eos_token": "</s>"},
        "tokens": ["<a>"],
        "base_model": "owner/hf_model",
        "mlflow_tracking_uri": "http://host:5000/x",
        "comet_experiment_key": "abc",
    }
    assert not list(secrets_of(config, by_name=True))
