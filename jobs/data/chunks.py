"""The unit of work between reading and checking: a run of whole lines, or of ready values."""

from dataclasses import dataclass, field
from typing import NamedTuple

#: Bytes of lines in one chunk: large enough to hide the cost of a process switch, small enough
#: for bounded memory (a few chunks are in flight at once).
CHUNK_BYTES = 1 << 20
#: Values in one chunk of a table or an array.
CHUNK_ROWS = 2000
#: A longer line is reported, not read: bounded memory must hold for any input.
MAX_LINE_BYTES = 64 << 20


class Issue(NamedTuple):
    """Something wrong or worth saying at a line; becomes a Finding with its file."""

    line: int
    code: str
    message: str
    column: int = 0


@dataclass(slots=True)
class Chunk:
    """Whole lines (`data`) or ready values with their lines (`rows`), in the order of the file."""

    file: str
    first_line: int
    offset: int
    data: bytes | None = None
    rows: list[tuple[int, object]] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    last: bool = False
    kind: str = "jsonl"
    blank_before: bool = False
