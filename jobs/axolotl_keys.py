"""Names and types of Axolotl's keys, checked against the table; values brought to their type.

Axolotl's own schema lets unknown keys pass, so a slip of the pen trains with a default. Here an
unknown key is a fault that names the nearest right one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.axolotl_names import ALWAYS, PLUGINS
from jobs.axolotl_table import NESTED, TOP
from jobs.load_yaml import LEADING_ZERO, SEXAGESIMAL, KeyPath

WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "num": "a number",
    "str": "text",
    "map": "a mapping",
    "any": "a value",
}
YES = frozenset(("true", "yes", "on", "y"))
NO = frozenset(("false", "no", "off", "n"))


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one key of an Axolotl configuration."""

    path: KeyPath
    message: str
    remedy: str = ""


def check_keys(
    config: Mapping[str, Any], plugins: Iterable[str] = ()
) -> tuple[dict[str, Any], list[Fault]]:
    """Return the configuration with every value in its key's type, and what is wrong with it.

    plugins: short names or class paths; keys of a plugin are known only with it. With a plugin that
    gpujob does not know, unknown keys pass: they may be its own.
    """
    named = set(plugins)
    by_class = {path: short for short, (path, _) in PLUGINS.items()}
    shorts = {by_class.get(name, name) for name in named}
    types = dict(top_types())
    for short in shorts & set(PLUGINS):
        types.update(_spread(PLUGINS[short][1]))
    strangers = shorts - set(PLUGINS)
    faults: list[Fault] = []
    result: dict[str, Any] = {}
    for key, value in config.items():
        if key not in types:
            if not strangers:
                faults.append(_unknown(key, types))
            result[key] = value
            continue
        result[key], found = _fit(value, types[key], (key,))
        faults.extend(found)
    return result, faults


@cache
def top_types() -> dict[str, str]:
    """Return key -> type for every top-level key that is known without a plugin."""
    # Axolotl takes text for learning_rate only to turn it into a number later.
    return {**_spread(TOP), **_spread(ALWAYS), "learning_rate": "num"}


@cache
def nested_types(name: str) -> dict[str, str]:
    """Return key -> type for a mapping of NESTED."""
    return _spread(NESTED[name])


def nearest(key: str, names: Iterable[str]) -> str | None:
    """Return the known name most like the key, None where none is like it."""
    known = list(names)
    folded = {name.lower().replace("-", "_"): name for name in known}
    found = difflib.get_close_matches(key.lower().replace("-", "_"), folded, n=1, cutoff=0.7)
    return folded[found[0]] if found else None


def number(text: str) -> float | int | None:
    """Return the number that the text spells, None where it spells none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def why_not_a_number(text: str) -> str:
    """Return what YAML would make of a text that looks like a number but is none; else ""."""
    if SEXAGESIMAL.fullmatch(text):
        return "Some YAML readers take it for base 60; write one plain number"
    if LEADING_ZERO.fullmatch(text):
        return "A leading zero means octal to some YAML readers; leave it out"
    return ""


def _spread(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in groups.items() for name in names.split()}


def _unknown(key: str, types: Mapping[str, str]) -> Fault:
    for short, (_, keys) in PLUGINS.items():
        if key in _spread(keys):
            return Fault(
                (key,), f"belongs to Axolotl's plugin {short}", f"Add training.plugins: [{short}]"
            )
    like = nearest(key, types)
    remedy = f"Did you mean {like}?" if like else "See Axolotl's configuration reference"
    return Fault((key,), "Axolotl has no such key", remedy)


@cache
def choices(kind: str) -> tuple[str, ...]:
    """Return the alternatives of a type, split at each `|` outside brackets."""
    parts, depth, current = [], 0, ""
    for char in kind:
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    parts.append(current)
    if len(parts) == 1 and kind.startswith("(") and kind.endswith(")"):
        return choices(kind[1:-1])
    # Text comes last: a number written as text should become a number where one is allowed.
    return tuple(sorted(parts, key=lambda part: part == "str"))


def _fit(value: Any, kind: str, path: KeyPath) -> tuple[Any, list[Fault]]:
    """Return the value in its type, and faults; null fits everything."""
    if value is None:
        return None, []
    best: tuple[Any, list[Fault]] | None = None
    for choice in choices(kind):
        fitted, faults = _fit_one(value, choice, path)
        if not faults:
            return fitted, []
        deeper = isinstance(value, dict | list) and all(len(f.path) > len(path) for f in faults)
        if deeper and (best is None or len(faults) < len(best[1])):
            best = (fitted, faults)
    if best is not None:
        return best
    remedy = why_not_a_number(value) if isinstance(value, str) else ""
    if not remedy and kind == "str" and not isinstance(value, dict | list):
        remedy = "Put it in quotes"
    return value, [Fault(path, f"{_show(value)} is not {_words(kind)}", remedy)]


def _fit_item(value: Any, kind: str, path: KeyPath) -> tuple[Any, list[Fault]]:
    """Return the member of a list or mapping in its type; a member can't be null."""
    if value is None and kind != "any":
        return None, [Fault(path, "is empty", "Write a value, or leave it out")]
    return _fit(value, kind, path)


