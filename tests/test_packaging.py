"""The wheel holds what it needs, owns its names, and runs without development tools."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return next(out.glob("*.whl"))


def test_each_top_level_name_has_one_owner() -> None:
    owners = importlib.metadata.packages_distributions()
    for name in ("orchestrator", "providers", "jobs"):
        assert set(owners.get(name, ["gpujob"])) == {"gpujob"}, (name, owners[name])


def test_the_wheel_carries_every_file_that_the_code_reads(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "orchestrator", "providers", "jobs"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    missing = set(tracked) - inside
    assert not missing, missing
    assert not {n for n in inside if n.startswith(("tests/", "docs/", "benches/"))}


def test_the_wheel_runs_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    """Unpacked outside the checkout, with only what an installation brings, the help answers."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    with zipfile.ZipFile(wheel) as z:
        z.extractall(tmp_path / "site")
    for command in (["--help"], ["schema"], ["init", str(tmp_path / "job.yaml")]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "orchestrator", *command],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
            env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() or done.stderr.strip()
    assert (tmp_path / "job.yaml").is_file()
