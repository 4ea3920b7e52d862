"""The whole job on the simulated RunPod: the real command line, real pods, the stub as trainer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import Cloud, axolotl_mounts, cloud
from tests.support.gpujob_process import Gpujob

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]

FAST = {
    "GPUJOB_POLL_REMOTE_S": "0.3",
    "GPUJOB_WATCH_REMOTE_S": "1",
    "GPUJOB_SITE_REMOTE_S": "0.2",
    "GPUJOB_SITE_RETRY_S": "0.3",
    "GPUJOB_REQUESTS_PER_MINUTE": "600",
    "GPUJOB_RUNPOD_LIST_LAG_S": "0.2",
    "GPUJOB_RUNPOD_BOOT_TIMEOUT_S": "90",
    "GPUJOB_SETTLE_GAP_S": "0.3",
}
# An image's Python, as far as it is asked: Axolotl's version, and whether PyTorch has the GPUs.
PYTHON = """\
#!/bin/sh
case "$2" in
  *version*axolotl*) echo 0.21.0 ;;
  *torch.cuda*) echo '{"cuda": "13.0", "available": true, "count": 1}' ;;
  *) exec %s "$@" ;;
esac
"""
VENV = "/workspace/axolotl-venv"  # where an image brings its own


class World:
    """The simulator, and a gpujob that is set up for it."""

    def __init__(self, folder: Path, running: Cloud, tool: Gpujob) -> None:
        self.folder = folder
        self.cloud = running
        self.tool = tool

    def job(self, **gpu: Any) -> Path:
        path = self.tool.write_job()
        section = json.dumps({"providers": ["runpod"], "types": ["L4"], **gpu})
        text = path.read_text().replace("gpu: {providers: [local]}", f"gpu: {section}")
        path.write_text(text)
        return path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tool = Gpujob(tmp_path, **FAST)
    tool.write_job()
    python = tool.stub / "bin" / "python"
    python.unlink()
    python.write_text(PYTHON % sys.executable)
    python.chmod(0o755)
    mounts = [f"--mount={tool.stub}:{VENV}", *axolotl_mounts(Path(sys.prefix))]
    with cloud(tmp_path / "cloud", *mounts) as running:
        tool.environ |= {"RUNPOD_API_KEY": running.key, "RUNPOD_API_BASE_URL": running.url}
        tool.environ.pop("GPUJOB_AXOLOTL_ENV", None)
        yield World(tmp_path, running, tool)
        tool.end_all()


def test_the_whole_job(world: World) -> None:
    foreign = world.cloud.foreign()
    done = world.tool.run("submit", str(world.job()), "--yes")
    assert done.code == 0, done.out + done.err
    assert "training SUCCEEDED   machine GONE (proven " in done.out
    assert (world.tool.out / "adapter_model.safetensors").exists() or list(
        world.tool.out.rglob("adapter_model.safetensors")
    )
    assert [pod["id"] for pod in world.cloud.pods()] == [foreign]
    (create,) = world.cloud.requests("create")
    assert create["status"] == 201
    assert "trusted on first use" not in done.out + done.err
    status = world.tool.run("status", "stub-job", "--json", "--events").json()
    (attempt,) = status["job"]["attempts"]
    assert attempt["provider"] == "runpod"
    assert attempt["absence_reads"] == 2
    told = json.dumps(status) + done.out + done.err
    assert world.cloud.key not in told
