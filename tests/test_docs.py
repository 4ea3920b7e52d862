"""The documents keep up with the code: commands, settings, states, reasons, providers, examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.policy import Limits
from orchestrator.settings import Settings
from orchestrator.states import Outcome, Reason, State, Teardown
from scripts.make_docs import reference, with_diagram

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {
    p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in ROOT.glob("docs/**/*.md")
}
ALL = "\n".join([README, *DOCS.values()])


def commands() -> list[str]:
    import typer.main

    from orchestrator.cli import app

    return sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", commands())
def test_each_command_is_documented(command: str) -> None:
    assert re.search(rf"gpujob {command}\b", ALL), f"`gpujob {command}` is in no document"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_each_setting_is_in_the_example_environment(name: str) -> None:
    assert f"GPUJOB_{name.upper()}=" in (ROOT / ".env.example").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [f"GPUJOB_{n.upper()}" for n in Limits.__slots__])
def test_each_limit_is_in_the_example_environment(name: str) -> None:
    assert f"{name}=" in (ROOT / ".env.example").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*State, *Outcome, *Teardown, *Reason])
def test_each_word_of_the_vocabulary_is_documented(word: str) -> None:
    assert re.search(rf"\b{re.escape(word)}\b", ALL), f"{word} is in no document"


def test_the_generated_parts_are_true() -> None:
    assert with_diagram(README) == README, "run scripts/make_docs.py"
    assert reference() == DOCS["docs/reference.md"], "run scripts/make_docs.py"


@pytest.mark.parametrize("name", ["README.md", *DOCS])
def test_links_lead_somewhere(name: str) -> None:
    text = README if name == "README.md" else DOCS[name]
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"


def test_design_opens_with_the_glossary() -> None:
    assert DOCS["docs/design.md"].splitlines()[2] == "## Glossary"