def _fit_one(value: Any, kind: str, path: KeyPath) -> tuple[Any, list[Fault]]:
    wrong = [Fault(path, "")]
    if kind == "any":
        return value, []
    if kind.startswith("'"):
        return value, [] if value == kind[1:-1] else wrong
    if kind.startswith("@"):
        return _fit_mapping(value, kind[1:], path) if isinstance(value, dict) else (value, wrong)
    if kind.startswith("list:"):
        if not isinstance(value, list):
            return value, wrong
        fitted = [_fit_item(item, kind[5:], (*path, at)) for at, item in enumerate(value)]
        return [item for item, _ in fitted], [fault for _, found in fitted for fault in found]
    if kind == "map" or kind.startswith("map:"):
        if not isinstance(value, dict):
            return value, wrong
        inner = kind[4:] or "any"
        pairs = {key: _fit_item(item, inner, (*path, key)) for key, item in value.items()}
        faults = [fault for _, found in pairs.values() for fault in found]
        return {key: item for key, (item, _) in pairs.items()}, faults
    fitted_scalar = _fit_scalar(value, kind)
    return (value, wrong) if fitted_scalar is None else (fitted_scalar, [])


def _fit_mapping(value: dict[str, Any], name: str, path: KeyPath) -> tuple[Any, list[Fault]]:
    types = nested_types(name)
    result: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, item in value.items():
        bare = key.removeprefix("fsdp_") if name == "FSDPConfig" and key not in types else key
        if bare not in types:
            like = nearest(key, types)
            remedy = f"Did you mean {like}?" if like else ""
            faults.append(Fault((*path, key), "Axolotl has no such key", remedy))
            result[key] = item
            continue
        result[bare], found = _fit(item, types[bare], (*path, key))
        faults.extend(found)
    return result, faults


def _fit_scalar(value: Any, kind: str) -> Any:
    """Return the value as bool, int, num or str; None where it is none."""
    if kind == "str":
        return value if isinstance(value, str) else None
    if kind == "bool":
        word = str(value).lower()
        if isinstance(value, bool | str) and word in YES | NO:
            return word in YES
        return None
    if isinstance(value, str) and not why_not_a_number(value):
        value = number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and (not math.isfinite(value) or kind == "int"):
        return int(value) if value.is_integer() else None
    return value


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _words(kind: str) -> str:
    named = []
    for choice in choices(kind):
        if choice.startswith("'"):
            named.append(choice[1:-1])
        elif choice.startswith("list:"):
            named.append("a list")
        elif choice.startswith(("map", "@")):
            named.append("a mapping")
        else:
            named.append(WORDS[choice])
    unique = list(dict.fromkeys(named))
    return " or ".join(filter(None, [", ".join(unique[:-1]), unique[-1]]))
