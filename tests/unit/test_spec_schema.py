"""The JSON schema for editors."""

from __future__ import annotations

import json
from typing import Any

from jobs.axolotl_names import OWNED
from jobs.load_words import known_keys
from jobs.spec import JobSpec
from jobs.spec_schema import job_schema

SCHEMA = job_schema()


def test_it_is_json_and_says_what_it_is() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"].startswith("https://json-schema.org/")
    assert SCHEMA["title"] == "A gpujob job"


def test_every_key_has_title_and_words() -> None:
    for section, names in known_keys().items():
        found: dict[str, Any] = SCHEMA["properties"]
        if section:
            found = SCHEMA["$defs"][section.capitalize()]["properties"]
        assert set(found) == set(names)
        for name in names:
            assert found[name]["title"] == name
            assert len(found[name]["description"]) > 5


def test_unknown_keys_are_underlined() -> None:
    assert SCHEMA["additionalProperties"] is False
    for section in [*known_keys(), "axolotl"]:
        if section:
            assert SCHEMA["$defs"][section.capitalize()]["additionalProperties"] is False


def test_axolotls_keys_are_completed_but_not_the_owned_ones() -> None:
    keys = SCHEMA["$defs"]["Axolotl"]["properties"]
    assert keys["lora_r"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert keys["bf16"]["anyOf"] == [{"type": "boolean"}, {"enum": ["auto"]}, {"type": "null"}]
    assert "config" in keys
    assert "liger_rope" in keys
    assert not set(keys) & set(OWNED)


def test_only_what_must_stand_in_the_file_is_required() -> None:
    assert SCHEMA["required"] == ["name"]


def test_no_word_of_pydantics_that_no_editor_knows() -> None:
    """A bound in the wrong place of a type would come out as `ge`, which editors pass over."""

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            assert not {"ge", "gt", "le", "lt"} & set(node)
            assert node.get("format") != "path"
            for value in node.values():
                walk(value)
        if isinstance(node, list):
            for value in node:
                walk(value)

    walk(SCHEMA)


def test_money_is_a_number() -> None:
    budget = SCHEMA["$defs"]["Limits"]["properties"]["budget_usd"]
    assert [option["type"] for option in budget["anyOf"]] == ["number", "null"]
    assert set(JobSpec.model_fields) == set(SCHEMA["properties"])
