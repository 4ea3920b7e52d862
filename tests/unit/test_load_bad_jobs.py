"""Every bad job file gives exactly the words of expected.yml, and nothing is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobs.findings import JobFileError
from jobs.load import load_job

CASES = Path(__file__).parents[1] / "cases" / "bad_jobs"
EXPECTED: dict[str, list[str]] = yaml.safe_load((CASES / "expected.yml").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_says_what_is_wrong(name: str) -> None:
    with pytest.raises(JobFileError) as caught:
        load_job(CASES / f"{name}.yaml")
    said = [str(f).replace(str(CASES), "<here>") for f in caught.value.findings]
    assert [line.removeprefix("<here>/") for line in said] == EXPECTED[name]
    assert str(caught.value).count("\n") == len(EXPECTED[name]) - 1


def test_every_case_is_listed() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == set(EXPECTED)


def test_every_finding_names_field_or_line_and_has_a_remedy() -> None:
    without = []
    for name in EXPECTED:
        with pytest.raises(JobFileError) as caught:
            load_job(CASES / f"{name}.yaml")
        for finding in caught.value.findings:
            assert finding.field or finding.line or name in ("empty", "only_comments"), finding
            if not finding.remedy:
                without.append(finding.message)
    # What says itself what is needed.
    for message in without:
        assert any(
            word in message
            for word in ("out of range", "is not", "is neither", "needed", "no such file", "it has")
        ), message
