"""`--set a.b=value`: values laid over the job file, read by the same YAML rules."""

from __future__ import annotations

from typing import Any

from jobs.findings import Finding
from jobs.load_yaml import Document, KeyPath, parse


def apply(document: Document, overrides: tuple[str, ...]) -> dict[KeyPath, str]:
    """Lay the overrides over the document, in their order; return path -> the `--set` that gave it.

    A fault becomes a finding whose file is the override itself.
    """
    origins: dict[KeyPath, str] = {}
    for override in overrides:
        label = f"--set {override}"
        name, equals, text = override.partition("=")
        path = tuple(name.strip().split("."))
        if not equals or not all(path):
            document.findings.append(
                Finding(label, None, "", "not a key and a value", "Write --set section.key=value")
            )
            continue
        value = parse(text, label)
        document.findings.extend(value.findings)
        if value.findings:
            continue
        blocked = _put(document, path, value.value)
        if blocked is not None:
            document.findings.append(
                Finding(label, None, blocked, "is a value, not a section", "Set it as a whole")
            )
            continue
        origins[path] = label
    return origins


def _put(document: Document, path: KeyPath, value: Any) -> str | None:
    """Store the value; return the name of what stands in the way, None when done."""
    if document.value is None:
        document.value = {}
    here = document.value
    for depth, part in enumerate(path[:-1]):
        if not isinstance(here, dict):
            return ".".join(str(p) for p in path[:depth])
        if here.get(part) is None:
            here[part] = {}
        here = here[part]
    if not isinstance(here, dict):
        return ".".join(str(p) for p in path[:-1]) or "the file"
    here[path[-1]] = value
    return None
