"""`gpujob rehearse`: every failure comes to the end and the exit code that the real one would."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import cli_rehearse
from orchestrator.exits import Exit, Refused
from orchestrator.rehearsal import SCENES

JOB = Path(__file__).parents[2] / "examples" / "lora" / "job.yaml"
ENDS: dict[str, tuple[int, str]] = {
    "none": (0, "training SUCCEEDED machine GONE"),
    "sold-out": (0, "attempt 2 is intended"),
    "create-lost": (0, "was found under our name, and adopted"),
    "key-refused": (3, "refused: "),
    "dearer": (3, "PRICE_ABOVE_QUOTE"),
    "never-reachable": (4, "BOOT_TIMEOUT"),
    "machine-lost": (0, "INSTANCE_LOST"),
    "provider-down": (0, "training SUCCEEDED machine GONE"),
    "out-of-memory": (4, "CUDA out of memory"),
    "diverged": (4, "DIVERGED"),
    "end-refused": (0, "STILL BILLING"),
    "end-lie": (0, "machine GONE"),
}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(cli_rehearse, "out", lines.extend)
    return lines


@pytest.mark.parametrize("name", list(SCENES))
def test_each_failure_is_met_as_the_real_one(name: str, said: list[str]) -> None:
    code, words = ENDS[name]
    assert cli_rehearse.rehearse(JOB, fault=name, changes=[]) == code, "\n".join(said)
    text = " ".join(" ".join(said).split())
    assert words in text
    assert "Nothing is rented" in said[0]
    assert "machine GONE" in text or code == Exit.NO_OFFER


def test_a_lie_about_the_end_is_caught_by_a_second_request(said: list[str]) -> None:
    cli_rehearse.rehearse(JOB, fault="end-lie", changes=[])
    assert "\n".join(said).count("asking for the end of") >= 2


def test_the_failures_are_listed(said: list[str]) -> None:
    assert cli_rehearse.scenes() == 0
    assert [line.split()[0] for line in said] == list(SCENES)


def test_an_unknown_failure_and_a_job_that_fits_nothing_are_refused(said: list[str]) -> None:
    with pytest.raises(Refused, match="earthquake") as refused:
        cli_rehearse.rehearse(JOB, fault="earthquake", changes=[])
    assert refused.value.code == Exit.USAGE
    with pytest.raises(Refused) as refused:
        cli_rehearse.rehearse(JOB, fault="none", changes=["gpu.max_price_usd_per_hour=0.01"])
    assert refused.value.code == Exit.NO_OFFER
    assert said == []
