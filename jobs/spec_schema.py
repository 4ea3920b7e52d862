"""The JSON schema of a job file, for editors: completion, types and a word on every key."""

from __future__ import annotations

from typing import Any

from jobs.axolotl_keys import choices, top_types
from jobs.axolotl_names import OWNED, PLUGINS
from jobs.spec import JobSpec
from jobs.spec_types import MAX_HELD_BACK

Schema = dict[str, Any]

_SCALARS: dict[str, Schema] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "num": {"type": "number"},
    "str": {"type": "string"},
    "any": {},
}


def job_schema() -> Schema:
    """Return the schema (draft 2020-12). Under `axolotl` stand the names and types of its keys."""
    schema = JobSpec.model_json_schema()
    definitions = schema["$defs"]
    definitions["Axolotl"] = {
        "title": "Axolotl",
        "type": "object",
        "description": "Any key of Axolotl; wins over what gpujob derives.",
        "properties": {
            "config": {
                "type": "string",
                "title": "config",
                "description": "Your own Axolotl file; the base of the run.",
            },
            **_axolotl_keys(),
        },
        "additionalProperties": False,
    }
    for section in definitions.values():
        for name, key in section.get("properties", {}).items():
            _tidy(name, key)
    for name, key in schema["properties"].items():
        _tidy(name, key)
    definitions["Data"]["properties"]["validation"]["anyOf"] = [
        {"type": "number", "minimum": 0, "maximum": MAX_HELD_BACK},
        {"type": "string"},
    ]
    schema["required"] = ["name"]  # with axolotl.config, model and method stand in that file
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "A gpujob job",
        "description": "What to train, on what data, on which GPU, and when to stop.",
    }


def _axolotl_keys() -> Schema:
    types = {key: kind for key, kind in top_types().items() if key not in OWNED}
    for _, keys in PLUGINS.values():
        types |= {name: kind for kind, names in keys.items() for name in names.split()}
    return {key: {"title": key, **_of(kind)} for key, kind in sorted(types.items())}


def _of(kind: str) -> Schema:
    """Return the schema for a type of the table."""
    parts = choices(kind)
    words = [part[1:-1] for part in parts if part.startswith("'")]
    found = [_one(part) for part in parts if not part.startswith("'")]
    if words:
        found.append({"enum": words})
    return {"anyOf": [*found, {"type": "null"}]}


def _one(part: str) -> Schema:
    if part.startswith("list:"):
        return {"type": "array", "items": _of(part[5:])}
    if part.startswith(("map", "@")):
        return {"type": "object"}
    return dict(_SCALARS[part])


def _tidy(name: str, key: Schema) -> None:
    """Make a key's entry fit for an editor: its own name as title, money as a number."""
    key["title"] = name
    if "usd" in name:  # pydantic would also take money as text
        key["anyOf"] = [option for option in key["anyOf"] if option.get("type") != "string"]
    for option in key.get("anyOf", [key]):
        if option.get("format") == "path":
            del option["format"]
