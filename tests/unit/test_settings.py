"""`.env.example` lists each setting with its default, both readers agree, bad values are named."""

from __future__ import annotations

import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.locate import environment, locate
from orchestrator.policy import DEFAULT_LIMITS, Limits, limits_from
from orchestrator.settings import Settings, SettingsRefused, described, load_settings
from providers.runpod_settings import Waits, load_runpod_settings

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
LISTED = dict(
    re.findall(r"^# (GPUJOB_[A-Z0-9_]+)=([^#\n]*?)(?:  #.*)?$", EXAMPLE, flags=re.MULTILINE)
)
# Names that are no settings: set by gpujob for what it runs, or by tests alone.
NOT_SETTINGS = re.compile(
    r"GPUJOB_(INSTANCE|INSTANCE_DIR|MACHINE|MACHINE_\w+|FOLDER|POD_\w+|TEST_\w+|STUB|\w*_)$"
)


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    import os

    for name in list(os.environ):
        if name.startswith("GPUJOB_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_every_setting_is_listed():
    limits = {f"GPUJOB_{field.name.upper()}" for field in fields(Limits)}
    assert set(LISTED) >= set(described()) | limits


def test_nothing_else_is_listed():
    sources = "".join(
        path.read_text(encoding="utf-8")
        for room in ("orchestrator", "providers", "jobs")
        for path in (ROOT / room).rglob("*.py")
    )
    known = set(re.findall(r"GPUJOB_[A-Z0-9_]+", sources)) | set(described())
    known |= {f"GPUJOB_{field.name.upper()}" for field in fields(Limits)}
    assert set(LISTED) <= known


def test_every_name_in_the_source_is_listed():
    for room in ("orchestrator", "providers"):
        for path in (ROOT / room).rglob("*.py"):
            for name in re.findall(r"GPUJOB_[A-Z0-9_]+", path.read_text(encoding="utf-8")):
                assert name in LISTED or NOT_SETTINGS.match(name), f"{path}: {name}"


def test_the_defaults_shown_are_the_defaults():
    for field in fields(Limits):
        assert float(LISTED[f"GPUJOB_{field.name.upper()}"]) == field.default
    settings = load_settings()
    assert LISTED["GPUJOB_SWEEP"] == settings.sweep
    assert LISTED["GPUJOB_LOG_LEVEL"] == settings.log_level


def test_the_quick_reader_knows_the_pace_of_sweeps_and_who_rents(tmp_path):
    found = locate({}, tmp_path)
    assert (found.rents, found.sweep_s) == (False, DEFAULT_LIMITS.sweep_s)
    found = locate({"RUNPOD_API_KEY": "k", "GPUJOB_SWEEP_S": "5"}, tmp_path)
    assert (found.rents, found.sweep_s) == (True, 5.0)
    assert locate({"GPUJOB_SWEEP_S": "often"}, tmp_path).sweep_s == DEFAULT_LIMITS.sweep_s


def test_the_waits_of_runpod_are_settings(monkeypatch):
    listed = {field.name: f"GPUJOB_RUNPOD_{field.name.upper()}" for field in fields(Waits)}
    assert load_runpod_settings().waits == Waits()
    for name, variable in listed.items():
        assert float(LISTED[variable]) == getattr(Waits(), name)
        monkeypatch.setenv(variable, "7")
    assert load_runpod_settings().waits == Waits(7.0, 7.0, 7.0, 7.0, 7.0)


def test_an_example_uncommented_is_valid(tmp_path, monkeypatch):
    text = re.sub(r"^# (GPUJOB_\w+=[^#\n]+?)(  #.*)?$", r"\1", EXAMPLE, flags=re.MULTILINE)
    (tmp_path / ".env").write_text(text)
    assert load_settings().log_level == "info"
    assert limits_from(environment({}, tmp_path)) == DEFAULT_LIMITS


DOTENVS = [
    "",
    "GPUJOB_HOME=/srv/a",
    "GPUJOB_HOME='/srv/a b'  # a comment",
    'export GPUJOB_HOME="/srv/a"\nGPUJOB_DATABASE_URL=sqlite:////srv/x.db',
    "gpujob_home=/srv/lower",
    "GPUJOB_HOME=/srv/a\nGPUJOB_HOME=/srv/b",
    "OTHER=1\n\n# GPUJOB_HOME=/srv/commented\n",
    "GPUJOB_SWEEP=off",
    "GPUJOB_HOME=\nGPUJOB_DATABASE_URL=",
]
ENVIRONS = [
    {},
    {"GPUJOB_HOME": ""},
    {"GPUJOB_HOME": "/srv/env"},
    {"GPUJOB_DATABASE_URL": "postgresql://db/x"},
]


@pytest.mark.parametrize("dotenv", DOTENVS)
@pytest.mark.parametrize("environ", ENVIRONS)
def test_the_quick_reader_agrees(dotenv, environ, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text(dotenv)
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    settings, located = load_settings(), locate(environ, tmp_path)
    assert located.home == settings.home
    assert located.database_url == settings.database_url
    assert located.sweep == (settings.sweep == "on")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GPUJOB_LOCAL_PRICE_USD_PER_HOUR", "cheap"),
        ("GPUJOB_LOCAL_PRICE_USD_PER_HOUR", "-1"),
        ("GPUJOB_LOG_LEVEL", "loud"),
        ("GPUJOB_SWEEP", "maybe"),
    ],
)
def test_a_bad_value_is_named(name, text, monkeypatch):
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingsRefused, match=name) as refused:
        load_settings()
    assert text not in str(refused.value)


def test_money_is_decimal(monkeypatch):
    monkeypatch.setenv("GPUJOB_LOCAL_PRICE_USD_PER_HOUR", "0.1")
    assert load_settings().local_price_usd_per_hour == Decimal("0.1")


def test_given_values_win(monkeypatch):
    monkeypatch.setenv("GPUJOB_HOME", "/srv/env")
    assert Settings(home=Path("/srv/given")).home == Path("/srv/given")
