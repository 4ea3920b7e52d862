"""Faults that users of other tools reported: each has a test of ours, or a reason why it has none.

tests/cases/reported_faults.csv: repository and number of the report, the fault in our words, the
test that re-creates it, and else why there is none. docs/faults.md lists the latter.
"""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path

import pytest

from tests.support import fault_table

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "cases" / "reported_faults.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
NAMED = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)(?:\[(.+)\])?")


def test_there_are_fifty_and_each_is_named_once() -> None:
    assert len({(row["repository"], row["number"]) for row in ROWS}) == len(ROWS) == 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['repository']}#{row['number']}")
def test_it_has_a_test_that_exists_or_a_reason(row: dict[str, str]) -> None:
    assert bool(row["test"]) != bool(row["why_none"]), row
    if row["why_none"]:
        document = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
        assert f"{row['repository']}#{row['number']}" in document
        return
    found = NAMED.fullmatch(row["test"])
    assert found, row["test"]
    tree = ast.parse((ROOT / found[1]).read_text(encoding="utf-8"))
    assert found[2] in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    if "runpod_faults" in found[1]:
        assert found[3] in {fault.name for fault in fault_table.ALL}
