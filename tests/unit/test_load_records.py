"""The look at the first record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.load_records import first_record, lacking, recognise
from jobs.spec import Data, DataFormat

TURN = {"role": "user", "content": "x"}
SAID = {"from": "human", "value": "x"}


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"messages": [TURN]}, DataFormat.CHAT),
        ({"messages": [SAID]}, DataFormat.SHAREGPT),
        ({"conversations": [SAID], "id": 3}, DataFormat.SHAREGPT),
        ({"conversations": [TURN]}, DataFormat.CHAT),
        ({"messages": []}, DataFormat.CHAT),
        ({"messages": "x"}, DataFormat.CHAT),
        ({"instruction": "a", "output": "b"}, DataFormat.ALPACA),
        ({"prompt": "a", "completion": "b"}, DataFormat.PROMPT_COMPLETION),
        ({"text": "a"}, DataFormat.COMPLETION),
        ({"segments": []}, DataFormat.SEGMENTS),
        ({"text": "a", "messages": [TURN]}, DataFormat.CHAT),
        ({"question": "a"}, None),
        ({}, None),
    ],
)
def test_recognise(record: dict[str, Any], form: DataFormat | None) -> None:
    assert recognise(record) == form


def test_lacking() -> None:
    data = Data.model_validate({"format": "alpaca", "columns": {"output": "answer"}})
    assert lacking({"instruction": "a", "answer": "b"}, data) == []
    assert lacking({"instruction": "a", "output": "b"}, data) == ["answer"]
    assert lacking({}, Data()) == []


@pytest.mark.parametrize(
    ("name", "content", "record"),
    [
        ("a.jsonl", b'{"a": 1}\n{"b": 2}\n', {"a": 1}),
        ("a.jsonl", b'\xef\xbb\xbf\n\n{"a": 1}', {"a": 1}),
        ("a.json", b'[{"a": 1}, {"b"', {"a": 1}),
        ("a.json", b'{"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ("a.csv", b"a,b\n1,2\n", {"a": "1", "b": "2"}),
        ("a.csv", b"a,b\n", None),
        ("a.txt", b"hello", {"text": "hello"}),
        ("a.parquet", b"PAR1", None),
        ("a.jsonl", b"[1, 2]", None),
        ("a.jsonl", b"not json", None),
        ("a.jsonl", b"\xff\xfe\x00", None),
        ("a.jsonl", b"[" * 100_000, None),
        ("a.jsonl", b"", None),
    ],
)
def test_first_record(
    tmp_path: Path, name: str, content: bytes, record: dict[str, Any] | None
) -> None:
    (tmp_path / name).write_bytes(content)
    assert first_record(tmp_path / name) == record


def test_a_record_longer_than_the_look_is_left_to_the_data_gate(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * (5 << 20)}), encoding="utf-8")
    assert first_record(path) is None


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    assert first_record(tmp_path / "a.jsonl") is None
