"""JobSpec, and the table in docs/job-file.md that must say the same."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.load_words import RESERVED, known_keys
from jobs.spec import FORMAT_COLUMNS, DataFormat, JobSpec, Method

DOC = (Path(__file__).parents[2] / "docs" / "job-file.md").read_text(encoding="utf-8")
LEAST: dict[str, Any] = {"name": "a", "model": "o/m", "method": "lora"}
# Words of the table for defaults that are no value.
NONE = (
    "none",
    "must be given",
    "as checkpoints",
    "as many as it takes",
    "the provider's",
    "ten over the run",
)
EMPTY = ("`[]`", "`{}`", "all that are set up", "any that fits")


def spec(**more: Any) -> JobSpec:
    return JobSpec.model_validate({**LEAST, **more})


def documented() -> dict[str, str]:
    """Return key -> default as the tables of the document say it."""
    rows = re.findall(r"^\| `([a-z_.]+)` \| [^|]+ \| ([^|]+) \|", DOC, re.MULTILINE)
    return {key: default.strip() for key, default in rows if key not in set(DataFormat)}


def keys() -> list[str]:
    sections = {name: names for name, names in known_keys().items() if name}
    top = [key for key in known_keys()[""] if key not in sections and key != "axolotl"]
    return [*top, *(f"{part}.{key}" for part, names in sections.items() for key in names)]


@pytest.mark.parametrize("key", keys())
def test_every_key_is_documented_with_its_default(key: str) -> None:
    said = documented()[key]
    default: Any = spec(data={"train": "x", "format": "chat"})
    for part in key.split("."):
        default = getattr(default, part)
    if key in LEAST or key in ("data.train", "data.format"):
        assert said == "must be given"
    elif key == "output":
        assert said == "`out`"
    elif default is None:
        assert said in NONE or said.startswith("chosen")
    elif default in ((), {}):
        assert said in EMPTY
    else:
        text = said.strip("`")
        assert type(default)(_value(text)) == default, (text, default)


def _value(text: str) -> Any:
    return (
        text == "true" if text in ("true", "false") else text if text.isalpha() else _number(text)
    )


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def test_nothing_else_is_documented() -> None:
    assert set(documented()) == {*keys(), "axolotl.config"}
    assert all(f"| `{form}` |" in DOC for form in FORMAT_COLUMNS)


def test_full_has_defaults_of_its_own() -> None:
    full = spec(method="full").training
    assert (full.learning_rate, full.optimizer) == (2e-5, "paged_adamw_8bit")
    given = spec(method="full", training={"learning_rate": 1e-3}).training
    assert (given.learning_rate, given.optimizer) == (1e-3, "paged_adamw_8bit")
    assert spec(method="qlora").training.learning_rate == 2e-4


def test_one_length() -> None:
    assert spec().training.epochs == 3.0
    steps = spec(training={"max_steps": 7}).training
    assert (steps.epochs, steps.max_steps) == (None, 7)
    with pytest.raises(ValidationError, match="give one of the two"):
        spec(training={"max_steps": 7, "epochs": 1})


def test_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().training.lora_r = 3


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("training", "lora_r", 0), ("training", "lora_r", True), ("training", "lora_r", 8.5),
        ("training", "learning_rate", 0), ("training", "learning_rate", 2),
        ("training", "learning_rate", float("nan")), ("training", "learning_rate", float("inf")),
        ("training", "sequence_len", 15), ("training", "epochs", 0), ("training", "epochs", -1),
        ("training", "max_steps", 0), ("training", "warmup_ratio", 1), ("training", "seed", -1),
        ("training", "lora_dropout", 1), ("training", "lora_targets", []),
        ("training", "lora_targets", [""]), ("training", "lora_targets", [3]),
        ("training", "nothing", 1),
        ("data", "validation", 0.51), ("data", "validation", -0.1), ("data", "validation", True),
        ("data", "validation", float("nan")), ("data", "validation", ""),
        ("data", "format", "chatml"),
        ("gpu", "count", 0), ("gpu", "count", True), ("gpu", "tier", "cheap"),
        ("gpu", "max_price_usd_per_hour", 0), ("gpu", "max_price_usd_per_hour", True),
        ("gpu", "types", [3]), ("gpu", "types", [""]),
        ("limits", "budget_usd", -1), ("limits", "budget_usd", float("inf")),
        ("limits", "hours", 0), ("limits", "hours", 721), ("limits", "idle_minutes", 0),
        ("limits", "boot_minutes", True), ("checkpoints", "keep", 0),
        ("checkpoints", "every_steps", 0),
    ],
)  # fmt: skip
def test_out_of_range_or_type(section: str, key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        spec(**{section: {key: value}})


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a/b", "ä", "a" * 64, "a\nb", "a\n"])
def test_names_that_are_none(name: str) -> None:
    if name == "a\n":
        assert spec(name=name).name == "a"  # what YAML's | leaves behind is taken off
        return
    with pytest.raises(ValidationError):
        spec(name=name)


def test_money_is_decimal_and_exact() -> None:
    limits = spec(limits={"budget_usd": 0.1}).limits
    assert limits.budget_usd == Decimal("0.1")
    price = spec(gpu={"max_price_usd_per_hour": 1.1}).gpu.max_price_usd_per_hour
    assert price == Decimal("1.1")
    assert isinstance(price, Decimal)


def test_one_word_is_a_list_of_one() -> None:
    assert spec(gpu={"types": "A100"}).gpu.types == ("A100",)
    assert spec(training={"lora_targets": "q_proj"}).training.lora_targets == ("q_proj",)
    assert spec(training={"lora_targets": "all-linear"}).training.lora_targets == "all-linear"


@pytest.mark.parametrize(
    ("form", "columns", "good"),
    [
        ("alpaca", {"instruction": "q"}, True),
        ("alpaca", {"prompt": "q"}, False),
        ("chat", {"role": "who", "content": "says", "messages": "talk"}, True),
        ("chat", {"from": "who"}, False),
        ("sharegpt", {"from": "who", "value": "says"}, True),
        ("segments", {"segments": "x"}, False),
        ("completion", {"text": "body"}, True),
    ],
)
def test_columns_belong_to_the_format(form: str, columns: dict[str, str], good: bool) -> None:
    data = {"train": "x", "format": form, "columns": columns}
    if good:
        assert spec(data=data).data.columns == columns
    else:
        with pytest.raises(ValidationError, match="column"):
            spec(data=data)


def test_axolotl_keys_stand_directly_below() -> None:
    axolotl = spec(axolotl={"config": "my.yml", "lora_r": 3, "keys": 5}).axolotl
    assert axolotl.config == Path("my.yml")
    assert axolotl.keys == {"lora_r": 3, "keys": 5}


def test_a_model_folder_is_an_absolute_path() -> None:
    assert spec(model="/m").model_folder == Path("/m")
    assert spec().model_folder is None


def test_reserved_names_are_not_keys() -> None:
    for name in RESERVED:
        assert name not in {*keys(), *known_keys()}, f"{name} is built now: take it off the list"


def test_every_format_has_columns() -> None:
    assert set(FORMAT_COLUMNS) == set(DataFormat)
    assert set(Method) == {"qlora", "lora", "full"}
