"""Padding and chat template as a model's small files tell them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.axolotl_tokenizer import has_chat_template, pad_token


def folder(tmp_path: Path, **files: Any) -> Path:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return tmp_path


ADDED = {"0": {"content": "<|eot|>"}, "1": {"content": "<|finetune_right_pad_id|>"}}


@pytest.mark.parametrize(
    ("files", "token"),
    [
        ({"tokenizer_config": {"pad_token": "<p>", "eos_token": "</s>"}}, None),
        ({"tokenizer_config": {"pad_token": {"content": "<p>"}, "eos_token": "</s>"}}, None),
        ({"special_tokens_map": {"pad_token": "<p>"}, "tokenizer_config": {}}, None),
        ({"special_tokens_map": {"pad_token": "<p>"}, "tokenizer_config": {"x": None}}, None),
        ({"tokenizer_config": {"eos_token": "</s>"}}, "</s>"),
        ({"tokenizer_config": {"eos_token": {"content": "</s>"}, "pad_token": None}}, "</s>"),
        ({"tokenizer_config": {"eos_token": "<|eot|>", "added_tokens_decoder": ADDED}},
         "<|finetune_right_pad_id|>"),
        ({"tokenizer_config": {"eos_token": "</s>"},
          "tokenizer": {"added_tokens": [{"id": 3, "content": "[PAD]"}]}}, "[PAD]"),
        ({"tokenizer_config": {"pad_token": ""}}, None),
        ({}, None),
        ({"tokenizer_config": "{"}, None),
        ({"tokenizer_config": "[]", "tokenizer": "3"}, None),
        ({"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": [1]},
          "tokenizer": {"added_tokens": {"a": 1}}}, "</s>"),
    ],
)  # fmt: skip
def test_pad_token(tmp_path: Path, files: dict[str, Any], token: str | None) -> None:
    assert pad_token(folder(tmp_path, **files)) == token


def test_a_token_that_the_vocabulary_lacks_is_never_taken(tmp_path: Path) -> None:
    assert pad_token(folder(tmp_path, tokenizer={"added_tokens": [{"content": "<x>"}]})) is None


def test_chat_template(tmp_path: Path) -> None:
    assert not has_chat_template(tmp_path)
    assert has_chat_template(folder(tmp_path, tokenizer_config={"chat_template": "{{ x }}"}))
    folder(tmp_path, tokenizer_config={})
    (tmp_path / "chat_template.jinja").write_text("x", encoding="utf-8")
    assert has_chat_template(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert pad_token(tmp_path / "nope") is None
    assert not has_chat_template(tmp_path / "nope")
