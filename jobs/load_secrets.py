"""Secrets in a job file: it goes to the instance and into the database, so they are refused.

Found by the shapes that issuers give their keys, by passwords in addresses, and below `axolotl:` by
the name of the key. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jobs.load_yaml import KeyPath

MESSAGE = "a secret must not stand in a file"
REMEDY = "Remove it, and change it"
# Documented prefixes: Hugging Face, RunPod, AWS, GitHub; then PEM, and logins in addresses.
SHAPE = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\brpa_[A-Za-z0-9]{20,}|\bA(?:KIA|SIA)[A-Z0-9]{16}\b"
    r"|\bgh[opsru]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|://[^/\s:@]*:[^/\s@]+@"
)
# Names of keys, at any depth; pad_token and its like are none.
NAME = re.compile(
    r"(?i)(?:^|_)(?:api_?key|secret|passw(?:or)?d|access_key|credentials?"
    r"|(?:auth|access|hf|api|hub|bearer)_?token)$|^token$"
)


def secrets_of(value: Any, path: KeyPath = (), *, by_name: bool = False) -> Iterator[KeyPath]:
    """Yield the paths of values that are secrets by their shape, or by the name of their key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secrets_of(item, (*path, key), by_name=by_name)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from secrets_of(item, (*path, at), by_name=by_name)
    elif isinstance(value, str) and value:
        named = by_name and bool(path) and NAME.search(str(path[-1]))
        if named or SHAPE.search(value):
            yield path
