"""The real Axolotl interrupted and resumed: the same losses and the same adapter as undisturbed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_resume import lose_the_machine
from tests.support.gpujob_process import Gpujob

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "examples" / "quickstart" / "job.yaml"
LOSS_DIFFERENCE = 1e-4  # per step, on a CPU with a fixed seed
TENSOR_DIFFERENCE = 1e-5
pytestmark = [pytest.mark.e2e, pytest.mark.axolotl, pytest.mark.prove]

COMPARE = """
import sys
from safetensors.torch import load_file
one, two = (load_file(f"{folder}/adapter_model.safetensors") for folder in sys.argv[1:])
assert one.keys() == two.keys()
print(max(float((one[name] - two[name]).abs().max()) for name in one))
"""


def losses(tool: Gpujob, job: dict[str, Any]) -> dict[int, float]:
    """Return the loss of each step; the later one of a step that was done twice."""
    found: dict[int, float] = {}
    for attempt in range(1, job["attempt"] + 1):
        path = tool.home / "jobs" / job["id"] / f"attempt-{attempt}" / "metrics.jsonl"
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "log" and "loss" in event:
                found[event["step"]] = event["loss"]
    return found


def train(folder: Path, python: Path, *, interrupt: bool) -> tuple[Path, dict[int, float]]:
    folder.mkdir()
    tool = Gpujob(folder, GPUJOB_AXOLOTL_ENV=str(python.parents[1]))
    out = folder / "out"
    change = ["--set", f"output={out}", "--set", "checkpoints.every_steps=5"]
    try:
        started = tool.run("submit", str(JOB), "--yes", "--detach", *change)
        assert started.code == 0, started.err
        if interrupt:
            tool.wait_for(
                lambda job: (job["checkpoint_step"] or 0) >= 10, "a checkpoint", within_s=600
            )
            lose_the_machine(tool)
        job = tool.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed", within_s=900)
        assert (job["outcome"], job["attempt"]) == ("SUCCEEDED", 2 if interrupt else 1), job
        return out, losses(tool, job)
    finally:
        tool.end_all()


@pytest.mark.timeout(2400)
def test_a_resumed_training_is_the_same_training(tmp_path: Path, axolotl_python: Path) -> None:
    whole, expected = train(tmp_path / "whole", axolotl_python, interrupt=False)
    resumed, found = train(tmp_path / "resumed", axolotl_python, interrupt=True)
    assert sorted(found) == sorted(expected) == list(range(1, 31))
    assert max(abs(found[step] - expected[step]) for step in expected) <= LOSS_DIFFERENCE
    compared = subprocess.run(
        [str(axolotl_python), "-c", COMPARE, str(whole), str(resumed)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert float(compared.stdout) <= TENSOR_DIFFERENCE
