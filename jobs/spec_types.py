"""The kinds of value a job file has, each with the slips that it forgives and those it names."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

ALL_LINEAR = "all-linear"
MAX_HELD_BACK = 0.5


def no_bool(value: Any) -> Any:
    """Return the value; `true` where a number belongs is a slip, which pydantic would take as 1."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")  # noqa: TRY004 - pydantic's way
    return value


def as_list(value: Any) -> Any:
    """Return a list; `types: A100` means a list of one."""
    return [value] if isinstance(value, str) else value


def modules(value: Any) -> Any:
    """Return `all-linear`, or a list of module names."""
    if value == ALL_LINEAR:
        return value
    value = as_list(value)
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise ValueError("all-linear or a list of module names is needed")
    if not value:
        raise ValueError("the list is empty; an adapter needs at least one module")
    return value


def held_back(value: Any) -> Any:
    """Return a fraction as float, or a file as Path."""
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and value:
        return Path(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 <= value <= MAX_HELD_BACK:
        return float(value)
    raise ValueError(f"{value} is neither a part from 0 to {MAX_HELD_BACK} nor a file")


Whole = Annotated[int, BeforeValidator(no_bool)]
Real = Annotated[float, BeforeValidator(no_bool)]
Count = Annotated[int, Field(ge=1), BeforeValidator(no_bool)]
Gpus = Annotated[int, Field(ge=1, le=64), BeforeValidator(no_bool)]
Epochs = Annotated[float, Field(gt=0, le=1000), BeforeValidator(no_bool)]
MbPerS = Annotated[float, Field(gt=0, le=1e5), BeforeValidator(no_bool)]
Minutes = Annotated[float, Field(ge=1, le=24 * 60), BeforeValidator(no_bool)]
Usd = Annotated[Decimal, Field(gt=0), BeforeValidator(no_bool)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_list)]
HeldBack = Annotated[float | Path, BeforeValidator(held_back)]
Modules = Annotated[Literal["all-linear"] | tuple[str, ...], BeforeValidator(modules)]
