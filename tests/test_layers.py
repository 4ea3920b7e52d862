"""Who may import whom: import-linter holds it, and a planted break shows that it would notice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)},
    )  # fmt: skip


def test_layers_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_planted_break_is_noticed(tmp_path: Path) -> None:
    for package in ("orchestrator", "providers", "jobs"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "jobs" / "planted.py").write_text("import providers.base\n")
    done = lint(tmp_path)
    assert done.returncode != 0, done.stdout
    assert "jobs.planted" in done.stdout
