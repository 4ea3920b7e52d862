"""The token for a gated model: what it may do, and that the trainer alone gets to see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import doctor
from orchestrator.doctor import Level
from orchestrator.hub_token import scope_in, trainer_secrets
from tests.hub.server import Hub
from tests.support.agent_driver import Attempt

TOKEN = "hf_sentinelsentinelsentinel"


def who(role: str, **fine: Any) -> Any:
    access = {"role": role, **({"fineGrained": fine} if fine else {})}
    return {"auth": {"accessToken": access}}


@pytest.mark.parametrize(
    ("answer", "scope"),
    [
        (who("read"), "read"),
        (who("write"), "write"),
        (who("fineGrained", scoped=[{"permissions": ["repo.content.read"]}]), "read"),
        (who("fineGrained", scoped=[{"permissions": ["repo.write"]}]), "write"),
        (who("fineGrained", scoped=[], **{"global": ["discussion.write"]}), "write"),
        (who("fineGrained"), "unknown"),
        (who("god"), "unknown"),
        ({"auth": None}, "unknown"),
        ([], "unknown"),
    ],
)
def test_scopes(answer: Any, scope: str) -> None:
    assert scope_in(answer) == scope


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    hub = Hub()
    for name, value in hub.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GPUJOB_MODEL_TOKEN", raising=False)
    yield hub
    hub.close()


def test_doctor_warns_of_a_token_that_may_write(hub, monkeypatch):
    check = doctor._model_token()
    assert check.level is Level.WARN
    assert "HF_TOKEN may write" in check.found
    assert "GPUJOB_MODEL_TOKEN" in check.remedy
    monkeypatch.setenv("GPUJOB_MODEL_TOKEN", "hf_readreadreadreadread")
    check = doctor._model_token()
    assert (check.level, check.found) == (Level.OK, "GPUJOB_MODEL_TOKEN may only read")
    assert trainer_secrets() == {"HF_TOKEN": "hf_readreadreadreadread"}
    monkeypatch.setenv("GPUJOB_MODEL_TOKEN", "hf_nobody")
    check = doctor._model_token()
    assert check.level is Level.WARN
    assert "hf_nobody" not in check.found + check.remedy


def test_no_token_is_no_fault(hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert doctor._model_token().level is Level.OK
    assert trainer_secrets() == {}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
def test_the_trainer_alone_gets_it(tmp_path):
    attempt = Attempt(tmp_path, steps=2, hold_at_step=1)
    order = tmp_path / "order.json"
    order.write_text(json.dumps(attempt.order))
    try:
        given = json.dumps({"HF_TOKEN": TOKEN}).encode()
        attempt.command("start", str(order), "--secrets", input=given)
        attempt.until("loss")
        assert attempt.command("start", str(order), "--secrets", input=given)["already"]
        claim = attempt.claim()
        holders = {
            process.pid for process in attempt.processes() if TOKEN in process.environ().values()
        }
        everybody = {process.pid for process in attempt.processes()}
        assert holders
        assert not holders & {claim["pid"], claim["keeper"]}
        assert {claim["pid"], claim["keeper"]} <= everybody
        assert not any(TOKEN in " ".join(p.cmdline()) for p in attempt.processes())
        assert not [
            p for p in tmp_path.rglob("*") if p.is_file() and TOKEN in p.read_text("latin-1")
        ]
        assert (
            "no JSON"
            in attempt.command("start", str(order), "--secrets", input=b"", expect=2)["error"]
        )
    finally:
        attempt.clear()
