"""A validation file the user brought, held against the training set.

A near copy must be alike in its distinctive part and in its answer: records that share no more than
the wording of a task are not copies of one another.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from . import gate
from .dedup import plain_of
from .digest import Steps, normal
from .gate import Report
from .minhash import COMMON_SAMPLE, common, shingles
from .options import Options
from .split import Index

#: A larger validation file is not held in memory.
MAX_ROWS = 50_000
#: With fewer 3-grams one changed word decides: only an equal record is a leak.
MIN_SHINGLES = 16


@dataclass(slots=True)
class Held:
    """The validation records, normalised, with what finds them again."""

    report: Report
    rows: list[bytes] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    exact: dict[bytes, int] = field(default_factory=dict)
    sets: list[set[int]] = field(default_factory=list)
    threshold: float = 0.6


def load(paths: Sequence[Path], options: Options) -> Held:
    """Return the validation records of the paths, checked and normalised like training data.

    Findings stand in `report`. At most MAX_ROWS records are taken.
    """
    held = Held(Report(), threshold=options.near_threshold)
    steps = Steps(keep_rows=True, pii=options.with_pii, lengths=False)
    sources = gate.sources_of(paths, held.report)
    for part in gate.stream(sources, held.report, options, steps, processes=1):
        for row, line, exact in zip(part.rows, part.lines, part.exact, strict=True):
            if len(held.rows) < MAX_ROWS:
                held.exact.setdefault(exact, len(held.rows))
                found = shingles(plain_of(row))
                held.sets.append(found if len(found) >= MIN_SHINGLES else set())
                held.rows.append(row)
                held.places.append((part.file, line))
    gate.conclude(held.report, options)
    return held


def compare(held: Held, train: Iterator[tuple[str, int, bytes, bytes]], report: Report) -> int:
    """Add a split_leak finding for each validation record with an equal or near one in `train`.

    `train` yields (file, line, row, exact key). Returns how many validation records leak.
    """
    leaking: set[int] = set()
    first = list(islice(train, COMMON_SAMPLE))
    seen = [*held.sets, *(shingles(plain_of(row)) for _, _, row, _ in first)]
    shared = common(seen)
    index = Index(((i, found - shared) for i, found in enumerate(held.sets)), held.threshold)
    for file, line, row, exact in chain(first, train):
        twin = held.exact.get(exact)
        found = [(twin, 1.0)] if twin is not None else []
        for number, alike in index.neighbours(shingles(plain_of(row)) - shared):
            if _same_answer(row, held.rows[number]):
                found.append((number, alike))
        for number, alike in found:
            if number in leaking:
                continue
            leaking.add(number)
            where = held.places[number]
            what = "equals" if alike == 1.0 else f"is {alike:.0%} like"
            report.add(
                where[0],
                where[1],
                "split_leak",
                f"this validation record {what} {file} line {line} of the training set",
            )
    return len(leaking)


def _same_answer(a: bytes, b: bytes) -> bool:
    """Return whether the answers of two rows share half of their words or more."""
    one, two = (set(normal(_answer(row)).split()) for row in (a, b))
    return len(one & two) * 2 >= len(one | two)


def _answer(row: bytes) -> str:
    value = json.loads(row)
    if "messages" in value:
        return str(value["messages"][-1]["content"])
    return str(list(value.values())[-1])


def check(
    train: Sequence[Path], validation: Sequence[Path], options: Options, report: Report
) -> int:
    """Return how many validation records leak; findings go to the report."""
    held = load(validation, options)
    report.findings += held.report.findings
    report.counts.update(held.report.counts)

    def rows() -> Iterator[tuple[str, int, bytes, bytes]]:
        quiet = Report()
        sources = gate.sources_of(train, quiet)
        steps = Steps(keep_rows=True, lengths=False)
        for part in gate.stream(sources, quiet, options, steps):
            for row, line, exact in zip(part.rows, part.lines, part.exact, strict=True):
                yield part.file, line, row, exact

    return compare(held, rows(), report)
