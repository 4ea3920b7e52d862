"""docs/json.md lists every key of every `--json` answer, and no other; money and NaN are safe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.architectures import find
from jobs.sizing import Tokens
from jobs.spec import Limits
from jobs.workload import Workload
from orchestrator.cli_artifacts import file_body
from orchestrator.cli_probe import Probed, probed_body
from orchestrator.doctor import Check, Level, doctor_document
from orchestrator.exits import Exit
from orchestrator.match import Matching, Rejected, Requirement, match
from orchestrator.planning import Change, Need
from orchestrator.probe import Measured
from orchestrator.report_cost import cost_document
from orchestrator.report_json import (
    SCHEMA,
    document,
    dumps,
    event_document,
    finite,
    ps_document,
    push_document,
    refusal_document,
    status_document,
    submit_document,
)
from orchestrator.report_plan import plan_document, size_body
from orchestrator.report_sweep import Answer, providers_document, sweep_document
from orchestrator.sized import Sized
from orchestrator.store_quick import open_quick
from orchestrator.submit import Plan
from orchestrator.sweep import Finding, Kind, SweepReport
from orchestrator.views import PushView
from providers.base import Traits
from tests.support.filled_store import OFFER, T0, fill

NOW = T0 + 2_000.0
DOC = Path(__file__).parents[2] / "docs" / "json.md"
OPAQUE = {"spec", "data", "unreachable"}  # objects whose keys are not ours

FILE = file_body(("adapter_config.json", 1, "0" * 64))
ARTIFACTS: dict[str, Any] = {
    "job": {"id": "abc123", "name": "x"},
    "result": {"attempt": 1, "folder": "/out", "is_there": True, "files": [FILE]},
    "places": [{"target": "s3://b/x", "state": "failed", "where": ""}],
    "checkpoints": [{"step": 1, "bytes": 2, "where": "/home"}],
}
DOWNLOAD: dict[str, Any] = {
    "job": {"id": "abc123"}, "folder": "/x", "from": "/out", "files": [FILE],
}  # fmt: skip


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> dict[str, dict[str, Any]]:
    home, store, ids = fill(tmp_path_factory.mktemp("home"))
    store.close()
    quick = open_quick(home.database_url)
    assert quick is not None
    place = PushView("s3://bucket/x", "failed", "", "it is full", "Make room")
    jobs = [replace(job, pushes=(place,)) for job in quick.jobs(now=NOW)]
    billing = replace(quick.job(ids["billing"], now=NOW), pushes=(place,))
    status = status_document(billing, NOW)
    status["events"] = [event_document(entry) for entry in quick.events(billing.id)]
    limits = Limits(budget_usd=Decimal(8))
    spec: Any = SimpleNamespace(name="x", limits=limits)
    tokens = Tokens(1_000_000, 10, 900_000, 100, "counted")
    sized = Sized(Workload(find("Llama-3.1-8B"), micro_batch_size=2), tokens)
    quote = match(Requirement(sized=sized), [OFFER]).quotes[0]
    plan = Plan(
        spec,
        Matching((quote,), (Rejected(OFFER, "too dear"),)),
        {"vast": "timeout"},
        ("a note",),
        need=Need(Requirement(sized=sized), ("assumed",)),
        changes=(Change("rank 8", quote, 1.0),),
    )
    met = Measured(30, 2.0, 500.0, 20.0)
    probed = Probed(
        "abc123", OFFER, "SUCCEEDED", met, 480.0, 19.0, 1.5, Decimal("1.1"), Decimal("0.1")
    )
    traits = Traits(1.0, 2.0, 3.0, proves_absence=True, self_destruct=None)
    provider: Any = SimpleNamespace(traits=traits)
    answer = Answer("runpod", provider, (OFFER,), "")
    found = {
        "ps": ps_document(jobs, NOW, quick.strays()),
        "status": status,
        "submit": submit_document(billing, NOW, detached=True),
        "push": push_document(billing, NOW),
        "plan": plan_document(plan, "base_model: x\n", NOW),
        "size": document("size", NOW, model="x", **size_body(plan)),
        "probe": document("probe", NOW, went_on="abc123", probes=[probed_body(probed)]),
        "cost": cost_document(quick.totals("job", now=NOW), {}, "job", NOW),
        "sweep": sweep_document(SweepReport([Finding(Kind.ORPHAN, "runpod", "x")]), NOW),
        "doctor": doctor_document([Check("python", Level.OK, "3.11")], NOW),
        "providers": providers_document([answer], NOW),
        "artifacts": document("artifacts", NOW, **ARTIFACTS),
        "download": document("download", NOW, **DOWNLOAD),
        "error": refusal_document("no", Exit.USAGE, NOW, remedy="do"),
    }
    quick.close()
    return found


def _keys(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict) and path.rpartition(".")[2] not in OPAQUE:
        found: set[str] = set()
        for key, item in value.items():
            found |= _keys(item, f"{path}.{key}" if path else key)
        return found
    if isinstance(value, list):
        assert value, f"{path}: an empty list shows no keys"
        return set().union(*(_keys(item, f"{path}[]") for item in value))
    return {path}


def _documented() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for part in re.split(r"^## ", DOC.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        kind = part.split("\n", 1)[0].strip()
        found[kind] = set(re.findall(r"^\| `([^`]+)` \|", part, flags=re.MULTILINE))
    frame = {"schema", "kind", "at_unix_s"}
    job = {f"job.{key.removeprefix('jobs[].')}" for key in found["ps"] if key.startswith("jobs[]")}
    billing = {key for key in found["ps"] if key.startswith("still_billing")}
    found["status"] |= frame | job | billing
    sizes = ("footprint", "requirement", "quotes", "rejected", "levers", "changes", "managed")
    found["size"] |= {key for key in found["plan"] if key.startswith((*sizes, "list_prices"))}
    without = {key for key in found["status"] if not key.startswith("events[]")}
    found["submit"] |= without
    found["push"] |= without
    return found


def test_every_kind_is_documented(documents):
    assert set(_documented()) == set(documents)


@pytest.mark.parametrize(
    "kind",
    [
        "ps",
        "status",
        "submit",
        "push",
        "plan",
        "size",
        "probe",
        "cost",
        "sweep",
        "doctor",
        "providers",
        "error",
    ],
)
def test_every_key_is_documented_and_printed(documents, kind):
    assert _keys(documents[kind]) == _documented()[kind]


def test_documents_are_json_with_a_schema(documents):
    for kind, body in documents.items():
        text = dumps(body)
        assert text.isascii()
        again = json.loads(text)
        assert again["schema"] == SCHEMA == 1
        assert again["kind"] == kind


def test_money_is_a_string_with_six_decimals(documents):
    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif name.endswith(("_usd", "_usd_per_hour")) and value is not None:
            assert isinstance(value, str), name
            assert re.fullmatch(r"-?\d+\.\d{6}", value), (name, value)

    for body in documents.values():
        walk({key: item for key, item in body.items() if key != "events"}, "")


def test_moments_carry_their_unit(documents):
    def names(value: Any, name: str = "") -> None:
        if isinstance(value, dict) and name not in OPAQUE:
            for key, item in value.items():
                assert not key.endswith("_at"), key
                names(item, key)
        elif isinstance(value, list):
            for item in value:
                names(item, name)

    for body in documents.values():
        names(body)


def test_nan_is_no_json():
    assert [finite(x) for x in (1.5, None, float("nan"), float("inf"), float("-inf"))] == [
        1.5, None, "nan", "inf", "-inf",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="JSON"):
        dumps({"x": float("nan")})
