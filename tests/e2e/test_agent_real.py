"""The shipped agent and plugin under the real Axolotl, on a CPU: ends, good and bad.

Needs the locked environment (GPUJOB_AXOLOTL_ENV) and the quickstart's tiny model. A run takes 20 to
40 s on a quiet core, nearly all of it imports.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.agent.bundle import PLUGIN_CLASS
from orchestrator.axolotl_env import trainer_env
from tests.support.agent_driver import Attempt

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart"
ENVIRONMENT = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.axolotl,
    pytest.mark.timeout(600),
]


def config(folder, **changes):
    """Return a LoRA configuration for the tiny model on a CPU."""
    kernels = dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"), False)
    return {
        "base_model": str(EXAMPLE / "tiny-llama"),
        "datasets": [
            {"path": str(EXAMPLE / "data.jsonl"), "type": "alpaca", "ds_type": "json"},
        ],
        "dataset_prepared_path": str(folder / "prepared"),
        "output_dir": str(folder / "out"),
        "val_set_size": 0.1,
        "sequence_len": 128,
        "sample_packing": False,
        "adapter": "lora",
        "lora_r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "lora_target_linear": True,
        **kernels,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "max_steps": 12,
        "optimizer": "adamw_torch",
        "lr_scheduler": "cosine",
        "learning_rate": 0.001,
        "bf16": False,
        "fp16": False,
        "tf32": False,
        "logging_steps": 1,
        "eval_steps": 6,
        "save_steps": 6,
        "seed": 42,
        "plugins": [PLUGIN_CLASS],
        **changes,
    }


@pytest.fixture
def attempt(tmp_path):
    made = []

    def make(**changes):
        job = Attempt(tmp_path / "job")
        made.append(job)
        text = yaml.safe_dump(config(job.folder, **changes))
        (job.folder / "config.yml").write_text(text)
        axolotl = str(Path(ENVIRONMENT) / "bin" / "axolotl")
        argv = [axolotl, "train", str(job.folder / "config.yml"), "--launcher", "python"]
        job.order["argv"] = argv
        job.order["env"] = trainer_env(
            gpu=False, offline=True, scratch=str(job.folder), hf_home=str(tmp_path / "hf")
        )
        job.deadline(500)
        return job

    yield make
    for job in made:
        job.clear()


def metrics(job):
    return [json.loads(line) for line in (job.folder / "metrics.jsonl").read_text().splitlines()]


def gone(job):
    end = time.monotonic() + 15
    while job.processes() and time.monotonic() < end:
        time.sleep(0.1)
    return job.processes()


def test_success(attempt):
    job = attempt()
    job.start()
    verdict = job.wait(400)
    assert verdict["verdict"] == "succeeded", verdict
    assert (verdict["last_step"], verdict["max_steps"]) == (12, 12)
    assert verdict["adapter"] == {"tensors": 28, "finite": True}
    events = metrics(job)
    assert events[0]["event"] == "train_begin"
    assert events[-1]["event"] == "train_end"
    steps = [event for event in events if event["event"] == "log" and "loss" in event]
    assert [event["step"] for event in steps] == list(range(1, 13))
    assert all(len(str(event["loss"])) > 8 for event in steps)  # exact, not four digits
    assert any("train_runtime" in event for event in events)
    saves = [event["step"] for event in events if event["event"] == "save"]
    assert saves == [6, 12]
    assert any("eval_loss" in event for event in events if event["event"] == "evaluate")
    files = {file["path"] for file in job.command("manifest", str(job.folder))["files"]}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= files
    assert not any("checkpoint" in path or path == "debug.log" for path in files)
    log = (job.folder / "train.log").read_text(errors="replace")
    assert "metrics are lost" not in log
    assert gone(job) == []


def test_a_diverged_training_that_exits_with_0(attempt):
    job = attempt(learning_rate=1e30)
    job.start()
    verdict = job.wait(400)
    assert (verdict["rc"], verdict["verdict"], verdict["reason"]) == (0, "failed", "DIVERGED")
    (job.folder / "metrics.jsonl").unlink()  # told by the plugin's numbers; and without them?
    from orchestrator.agent.logs import read_log
    from orchestrator.agent.weights import check_weights

    assert read_log(str(job.folder / "train.log")).not_finite
    assert not check_weights(str(job.folder / "out"), adapter=True).finite


BAD: dict[str, dict[str, Any]] = {
    "DATA_MISSING": {"datasets": [{"path": "/no/such.jsonl", "type": "alpaca", "ds_type": "json"}]},
    "MODEL_MISSING": {"base_model": "/no/such/model"},
    "CONFIG_REFUSED": {"micro_batch_size": "lots"},
    "DATA_FORMAT": {
        "datasets": [
            {"path": str(EXAMPLE / "data.jsonl"), "type": "alpacaa", "ds_type": "json"},
        ]
    },
}


@pytest.mark.prove
@pytest.mark.parametrize("reason", BAD)
def test_bad_jobs(attempt, reason):
    job = attempt(**BAD[reason])
    job.start()
    verdict = job.wait(400)
    assert (verdict["verdict"], verdict["reason"]) == ("failed", reason), verdict["evidence"]
    assert gone(job) == []


@pytest.mark.prove
@pytest.mark.parametrize("how", ["deadline", "stop", "kill the agent", "kill the trainer"])
def test_ended_in_mid_training(attempt, how):
    job = attempt(max_steps=100_000, eval_steps=1000, save_steps=1000)
    if how == "deadline":
        job.deadline(60)
    job.start()
    if how != "deadline":
        job.until("'loss'", 400)
    expected = {"stop": "CANCELLED", "deadline": "DEADLINE"}.get(how, "TRAINER_KILLED")
    if how == "stop":
        job.stop()
    elif how == "kill the agent":
        os.kill(job.claim()["pid"], signal.SIGKILL)
    elif how == "kill the trainer":
        beat = json.loads((job.folder / "heartbeat.json").read_text())
        os.kill(beat["trainer_pid"], signal.SIGKILL)
    verdict = job.wait(120)
    assert verdict["reason"] == expected
    assert verdict["verdict"] == ("failed" if expected == "TRAINER_KILLED" else "stopped")
    assert how == "deadline" or verdict["last_step"] > 0
    assert verdict["trainer_starts"] == 1
    assert gone(job) == []
