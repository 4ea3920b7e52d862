"""Style that a linter does not hold: lengths, leftovers, and what must never be in the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE_LINES_MAX = 400
TEST_LINES_MAX = 500  # tables of cases read better in one piece
FUNCTION_LINES_MAX = 70
BINARY = {".png", ".gz", ".zst", ".parquet", ".safetensors", ".ico"}
# Cases are other people's bytes (logs, broken inputs); locks are written by a tool.
VERBATIM = (
    "tests/cases/",
    "requirements/",
    "docs/screens/",
    "docs/evidence/",
    "examples/quickstart/",
)
LEFTOVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
# Package registries are named by the installer's own configuration, never by us; a path of one
# developer's machine helps nobody else. Split, so that this file passes its own test.
FORBIDDEN = re.compile(
    r"py" + r"pi\.org|python" + r"hosted\.org|registry\.np" + r"mjs|deb\.deb" + r"ian\.org|"
    r"(?:^|[\s'\"=(:])/(?:wo" + r"rk|ro" + r"ot)/[\w.]",
    re.MULTILINE,
)


def tracked() -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    return sorted(n for n in out.decode().split("\0") if n and (ROOT / n).is_file())


FILES = tracked()
PYTHON = [n for n in FILES if n.endswith(".py") and not n.startswith("tests/cases/")]
TEXT = [n for n in FILES if Path(n).suffix not in BINARY]


@pytest.mark.parametrize("name", PYTHON)
def test_python_files_are_short_enough(name: str) -> None:
    lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    limit = TEST_LINES_MAX if name.startswith("tests/") else FILE_LINES_MAX
    assert lines <= limit, f"{name}: {lines} lines, at most {limit}"


@pytest.mark.parametrize("name", PYTHON)
def test_functions_are_short_enough(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{name}:{node.lineno} {node.name}: {length} lines"


@pytest.mark.parametrize("name", [n for n in TEXT if not n.startswith(VERBATIM)])
def test_no_leftovers(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = [text.count("\n", 0, m.start()) + 1 for m in LEFTOVER.finditer(text)]
    assert not found, f"{name}: leftover markers on lines {found}"


@pytest.mark.parametrize("name", TEXT)
def test_nothing_forbidden(name: str) -> None:
    text = (ROOT / name).read_bytes().decode("utf-8", "replace")
    found = [text.count("\n", 0, m.start()) + 1 for m in FORBIDDEN.finditer(text)]
    assert not found, f"{name}: a registry's host or a private path on lines {found}"


@pytest.mark.parametrize("bad", ["see https://py" + "pi.org/simple", "open('/ro" + "ot/x')"])
def test_the_pattern_bites(bad: str) -> None:
    assert FORBIDDEN.search(bad)


def test_every_public_function_says_what_it_returns() -> None:
    silent = [
        f"{name}:{node.lineno} {node.name}"
        for name in PYTHON
        if name.startswith(("orchestrator/", "providers/", "jobs/"))
        for node in ast.parse((ROOT / name).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent, silent
