"""`make survive`: its parts exist, and nothing that failed or was left out counts as shown."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def survive():
    place = ROOT / "scripts" / "survive.py"
    spec = importlib.util.spec_from_file_location("survive", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["survive"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["survive"]


def test_every_part_is_there(survive):
    for _, path, only in survive.PARTS:
        assert only in (ROOT / path).read_text()


@pytest.mark.parametrize(
    ("last", "figures"),
    [
        ("3 passed in 2.00s", (3, 0, 0)),
        ("1 failed, 2 passed, 4 skipped in 1s", (2, 1, 4)),
        ("1 error in 1s", (0, 1, 0)),
        ("no tests ran in 0.1s", (0, 1, 0)),
        ("", (0, 1, 0)),
    ],
)
def test_what_counts(survive, last, figures):
    found = survive.counted(f"...\n{last}\n")
    assert (found.passed, found.failed, found.skipped) == figures


def test_a_failure_or_a_part_left_out_fails_it(survive, monkeypatch, capsys):
    results = {
        "good": survive.Counted(3),
        "bad": survive.Counted(1, 1),
        "out": survive.Counted(0, 0, 2),
    }
    monkeypatch.setattr(survive, "run", lambda path, _: results[path])
    monkeypatch.setattr(survive, "PARTS", tuple((name, name, "") for name in results))
    assert survive.main(["good"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1].startswith("survive: 1 parts, 3 passed, 0 failed")
    )
    assert survive.main(["bad"]) == 1
    assert survive.main(["out"]) == 1
    assert survive.main([]) == 1
    assert survive.main(["nothing"]) == 1
