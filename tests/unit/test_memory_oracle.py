"""The shape oracle itself, where torch, transformers and peft are installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.architectures import find
from jobs.oracle import OracleRun, OracleUnavailableError, exact_peak_gib

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from dataclasses import replace
from jobs.architectures import find
from jobs.oracle import OracleRun, exact_peak_gib
arch = replace(find("Llama-3.2-1B"), layers=2)
all_ = frozenset({"q", "k", "v", "o", "gate", "up", "down"})
print(json.dumps([
    exact_peak_gib(OracleRun(arch, 2, 512, all_, 16, True)),
    exact_peak_gib(OracleRun(arch, 2, 512, all_, 16, False)),
    exact_peak_gib(OracleRun(arch, 2, 512, all_, 16, False, "eager")),
    exact_peak_gib(OracleRun(arch, 2, 512, frozenset(), 0, True)),
]))
"""


@pytest.mark.axolotl
def test_the_oracle_and_the_closed_form_agree():
    home = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV")
    assert home is not None
    done = subprocess.run(
        [str(Path(home) / "bin" / "python"), "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    exact = json.loads(done.stdout.splitlines()[-1])
    from dataclasses import replace

    from jobs.memory import WORKSPACE_BYTES, footprint
    from jobs.memory_allocator import GIB
    from jobs.workload import Workload

    arch = replace(find("Llama-3.2-1B"), layers=2)
    lora = Workload(
        arch,
        method="lora",
        sequence_len=512,
        micro_batch_size=2,
        packing=False,
        stack="hf",
    )
    works = [
        lora,
        replace(lora, checkpointing=False),
        replace(lora, checkpointing=False, attention="eager"),
        replace(lora, method="full"),
    ]
    ours = [footprint(work).allocated_gib - WORKSPACE_BYTES / GIB for work in works]
    assert ours == pytest.approx(exact, rel=0.01)


def test_without_torch_the_oracle_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OracleUnavailableError, match="torch, transformers and peft"):
        exact_peak_gib(OracleRun(find("TinyLlama-1.1B"), 1, 16))
