"""Write jobs/axolotl_table.py: names and types of Axolotl's keys, from its exported JSON schema.

    python scripts/axolotl_table.py SCHEMA.json 0.21.0 > jobs/axolotl_table.py

The schema comes from `AxolotlInputConfig.model_json_schema()` of the pinned version. Only names,
types and enumerations are taken, in our own short form; no text. `jobs/axolotl_keys.py` reads it.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

WIDTH = 96
HEAD = '''"""Names and types of Axolotl's keys. Made by scripts/axolotl_table.py; do not edit.

Each entry is a type and the keys that have it. Types: bool, int, num, str, map (free mapping), any,
list:T, map:T, a `quoted` word, @Name (a mapping described in NESTED), T|T. Null is always allowed.
"""

from __future__ import annotations

VERSION = "{version}"

'''


def type_of(node: dict[str, Any], defs: dict[str, Any]) -> str:
    """Return the short form of a schema node."""
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        target = defs[name]
        return f"@{name}" if "properties" in target else type_of(target, defs)
    if "anyOf" in node:
        parts = [type_of(part, defs) for part in node["anyOf"] if part.get("type") != "null"]
        flat = dict.fromkeys(piece for part in parts for piece in part.split("|"))
        if "str" in flat:  # any word is allowed, so the listed ones say nothing
            flat = dict.fromkeys(piece for piece in flat if not piece.startswith("'"))
        return "|".join(flat) or "any"
    if "enum" in node or "const" in node:
        values = node.get("enum") or [node["const"]]
        words = [v for v in values if isinstance(v, str)]
        rest = {"bool" if isinstance(v, bool) else "int" for v in values if not isinstance(v, str)}
        return "|".join([f"'{word}'" for word in words] + sorted(rest))
    kind = node.get("type")
    if kind == "array":
        return f"list:{wrap(type_of(node.get('items', {}), defs))}"
    if kind == "object":
        extra = node.get("additionalProperties")
        return f"map:{wrap(type_of(extra, defs))}" if isinstance(extra, dict) and extra else "map"
    return {"boolean": "bool", "integer": "int", "number": "num", "string": "str"}.get(
        str(kind), "any"
    )


def wrap(text: str) -> str:
    """Return the type in brackets where it is a choice."""
    return f"({text})" if "|" in text else text


def table(properties: dict[str, Any], defs: dict[str, Any], indent: str) -> str:
    """Return a dict literal's body, one entry a type, names wrapped."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, node in properties.items():
        groups[type_of(node, defs)].append(name)
    lines = []
    for kind in sorted(groups, key=lambda k: (-len(groups[k]), k)):
        names = textwrap.wrap(" ".join(groups[kind]), WIDTH - len(indent) - 8)
        head = f"{indent}{json.dumps(kind)}: "
        one = f"{head}{json.dumps(names[0])},"
        if len(names) == 1 and len(one) <= WIDTH + 4:
            lines.append(one)
            continue
        lines.append(f"{head}(")
        last = len(names) - 1
        for at, part in enumerate(names):
            lines.append(f"{indent}    {json.dumps(part + (' ' if at < last else ''))}")
        lines.append(f"{indent}),")
    return "\n".join(lines)


def main() -> None:
    """Print the module."""
    schema = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    defs = schema["$defs"]
    print(HEAD.format(version=sys.argv[2]), end="")
    print("TOP: dict[str, str] = {")
    print(table(schema["properties"], defs, "    "))
    print("}\n\nNESTED: dict[str, dict[str, str]] = {")
    for name in sorted(defs):
        if "properties" in defs[name]:
            print(f"    {json.dumps(name)}: {{")
            print(table(defs[name]["properties"], defs, "        "))
            print("    },")
    print("}")


if __name__ == "__main__":
    main()
