"""The quickstart as `make quickstart` runs it: the real Axolotl, and peft loads what came home."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.gpujob_process import Gpujob

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart"
pytestmark = [pytest.mark.e2e, pytest.mark.axolotl]


def test_the_quickstart_ends_with_an_adapter_that_peft_loads(
    tmp_path: Path, axolotl_python: Path
) -> None:
    env = str(axolotl_python.parents[1])
    gpujob = Gpujob(tmp_path, GPUJOB_AXOLOTL_ENV=env, GPUJOB_LOCAL_PRICE_USD_PER_HOUR="0.60")
    out = tmp_path / "out"
    done = gpujob.run(
        "submit", str(QUICKSTART / "job.yaml"), "--yes", "--set", f"output={out}", timeout_s=600
    )
    assert done.code == 0, done.out + done.err
    assert "training SUCCEEDED   machine GONE (proven " in done.out

    listed = gpujob.job()
    job = gpujob.run("status", "quickstart", "--json").json()["job"]
    cost = gpujob.run("cost", "--json").json()
    assert (job["outcome"], job["teardown"], job["step"], job["max_steps"]) == (
        "SUCCEEDED", "gone", 30, 30,
    )  # fmt: skip
    assert (listed["outcome"], listed["teardown"]) == (job["outcome"], job["teardown"])
    assert Decimal(cost["total_usd"]) == Decimal(job["cost_usd"]) == Decimal(listed["cost_usd"]) > 0

    checked = subprocess.run(
        [sys.executable, str(QUICKSTART / "check_adapter.py"), str(out)],
        env={**os.environ, "GPUJOB_AXOLOTL_ENV": env, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "lora_B and trained" in checked.stdout
    assert not gpujob.processes()
