"""Words, numbers and tables for a terminal: data in, text out. No colour and no width is assumed.

A `Screen` says how wide the terminal is and whether it takes colour; everything here is a pure
function of its arguments. One accent is used, for what needs the person.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import TextIO

MIN_WIDTH = 40  # narrower terminals are treated as this wide: below it no table is readable
PIPE_WIDTH = 200  # width of a table that goes to a file or another program
ACCENT = "\x1b[1;35m"  # bold magenta: legible on dark and on light backgrounds
RESET = "\x1b[0m"
GAP = "  "
CENT = Decimal("0.01")
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Screen:
    """Where text goes: columns, whether escape codes are welcome, and whether a person watches."""

    width: int = 80
    colour: bool = False
    tty: bool = False

    def accent(self, text: str) -> str:
        """Return `text` in the accent colour where colour is welcome."""
        return f"{ACCENT}{text}{RESET}" if self.colour and text else text


def screen_of(stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Return the screen behind a stream: NO_COLOR, COLUMNS, TERM=dumb and pipes are honoured."""
    tty = stream.isatty()
    width = PIPE_WIDTH
    if tty:
        try:
            width = os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
    if environ.get("COLUMNS", "").isdigit():
        width = int(environ["COLUMNS"])
    colour = tty and not environ.get("NO_COLOR") and environ.get("TERM", "") != "dumb"
    return Screen(width=max(MIN_WIDTH, width), colour=colour, tty=tty)


def money(usd: Decimal | None) -> str:
    """Return "$2.41"; four decimals below one cent, so that small costs do not look free."""
    if usd is None:
        return "-"
    if Decimal(0) < usd < CENT:
        return f"${usd.quantize(Decimal('0.0001'), ROUND_HALF_UP)}"
    return f"${usd.quantize(CENT, ROUND_HALF_UP)}"


def exact_money(usd: Decimal) -> str:
    """Return USD as a plain string with six decimals, as every JSON and CSV answer gives it."""
    return f"{usd.quantize(Decimal('0.000001'), ROUND_HALF_UP):f}"


def duration(seconds: float | None) -> str:
    """Return "41s", "2m41s", "1h58m" or "3d4h": two units at the most."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h"


def moment(at: float | None, now: float) -> str:
    """Return local time "14:07:31", with the date where it is more than twelve hours from `now`."""
    if at is None:
        return "-"
    then = datetime.fromtimestamp(at).astimezone()
    near = abs(at - now) < timedelta(hours=12).total_seconds()
    return then.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M")


def size(count: float) -> str:
    """Return "812 B", "6.2 MB", "8.1 GB": decimal units, as disks and networks are sold."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{int(count)} B"


def number(value: float | None) -> str:
    """Return a metric for people: three decimals below 100, thousands separated; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


def rate(value: float) -> str:
    """Return a throughput for people: one decimal below 100, thousands separated."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return one character a column, values averaged into at most `width`; NaN is "x"."""
    if not values or width < 1:
        return ""
    finite = [abs(value) for value in values if value - value == 0]
    if not finite:
        return "x" * min(width, len(values))
    peak = max(finite) or 1.0  # losses that explode must not overflow the arithmetic as well
    columns = _bins([value / peak for value in values], min(width, len(values)))
    known = [value for value in columns if value - value == 0]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = (high - low) or 1.0
    steps = len(SPARKS) - 1
    return "".join(
        SPARKS[round((value - low) / span * steps)] if value - value == 0 else "x"
        for value in columns
    )


def _bins(values: Sequence[float], count: int) -> list[float]:
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges) if b > a]


def bar(done: int, total: int, width: int) -> str:
    """Return a progress bar "####------" of exactly `width` characters."""
    filled = min(width, max(0, width * done // total)) if total > 0 else 0
    return "#" * filled + "-" * (width - filled)


def cells(text: str) -> int:
    """Return how many terminal columns `text` takes: wide characters count two, combining none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, "…" marking the cut."""
    if cells(text) <= width:
        return text
    kept = ""
    for char in text:
        if cells(kept + char) > width - 1:
            break
        kept += char
    return kept + "…" if width > 0 else ""


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return `text` broken at blanks into lines of at most `width`; long words are kept whole.

    Text that fits keeps its own spacing.
    """
    if text.strip() and cells(indent) + cells(text) <= width:
        return [indent + text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(indent) + cells(line) + 1 + cells(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines


@dataclass(frozen=True, slots=True)
class Column:
    """One column: head, alignment, how narrow it may become, when it is dropped (low first)."""

    head: str
    right: bool = False
    floor: int = 4
    keep: int = 100


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return lines of at most `width`: wide cells are clipped, then the least needed columns go.

    Heads and right-aligned cells (numbers) are clipped only where nothing else is left to give; the
    last column is the one that decides and is kept to the end.
    """
    shown = list(range(len(columns)))
    wanted = [
        max([cells(column.head), *(cells(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]
    floors = [
        wanted[i] if column.right else max(cells(column.head), min(column.floor, wanted[i]))
        for i, column in enumerate(columns)
    ]
    while len(shown) > 1 and _total([floors[i] for i in shown]) > width:
        shown.remove(min(shown, key=lambda i: (columns[i].keep, -i)))
    widths = {i: wanted[i] for i in shown}
    while _total(list(widths.values())) > width:
        loose = [i for i in shown if widths[i] > floors[i]]
        if not loose:
            break
        widths[max(loose, key=lambda i: widths[i] - floors[i])] -= 1
    heads = [column.head for column in columns]
    return [clip(_row(line, columns, shown, widths), width) for line in (heads, *rows)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _row(
    row: Sequence[str], columns: Sequence[Column], shown: Sequence[int], widths: Mapping[int, int]
) -> str:
    parts = []
    for i in shown:
        text = clip(row[i], widths[i])
        pad = " " * (widths[i] - cells(text))
        parts.append(pad + text if columns[i].right else text + pad)
    return GAP.join(parts).rstrip()
