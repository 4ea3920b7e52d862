"""What a job left: listed as it is, and copied only where it is what it was."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import cli_artifacts
from orchestrator.attempt import Push
from orchestrator.cli_artifacts import Left, copy_result, lines_of
from orchestrator.exits import Refused

FILES = {"adapter_config.json": b"{}", "sub/adapter_model.safetensors": b"w" * 100}


def left(folder: Path, *pushes: Push) -> Left:
    listed = tuple(
        (name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items()
    )
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    attempt: Any = SimpleNamespace(folder=str(folder), files=listed, pushes=pushes, number=1)
    record: Any = SimpleNamespace(new=SimpleNamespace(id="abc123", name="x", pushes=()))
    return Left(record, [attempt], attempt)


def test_a_copy_from_home(tmp_path):
    job = left(tmp_path / "out")
    assert copy_result(job, tmp_path / "copy") == str(tmp_path / "out")
    for name, data in FILES.items():
        assert (tmp_path / "copy" / name).read_bytes() == data
    assert not (tmp_path / "copy.part").exists()


def test_what_lies_in_the_way_stays(tmp_path):
    job = left(tmp_path / "out")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("x")
    with pytest.raises(Refused, match="is not empty"):
        copy_result(job, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]


@pytest.mark.parametrize("how", ["changed", "gone", "symlink"])
def test_a_result_that_is_no_longer_whole_is_not_copied(tmp_path, how):
    job = left(tmp_path / "out", Push("hf://a/b", where="hf://a/b"))
    path = tmp_path / "out" / "adapter_config.json"
    path.unlink()
    if how == "changed":
        path.write_bytes(b"[]")
    if how == "symlink":
        (tmp_path / "elsewhere").write_bytes(b"{}")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="nowhere whole") as caught:
        copy_result(job, tmp_path / "copy")
    assert caught.value.code == 7
    assert "hf://a/b" in str(caught.value)
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "copy.part").exists()


def test_the_store_serves_where_home_does_not(tmp_path, monkeypatch):
    job = left(tmp_path / "out", Push("s3://b/x", where="s3://b/x/x-abc123"))
    (tmp_path / "out" / "adapter_config.json").unlink()
    monkeypatch.setattr(cli_artifacts, "_from", lambda *_: "")
    assert copy_result(job, tmp_path / "copy") == "s3://b/x/x-abc123"


def test_the_screen():
    body = {
        "job": {"id": "abc123", "name": "x"},
        "result": None,
        "places": [{"target": "s3://b/x", "state": "failed", "where": ""}],
        "checkpoints": [{"step": 10, "bytes": 2000, "where": "/h/checkpoint-10"}],
    }
    lines = lines_of(body)
    assert "none came home" in lines[1]
    assert "s3://b/x" in lines[2]
    assert "step 10" in lines[3]
