"""Compare our table of RunPod's REST v2 with RunPod's own OpenAPI file.

`python scripts/check_runpod_contract.py OPENAPI.json` prints every difference and exits 1 where
there is one. The file is RunPod's and is not kept here: fetch it from `/v2/openapi.json`.
Compared: of every shape of the table its fields, their types, which are required, whether unknown
ones are refused; every enumeration; every call with its request, status and answer. The table's
`BEYOND` (what servers or clients were seen to send beside the file) is left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cloud import contract  # noqa: E402 - after the path

PLAIN = {"string": "str", "integer": "int", "number": "num", "boolean": "bool"}
INLINE = {("GpuType", "price"): "Prices", ("GpuType", "maxCount"): "MaxCount"}
# Lists of words that we never send or read, or shapes we do not model: any list will do.
LOOSE = {
    ("DataCenter", "networkVolumeTypes"),
    ("DataCenter", "compliance"),
    ("DataCenter", "gpuAvailability"),
    ("DataCenter", "cpuAvailability"),
    ("Pod", "cpu"),
    ("Pod", "cluster"),
}


class Spec:
    """The OpenAPI document, read as far as we compare it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.schemas: dict[str, Any] = document["components"]["schemas"]

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema behind a chain of references."""
        while "$ref" in schema:
            schema = self.at(schema["$ref"])
        return schema

    def at(self, ref: str) -> dict[str, Any]:
        """Return what a reference points at."""
        found: Any = self.document
        for part in ref.removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        assert isinstance(found, dict)
        return found

    def shape(self, schema: dict[str, Any]) -> tuple[dict[str, Any], set[str], bool]:
        """Return fields, the required ones, and whether others are refused, over all `allOf`."""
        schema = self.resolved(schema)
        fields = dict(schema.get("properties", {}))
        required = set(schema.get("required", []))
        closed = False in (schema.get("additionalProperties"), schema.get("unevaluatedProperties"))
        for part in schema.get("allOf", []):
            more, needed, shut = self.shape(part)
            fields, required, closed = fields | more, required | needed, closed or shut
        return fields, required, closed

    def kind(self, schema: dict[str, Any]) -> str:
        """Return a field's type in the table's words."""
        ref = schema.get("$ref", "")
        name = ref.rsplit("/", 1)[-1]
        if name:
            return str(name)
        if len(schema.get("allOf", [])) == 1:
            return self.kind(schema["allOf"][0])
        if "anyOf" in schema:
            some = [part for part in schema["anyOf"] if part.get("type") != "null"]
            return self.kind(some[0]) + "?" * (len(some) < len(schema["anyOf"]))
        given = schema.get("type")
        kinds = [given] if isinstance(given, str) else list(given or [])
        null = "?" * ("null" in kinds)
        base = next((each for each in kinds if each != "null"), "object")
        return self._plain(schema, base) + null

    def _plain(self, schema: dict[str, Any], base: str) -> str:
        if base == "array":
            return f"[{self.kind(schema['items'])}]"
        if base == "object":
            inner = schema.get("additionalProperties")
            return f"{{{self.kind(inner)}}}" if isinstance(inner, dict) else "object"
        if schema.get("format") == "date-time":
            return "time"
        if base == "string" and schema.get("minLength"):
            return "str+"
        if base == "integer" and "minimum" in schema:
            return f"int>={schema['minimum']}"
        return PLAIN[base]


def differences(document: dict[str, Any]) -> list[str]:
    """Return every difference in words."""
    spec = Spec(document)
    found = [line for name in contract.SHAPES for line in of_shape(spec, name)]
    for name, words in contract.WORDS.items():
        theirs = set(spec.schemas.get(name, {}).get("enum", []))
        if theirs != set(words.split("|")):
            found.append(f"{name}: the file has {sorted(theirs)}, the table {words}")
    return found + [line for call in contract.CALLS for line in of_call(spec, call)]


def of_shape(spec: Spec, name: str) -> list[str]:
    """Return the differences of one shape."""
    inline = next((key for key, shape in INLINE.items() if shape == name), None)
    if inline:
        schema = spec.shape(spec.schemas[inline[0]])[0][inline[1]]
    elif name in spec.schemas:
        schema = spec.schemas[name]
    else:
        return [f"{name}: the file has no such shape"]
    fields, required, closed = spec.shape(schema)
    ours = contract.SHAPES[name]
    kinds = {field.removesuffix("!"): kind for field, kind in ours.items()}
    found = []
    if closed != (name in contract.CLOSED):
        found.append(f"{name}: the file {'refuses' if closed else 'allows'} unknown fields")
    for field in sorted(fields.keys() | kinds.keys()):
        if (name, field) in LOOSE:
            continue
        if field not in fields or field not in kinds:
            where = "file" if field in fields else "table"
            found.append(f"{name}.{field}: only in the {where}")
            continue
        theirs = INLINE.get((name, field)) or spec.kind(fields[field])
        if theirs != kinds[field]:
            found.append(f"{name}.{field}: {theirs} in the file, {kinds[field]} in the table")
        if (field in required) != (field + "!" in ours):
            found.append(f"{name}.{field}: required in only one of the two")
    return found


def of_call(spec: Spec, call: tuple[str, str]) -> list[str]:
    """Return the differences of one call."""
    method, path = call
    request, status, answer = contract.CALLS[call]
    where = f"{method} {path}"
    operation = spec.document["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return [f"{where}: the file has no such call"]
    found = []
    theirs = body_of(spec, operation.get("requestBody", {}))
    if theirs != request:
        found.append(f"{where}: the request is {theirs} in the file, {request} in the table")
    response = operation["responses"].get(str(status))
    if response is None:
        found.append(f"{where}: the file has no answer {status}")
    elif body_of(spec, response) != answer:
        theirs = body_of(spec, response)
        found.append(f"{where}: the answer is {theirs} in the file, {answer} in the table")
    return found


def body_of(spec: Spec, part: dict[str, Any]) -> str | None:
    """Return the shape of a request's or answer's JSON body, None where it has none."""
    content = spec.resolved(part).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    return spec.kind(schema) if schema else None


def main(arguments: list[str]) -> int:
    """Print the differences; return the exit status: 0 none, 1 some, 2 no file."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    try:
        document = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        found = differences(document)
    except (OSError, ValueError, KeyError) as error:
        print(f"{arguments[0]}: not an OpenAPI file that can be read: {error!r}")
        return 2
    for line in found:
        print(line)
    shapes, calls = len(contract.SHAPES), len(contract.CALLS)
    print(f"{len(found)} differences over {shapes} shapes, {calls} calls")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
