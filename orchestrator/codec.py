"""Frozen dataclasses to JSON and back, by their annotations. Decimal travels as text.

Only what our own records use is known: str, int, float, bool, None, Decimal, enums, dataclasses,
NewType, Optional, `tuple[T, ...]`, fixed tuples, and `dict[str, T]`. Anything else raises TypeError
when the class is first met, not when a record is read.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Union

Decoder = Callable[[Any], Any]


def dump(value: Any) -> str:
    """Return the JSON text of a record; a field that equals its default is left out."""
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(value: Any) -> Any:
    """Return the JSON-ready form of a record or of one value of it."""
    if value is None or value.__class__ in {str, int, float, bool}:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            name: encode(item)
            for name, default in _defaults(value.__class__)
            if (item := getattr(value, name)) is not default and item != default
        }
    raise TypeError(f"no record may hold a {type(value).__name__}")


def load(cls: type[Any], text: str) -> Any:
    """Return the record of class `cls` that `dump` wrote.

    Unknown keys are ignored on purpose: within one schema revision an older reader may meet a newer
    writer's optional field.
    """
    return decode(cls, json.loads(text))


def decode(cls: Any, data: Any) -> Any:
    """Return the value of annotation `cls` from its JSON-ready form."""
    return _decoder(cls)(data)


@cache
def _defaults(cls: Any) -> tuple[tuple[str, Any], ...]:
    missing = dataclasses.MISSING
    return tuple(
        (f.name, f.default if f.default is not missing else missing)
        for f in dataclasses.fields(cls)
    )


@cache
def _decoder(annotation: Any) -> Decoder:
    if isinstance(annotation, typing.NewType):
        return _decoder(annotation.__supertype__)
    if annotation is Any or annotation in {str, bool, int, type(None)}:
        return lambda data: data
    if annotation is float:
        return float
    if annotation is Decimal:
        return Decimal
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotation
    if dataclasses.is_dataclass(annotation):
        return _record(annotation)
    return _generic(annotation)


def _record(cls: Any) -> Decoder:
    hints = typing.get_type_hints(cls)
    fields = {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(cls)}

    def read(data: Any) -> Any:
        return cls(**{name: fields[name](item) for name, item in data.items() if name in fields})

    return read


def _generic(annotation: Any) -> Decoder:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {Union, types.UnionType} and len(args) == 2 and type(None) in args:
        inner = _decoder(args[0] if args[1] is type(None) else args[1])
        return lambda data: None if data is None else inner(data)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        item = _decoder(args[0])
        return lambda data: tuple(item(part) for part in data)
    if origin is tuple:
        parts = tuple(_decoder(arg) for arg in args)
        return lambda data: tuple(part(value) for part, value in zip(parts, data, strict=True))
    if origin is dict and args[0] is str:
        value = _decoder(args[1])
        return lambda data: {key: value(item) for key, item in data.items()}
    raise TypeError(f"no record may hold a {annotation}")
