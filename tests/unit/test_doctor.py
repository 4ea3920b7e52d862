"""What `gpujob doctor` says of an account: key missing or wrong, money left or unknown, alarms."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.alarm_send import Channels
from orchestrator.doctor import Check, Level, run_checks
from orchestrator.home import open_home
from providers.runpod import RunPodProvider
from tests.support.clocks import VirtualClock
from tests.support.tiny_http import Answer, tiny_server

GPU = {
    "id": "NVIDIA L4", "name": "L4", "memory": 24, "secure": True, "price": {"secure": 0.49},
    "maxCount": {"secure": 8}, "availability": "HIGH",
}  # fmt: skip


def checked(
    folder: Path, answer: Answer | None, balance: Decimal | None = None
) -> dict[str, Check]:
    """Return the checks by name; answer None: no provider is set up."""
    home, nobody = open_home(folder / "home"), Channels(None, None, None)
    if answer is None:
        return {check.name: check for check in run_checks(home, {}, nobody)}
    with tiny_server(lambda _: answer) as server:
        runpod = RunPodProvider("rpa_wrong", server.url, VirtualClock(), balance=lambda *_: balance)
        return {check.name: check for check in run_checks(home, {"runpod": runpod}, nobody)}


def test_a_key_that_is_missing_is_named_and_nobody_would_hear(tmp_path: Path) -> None:
    found = checked(tmp_path, None)
    assert found["provider runpod"].level is Level.WARN
    assert "RUNPOD_API_KEY is not set" in found["provider runpod"].found
    assert "nobody would hear" in found["alarm"].found
    assert "balance runpod" not in found


def test_a_key_that_is_refused_fails_and_is_never_shown(tmp_path: Path) -> None:
    found = checked(tmp_path, Answer(401, {"title": "Unauthorized", "status": 401}))
    assert found["provider runpod"].level is Level.FAIL
    assert "RUNPOD_API_KEY" in found["provider runpod"].remedy
    assert "rpa_wrong" not in "".join(check.found + check.remedy for check in found.values())


@pytest.mark.parametrize(
    ("left", "level", "words"),
    [
        (Decimal("12.5"), Level.OK, "$12.50 left"),
        (Decimal(0), Level.FAIL, "nothing can be rented"),
        (None, Level.WARN, "unknown"),
    ],
)
def test_the_balance_is_told_and_unknown_is_no_failure(
    tmp_path: Path, left: Decimal | None, level: Level, words: str
) -> None:
    found = checked(tmp_path, Answer(200, {"gpus": [GPU]}), left)
    assert found["provider runpod"].level is Level.OK
    assert found["balance runpod"].level is level
    assert words in found["balance runpod"].found
