"""The real Axolotl inside a pod of the simulated RunPod: the whole job, and killed in the middle.

The pod's nvidia-smi is a script, so what a CPU needs is asked for in the job file, and PyTorch is
not asked about GPUs (`GPUJOB_TORCH_CHECK=off`, which exists for simulated clouds).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import Cloud, axolotl_mounts, cloud
from tests.support.faulty import FAST, VENV
from tests.support.gpujob_process import ROOT, Gpujob

pytestmark = [
    pytest.mark.e2e, pytest.mark.prove, pytest.mark.axolotl, pytest.mark.timeout(1800),
    pytest.mark.system("openssh-server"),
]  # fmt: skip
QUICKSTART = ROOT / "examples" / "quickstart"
LIMIT_S = 1500.0
STEPS = 8
# As jobs.axolotl.on_cpu has it: to gpujob this machine has a GPU.
ON_CPU = {
    "bf16": False, "fp16": False, "tf32": False, "attn_implementation": "sdpa",
    "sample_packing": False, "optimizer": "adamw_torch", "lora_mlp_kernel": False,
    "lora_qkv_kernel": False, "lora_o_kernel": False,
}  # fmt: skip


@contextmanager
def stage(folder: Path, environment: Path) -> Iterator[tuple[Cloud, Gpujob, Path]]:
    """Yield a simulator whose pods have the real environment, a gpujob, and a job file."""
    found = Gpujob(folder, **FAST, GPUJOB_TORCH_CHECK="off")
    del found.environ["GPUJOB_AXOLOTL_ENV"]
    # A machine that is busy must not look like one that is lost.
    found.environ |= {"GPUJOB_AGENT_LOST_S": "60", "GPUJOB_SSH_LOST_S": "120"}
    path = folder / "job.yaml"
    job = {
        "name": "real", "model": str(QUICKSTART / "tiny-llama"), "method": "lora",
        "data": {"train": str(QUICKSTART / "data.jsonl"), "format": "alpaca", "validation": 0},
        "training": {"max_steps": STEPS, "sequence_len": 128, "micro_batch_size": 2,
                     "gradient_accumulation_steps": 1, "packing": False},
        "gpu": {"providers": ["runpod"], "types": ["L4"]}, "limits": {"hours": 0.5},
        "axolotl": ON_CPU, "output": str(found.out),
    }  # fmt: skip
    path.write_text(json.dumps(job))
    mounts = [f"--mount={environment}:{VENV}", *axolotl_mounts(environment)]
    with cloud(folder / "cloud", *mounts) as running:
        found.environ |= {"RUNPOD_API_KEY": running.key, "RUNPOD_API_BASE_URL": running.url}
        try:
            yield running, found, path
        finally:
            found.end_all()


def judge(running: Cloud, found: Gpujob, environment: Path) -> dict[str, Any]:
    """Return the job at its end: trained by the real one, at home, its pod proven gone."""
    status: dict[str, Any] = found.run("status", "real", "--json", timeout_s=LIMIT_S).json()["job"]
    assert (status["outcome"], status["teardown"], status["step"]) == ("SUCCEEDED", "gone", STEPS)
    (attempt,) = status["attempts"]
    assert (attempt["provider"], attempt["absence_reads"]) == ("runpod", 2)
    assert running.pods() == []
    assert len(running.requests("create")) == 1
    checked = subprocess.run(
        [sys.executable, str(QUICKSTART / "check_adapter.py"), str(found.out)],
        env={**os.environ, "GPUJOB_AXOLOTL_ENV": str(environment), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "lora_B and trained" in checked.stdout
    return status


def test_the_real_axolotl_in_a_pod(tmp_path: Path, axolotl_python: Path) -> None:
    environment = axolotl_python.parents[1]
    with stage(tmp_path, environment) as (running, found, path):
        done = found.run("submit", str(path), "--yes", timeout_s=LIMIT_S)
        assert done.code == 0, done.out + done.err
        assert "training SUCCEEDED   machine GONE (proven " in done.out
        judge(running, found, environment)
        shown = found.run("ps", "--all", "--json").json()["jobs"][0]
        assert (shown["outcome"], shown["teardown"]) == ("SUCCEEDED", "gone")
        assert found.run("cost", "--json").json()["total_usd"] == shown["cost_usd"]


def test_killed_in_the_middle_the_next_command_brings_it_home(
    tmp_path: Path, axolotl_python: Path
) -> None:
    environment = axolotl_python.parents[1]
    with stage(tmp_path, environment) as (running, found, path):
        process = found.start("submit", str(path), "--yes")

        def steps() -> bool:
            assert process.poll() is None, process.communicate()
            jobs = found.run("ps", "--all", "--json").json()["jobs"]
            return bool(jobs) and (jobs[0]["step"] or 0) >= 1

        running.wait(steps, "a step", LIMIT_S, pause_s=1)
        process.send_signal(signal.SIGKILL)
        found.finish(process)
        assert len(running.pods()) == 1, "the training goes on without us"
        found.wait_for(lambda job: job["state"] == "CLOSED", "closed", within_s=LIMIT_S)
        judge(running, found, environment)
