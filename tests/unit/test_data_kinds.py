"""Several files of each kind of bad input: code, line and verdict, whatever else stands there.

tests/cases/data_kinds.jsonl: name, text (or base64, or text with {LONG} for 3,000 words), the
options, and the findings wanted as [code, line].
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.data import gate
from jobs.data.codes import CODES
from jobs.data.options import Options

FILE = Path(__file__).parents[1] / "cases" / "data_kinds.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
LONG = "word " * 3000
#: What may be said beside what is wanted.
ASIDE = {
    "array_in_jsonl",
    "role_alias",
    "empty_response",
    "exact_duplicate",
    "null_content_with_tool_calls",
}


def content(case: dict[str, Any]) -> bytes:
    if "base64" in case:
        return base64.b64decode(case["base64"])
    text = case["text"] if "text" in case else case["repeat"].replace("{LONG}", LONG)
    return bytes(text, "utf-8")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_code_line_and_verdict(tmp_path, case):
    path = tmp_path / case["name"]
    path.write_bytes(content(case))
    report = gate.check([path], Options(with_pii=False, **case.get("options", {})))
    found = [(f.code, f.line) for f in report.findings]
    wanted = [tuple(pair) for pair in case["want"]]
    assert set(wanted) <= set(found)
    assert {code for code, _ in found} - ASIDE <= {code for code, _ in wanted}
    assert report.refused is any(CODES[code][0] == "error" for code, _ in wanted)
    for finding in report.findings:
        assert finding.severity == CODES[finding.code][0]
        assert finding.message
        assert finding.remedy
