"""A look at the first record: which format is it? The data gate checks the rest."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from jobs.spec import FORMAT_COLUMNS, Data, DataFormat

MAX_BYTES = 4 << 20  # a first record beyond this is left to the data gate

# Columns that tell a format from the others, the telling ones first.
_TELLING: tuple[tuple[DataFormat, tuple[str, ...]], ...] = (
    (DataFormat.CHAT, ("messages",)),
    (DataFormat.SHAREGPT, ("conversations",)),
    (DataFormat.SEGMENTS, ("segments",)),
    (DataFormat.ALPACA, ("instruction", "output")),
    (DataFormat.PROMPT_COMPLETION, ("prompt", "completion")),
    (DataFormat.COMPLETION, ("text",)),
)


def first_record(path: Path) -> dict[str, Any] | None:
    """Return the first record of a file; None where it can't be read so, or is none."""
    try:
        with path.open("rb") as file:
            head = file.read(MAX_BYTES)
        text = head.decode("utf-8-sig", errors="ignore")
        suffix = path.suffix.lower()
        if suffix == ".txt":
            return {"text": text[:100]}
        if suffix == ".csv":
            return next(csv.DictReader(io.StringIO(text)), None)
        if suffix not in (".jsonl", ".json"):
            return None
        value, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except (OSError, ValueError, RecursionError, csv.Error):
        return None
    return value if isinstance(value, dict) else None


def recognise(record: dict[str, Any]) -> DataFormat | None:
    """Return the format that a record has, None where it has none of ours."""
    for form, columns in _TELLING:
        if all(column in record for column in columns):
            return _by_speaker(record) or form
    return None


def lacking(record: dict[str, Any], data: Data) -> list[str]:
    """Return the columns that the format needs and the record lacks, by their names in the file."""
    if data.format is None:
        return []
    needed = [name for name in FORMAT_COLUMNS[data.format] if not name.endswith("?")]
    names = [data.columns.get(name, name) for name in needed]
    return [name for name in names if name not in record]


def _by_speaker(record: dict[str, Any]) -> DataFormat | None:
    """Return chat or sharegpt by what a turn holds; either may stand under either name."""
    for field in ("messages", "conversations"):
        turns = record.get(field)
        if isinstance(turns, list) and turns and isinstance(turns[0], dict):
            if "role" in turns[0]:
                return DataFormat.CHAT
            if "from" in turns[0]:
                return DataFormat.SHAREGPT
    return None
