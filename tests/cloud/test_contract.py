"""The contract's table bites, and so does the script that compares it with an OpenAPI file."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from scripts import check_runpod_contract as script
from tests.cloud import contract

OTHER_WAY = {"str": "string", "int": "integer", "num": "number", "bool": "boolean"}


def schema(kind: str) -> dict[str, Any]:
    """Return a type of the table as JSON schema."""
    if kind.endswith("?"):
        inner = schema(kind[:-1])
        plain = "type" in inner and isinstance(inner["type"], str) and inner["type"] != "array"
        if plain:
            return inner | {"type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}
    if kind.startswith("["):
        return {"type": "array", "items": schema(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": schema(kind[1:-1])}
    if kind == "time":
        return {"type": "string", "format": "date-time"}
    if kind == "str+":
        return {"type": "string", "minLength": 1}
    if ">=" in kind:
        return {"type": "integer", "minimum": int(kind.split(">=")[1])}
    if kind in OTHER_WAY:
        return {"type": OTHER_WAY[kind]}
    return {"$ref": f"#/components/schemas/{kind}"}


def document() -> dict[str, Any]:
    """Return an OpenAPI document that says just what the table says."""
    schemas: dict[str, Any] = {
        name: {
            "type": "object",
            "properties": {field.removesuffix("!"): schema(kind) for field, kind in shape.items()},
            "required": [field[:-1] for field in shape if field.endswith("!")],
            **({"additionalProperties": False} if name in contract.CLOSED else {}),
        }
        for name, shape in contract.SHAPES.items()
    }
    for (owner, field), name in script.INLINE.items():
        schemas[owner]["properties"][field] = schemas.pop(name)
    schemas |= {name: {"enum": words.split("|")} for name, words in contract.WORDS.items()}
    paths: dict[str, Any] = {}
    for (method, path), (request, status, answer) in contract.CALLS.items():
        operation = {"responses": {str(status): body(answer)}}
        if request:
            operation["requestBody"] = body(request)
        paths.setdefault(path, {})[method.lower()] = operation
    return {"components": {"schemas": schemas}, "paths": paths}


def body(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


def test_the_script_finds_nothing_where_nothing_differs(tmp_path, capsys) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document()))
    assert script.main([str(file)]) == 0, capsys.readouterr().out
    file.write_text("{}")
    assert script.main([str(file)]) == 2


CHANGES = [
    ("Pod.cost", lambda s: s["Pod"]["properties"].pop("cost")),
    ("Pod.status", lambda s: s["Pod"]["properties"].update(status={"type": "string"})),
    ("Pod.env", lambda s: s["Pod"]["required"].remove("env")),
    ("Pod.spot", lambda s: s["Pod"]["properties"].update(spot={"type": "boolean"})),
    ("Pod.startedAt", lambda s: s["Pod"]["properties"].update(startedAt={"type": "string"})),
    ("CreatePodRequest", lambda s: s["CreatePodRequest"].pop("additionalProperties")),
    (
        "PersistentMount.size",
        lambda s: s["PersistentMount"]["properties"]["size"].update(minimum=1),
    ),
    ("PodStatus", lambda s: s["PodStatus"]["enum"].append("PAUSED")),
]


@pytest.mark.parametrize(("named", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_the_script_names_each_difference(named: str, change: Any) -> None:
    changed = copy.deepcopy(document())
    change(changed["components"]["schemas"])
    found = script.differences(changed)
    assert found
    assert all(line.startswith(named) for line in found), found


def test_the_script_sees_a_call_that_changed() -> None:
    changed = document()
    changed["paths"]["/v2/pods/{id}"]["delete"]["responses"] = {"202": {}}
    del changed["paths"]["/v2/billing/pods"]
    assert script.differences(changed) == [
        "DELETE /v2/pods/{id}: the file has no answer 204",
        "GET /v2/billing/pods: the file has no such call",
    ]


WRONG = [
    ({}, "$: missing property 'name'"),
    ({"name": ""}, "$.name: minLength: got 0, want 1"),
    ({"name": "a", "gpuTypeId": "x"}, "$: additional properties 'gpuTypeId' not allowed"),
    ({"name": "a", "disk": 0}, "$.disk: minimum: got 0, want 1"),
    ({"name": "a", "disk": True}, "$.disk: got boolean, want int"),
    ({"name": "a", "cloud": "ALL"}, "$.cloud: value must be one of SECURE, COMMUNITY"),
    ({"name": "a", "env": {"A": 1}}, "$.env.A: got integer, want str"),
    ({"name": "a", "mounts": {"persistent": {"size": 5, "path": "/w"}}},
     "$.mounts.persistent.size: minimum: got 5, want 10"),
    ({"name": "a", "gpu": {"count": 1}}, "$.gpu: missing property 'id'"),
]  # fmt: skip


@pytest.mark.parametrize(("request_body", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_request_is_named(request_body: Any, words: str) -> None:
    assert contract.check(request_body, "CreatePodRequest") == [words]
