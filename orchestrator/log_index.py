"""When each part of a pulled log came: what `gpujob logs --since` needs, bytes carrying no times.

Beside the log lies a text file of lines "<UNIX seconds> <bytes so far>", appended after each pull.
"""

from __future__ import annotations

from pathlib import Path

EVERY_S = 1.0  # finer than anybody asks for
SUFFIX = ".when"
SEARCH_BYTES = 1 << 16


def index_of(log: Path) -> Path:
    """Return where the times of a log stand."""
    return log.with_name(log.name + SUFFIX)


def note(log: Path, *, at: float, size_bytes: int, last_at: float) -> float:
    """Note that the log has grown to `size_bytes`; returns the moment noted last.

    At most one line every EVERY_S. A full disk must not end a job: the times are then missing.
    """
    if at - last_at < EVERY_S:
        return last_at
    try:
        with index_of(log).open("a", encoding="ascii") as file:
            file.write(f"{at:.3f} {size_bytes}\n")
    except OSError:
        return last_at
    return at


def offset_since(log: Path, at: float) -> int:
    """Return where the first line starts that came at `at` or later; the whole log if unknown."""
    start = 0
    try:
        with index_of(log).open(encoding="ascii", errors="replace") as file:
            for line in file:
                when, _, size = line.strip().partition(" ")
                if not size.isdigit() or float(when) >= at:
                    break
                start = int(size)
    except (OSError, ValueError):
        return start
    return _line_start(log, start)


def _line_start(log: Path, offset: int) -> int:
    """Return the start of the line that `offset` is in: a line shown by half would mislead."""
    if offset == 0 or not log.exists():
        return 0
    with log.open("rb") as file:
        low = max(0, offset - SEARCH_BYTES)
        file.seek(low)
        block = file.read(offset - low)
    return low + block.rfind(b"\n") + 1
