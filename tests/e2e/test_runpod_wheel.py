"""The built wheel in an empty environment, with its locked requirements alone: the whole job.

No checkout is on its path. A peer's wheel lacked the file that ends its machines.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.faulty import stage
from tests.support.gpujob_process import ROOT

pytestmark = [
    pytest.mark.e2e, pytest.mark.prove, pytest.mark.timeout(1800),
    pytest.mark.system("openssh-server"),
]  # fmt: skip
LIMIT_S = 900.0


def installed(folder: Path) -> str:
    """Return the Python of a new environment that holds the wheel and what it requires."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=LIMIT_S)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = str(ROOT / "requirements" / "base.txt")
    for words in (["--require-hashes", "-r", lock], ["--no-deps", str(wheel)]):
        done = subprocess.run(
            [*pip, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_alone_does_the_whole_job(tmp_path: Path) -> None:
    python = installed(tmp_path / "wheel")
    with stage(tmp_path / "job") as (running, found, path):
        foreign = running.foreign()
        found.python = python
        del found.environ["PYTHONPATH"]
        where = found.finish(found.start(by=["-c", "import orchestrator as o; print(o.__file__)"]))
        assert str(tmp_path / "wheel") in where.out, where
        done = found.run("submit", str(path), "--yes", timeout_s=LIMIT_S)
        assert done.code == 0, done.out + done.err
        assert "training SUCCEEDED   machine GONE (proven " in done.out
        assert list(found.out.rglob("adapter_model.safetensors"))
        assert [pod["id"] for pod in running.pods()] == [foreign]
        (create,) = running.requests("create")
        assert create["status"] == 201
