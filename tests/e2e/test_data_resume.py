"""A hundred thousand records, prepared by the command line, killed wherever it may be."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benches.data_speed import generate

ROOT = Path(__file__).parents[2]
RECORDS = 100_000
FILES = {"train.jsonl", "validation.jsonl", "changes.jsonl", "pii_report.csv", "manifest.json"}
pytestmark = [pytest.mark.e2e, pytest.mark.prove, pytest.mark.timeout(3600)]


def start(source: Path, out: Path) -> subprocess.Popen[bytes]:
    words = ["data", "prepare", str(source), "--out", str(out), "--mask", "--json"]
    with out.with_suffix(".stdout").open("wb") as stdout:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def answer(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(out.with_suffix(".stdout").read_text(encoding="utf-8"))
    return found


def hashes(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def kill_when(child: subprocess.Popen[bytes], due: Callable[[], bool]) -> bool:
    """Kill the whole group once `due`; return whether it still ran then."""
    while child.poll() is None:
        if due():
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return True
        time.sleep(0.01)
    return False


def test_killed_at_any_stage_it_comes_to_the_same_bytes(tmp_path):
    source = tmp_path / "in.jsonl"
    generate(source, RECORDS, 7)
    clean, out = tmp_path / "clean", tmp_path / "out"
    assert start(source, clean).wait() == 0
    first = hashes(clean)
    assert first.keys() == FILES

    work = tmp_path / ".out.work"
    journal = work / "journal"

    def lines(n: int) -> Callable[[], bool]:
        return lambda: journal.exists() and journal.read_bytes().count(b"\n") >= n

    chunks = 0
    whole = json.loads((clean / "manifest.json").read_text(encoding="utf-8"))["counts"]["read"]
    assert whole == RECORDS
    for stage in (lines(3), lines(40), (out / ".train.jsonl.part").exists):
        assert kill_when(start(source, out), stage)
        assert not (out / "manifest.json").exists()
        done = journal.read_bytes().count(b"\n")
        assert done >= chunks  # what was committed is not done again
        chunks = done
    assert start(source, out).wait() == 0
    assert hashes(out) == first
    assert not work.exists()

    moments = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert start(source, out).wait() == 0
    assert answer(out)["unchanged"] is True
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == moments
