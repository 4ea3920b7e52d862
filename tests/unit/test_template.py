"""`gpujob init` writes a file that loads, and so does every line of it that is commented out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.load import load_job
from jobs.load_words import known_keys
from jobs.spec import JobSpec, Training
from jobs.template import job_template

TEXT = job_template()
COMMENTED = [at for at, line in enumerate(TEXT.splitlines()) if re.match(r" *# *[a-z_]+:", line)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    (tmp_path / "train.jsonl").write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    return tmp_path


def load(folder: Path, text: str) -> JobSpec:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return load_job(folder / "job.yaml").spec


def test_it_loads_and_says_the_defaults(folder: Path) -> None:
    spec = load(folder, TEXT)
    assert spec.training == Training()
    assert spec.name == "my-job"


def uncommented(at: int) -> str:
    """Return the text with one line, and the section it belongs to, made real."""
    lines = TEXT.splitlines()
    for section in range(at, -1, -1):
        if re.match(r"# [a-z]+:", lines[section]):
            lines[section] = lines[section].removeprefix("# ")
            break
        if re.match(r"[a-z]+:", lines[section]):
            break
    lines[at] = lines[at].replace("  # ", "  ", 1) if at != section else lines[at]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("at", COMMENTED, ids=[TEXT.splitlines()[at] for at in COMMENTED])
def test_every_commented_line_loads(folder: Path, at: int) -> None:
    text = uncommented(at)
    if "config: my.yml" in text.splitlines()[at]:
        return  # names a file that is the person's own; tests/unit/test_load_own.py
    if "columns:" in text.splitlines()[at]:
        row = (folder / "train.jsonl").read_text("utf-8").replace("messages", "conversation")
        (folder / "train.jsonl").write_text(row, encoding="utf-8")
    load(folder, text)


@pytest.mark.parametrize("key", [k for k in known_keys()["training"] if k != "max_steps"])
def test_every_key_of_training_is_shown_at_its_default(key: str) -> None:
    (line,) = (line for line in TEXT.splitlines() if re.match(rf" *#? *{key}:", line))
    shown = line.split(":", 1)[1].split("#")[0].strip()
    default = getattr(Training(), key)
    if key in ("plugins", "eval_every_steps"):
        return  # an example: their default is to say nothing
    assert type(default)(shown == "true" if isinstance(default, bool) else shown) == default


def test_every_section_is_shown() -> None:
    for section in known_keys():
        assert not section or re.search(rf"^(# )?{section}:", TEXT, re.MULTILINE)


def test_names_are_filled_in() -> None:
    text = job_template(file="j.yaml", name="n", model="o/m", data="d.jsonl")
    assert "gpujob submit j.yaml" in text
    assert "\nname: n\n" in text
    assert "train: d.jsonl" in text
