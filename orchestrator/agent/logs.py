"""The trainer's log, read as what it is: untrusted bytes of any length.

Only its first and last megabytes are looked at, so memory and time stay bounded whatever was
printed.
"""

from __future__ import annotations

import os
import re
from typing import BinaryIO, Iterator, NamedTuple

TAIL_BYTES = 4 << 20  # tracebacks of eight ranks are under 100 KB
NAN_SCAN_BYTES = 64 << 20  # from either end
LINE_CHARS = 4096
MESSAGE_LINES = 20
MESSAGE_CHARS = 4000
KEPT_EXCEPTIONS = 60
KEPT_FRAMES = 60

ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
LOG_RECORD = re.compile(r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")
RANK = re.compile(r"\[rank(\d{1,4})\]:[ ]?")
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
TRACEBACK = "Traceback (most recent call last)"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
STARTING = b"[axolotl.train] Starting trainer..."
COMPLETED = b"Training completed! Saving trained model to "
SAVED = re.compile(rb"Model successfully saved to [^\r\n]*[\r\n]")
RUNTIME = b"'train_runtime'"
BAR = re.compile(rb"\| (\d{1,9})/(\d{1,9}) \[")
NOT_FINITE = re.compile(rb"'(?:loss|grad_norm)': '?-?(?:nan|inf)\b")


class Caught(NamedTuple):
    """One exception of the log: its last lines, where it came from, and whether it was chained."""

    text: str
    frames: str
    chained: bool  # raised while, or because, the one before was handled

    @property
    def name(self) -> str:
        """Return the class as it was printed, e.g. `huggingface_hub.errors.GatedRepoError`."""
        return self.text.split(":", 1)[0].split("\n", 1)[0]


class LogFacts(NamedTuple):
    """What the log says of the training's end."""

    saved: str  # the final line; "" where it is missing or cut
    finished: bool  # the completed line and the runtime record were there before it
    last_step: int | None
    max_steps: int | None
    not_finite: bool
    exceptions: list[Caught]
    tail: str
    last_line: str


def read_log(path: str) -> LogFacts:
    """Return the facts; an absent log is an empty one."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
            not_finite = _finds_nan(file, size)
    except OSError:
        tail, size, not_finite = b"", 0, False
    # What an earlier run printed into the same log proves nothing of this one.
    run = tail[max(0, tail.rfind(STARTING)) :]
    completed = run.rfind(COMPLETED)
    found = SAVED.search(run, completed) if completed >= 0 else None
    step = steps = None
    started = STARTING in tail
    if started or size > TAIL_BYTES:  # bars before it count examples, weights, shards
        step, steps = _bar(run[:completed] if completed >= 0 else run, started)
    exceptions, last_line = read_exceptions(tail)
    return LogFacts(
        clean(found.group().decode("utf-8", "replace")) if found else "",
        found is not None and RUNTIME in run[:completed],
        step,
        steps,
        not_finite,
        exceptions,
        tail.decode("utf-8", "replace"),
        last_line,
    )


def _finds_nan(file: BinaryIO, size: int) -> bool:
    for start, end in ((0, NAN_SCAN_BYTES), (max(NAN_SCAN_BYTES, size - NAN_SCAN_BYTES), size)):
        file.seek(start)
        before = b""
        left = min(end, size) - start
        while left > 0:
            chunk = file.read(min(left, 1 << 20))
            if not chunk:
                break
            left -= len(chunk)
            if NOT_FINITE.search(before + chunk):
                return True
            before = chunk[-40:]
    return False


def _bar(run: bytes, from_the_start: bool) -> tuple[int | None, int | None]:
    """Return the training bar's last (step, steps). Evaluations draw bars with other totals."""
    bars = [(int(found.group(1)), int(found.group(2))) for found in BAR.finditer(run)]
    if not bars:
        return None, None
    total = bars[0][1] if from_the_start else bars[-1][1]
    return max(step for step, steps in bars if steps == total), total


def clean(line: str) -> str:
    """Return a line harmless to print: no ANSI, no control characters, no key, bounded."""
    line = CONTROL.sub("", ANSI.sub("", line[: 4 * LINE_CHARS]))[:LINE_CHARS]
    line = "".join(char if char.isprintable() else " " for char in line)
    line = re.sub(r"\b(hf_|sk-|rpa_|AKIA)[A-Za-z0-9_-]{12,}", r"\1...", line)
    return line.strip()


def lines_of(data: bytes) -> Iterator[str]:
    """Yield the lines, split at line feeds and carriage returns, each cut to LINE_CHARS."""
    start = 0
    for found in re.finditer(rb"[\r\n]+|\Z", data):
        line = data[start : min(found.start(), start + LINE_CHARS)]
        start = found.end()
        if line:
            yield CONTROL.sub("", ANSI.sub("", line.decode("utf-8", "replace")))


def read_exceptions(data: bytes) -> tuple[list[Caught], str]:
    """Return the log's exceptions, oldest first, and its last line that says something."""
    exceptions: list[Caught] = []
    readers: dict[str, _Reader] = {}  # ranks print their tracebacks through each other
    last_line = ""
    for line in lines_of(data):
        rank = RANK.match(line)
        reader = readers.setdefault(rank.group(1) if rank else "", _Reader(exceptions))
        reader.feed(line[rank.end() :] if rank else line)
        if line.strip():
            last_line = line
    for reader in readers.values():
        reader.close()
    return exceptions[-KEPT_EXCEPTIONS:], clean(last_line)


class _Reader:
    """A small state machine: outside -> in the frames -> in the message -> outside."""

    def __init__(self, exceptions: list[Caught]) -> None:
        self.exceptions = exceptions
        self.state = "outside"
        self.frames: list[str] = []
        self.message: list[str] = []
        self.chained = False

    def feed(self, line: str) -> None:
        """Take the next line."""
        if TRACEBACK in line:
            self.close()
            self.state, self.frames = "frames", []
        elif any(words in line for words in CHAINED):
            self.close()
            self.chained = True
        elif self.state == "frames":
            if line.startswith((" ", "\t")) or not line:
                self.frames = [*self.frames[-KEPT_FRAMES:], line]
            elif EXCEPTION.match(line):
                self.state, self.message = "message", [line]
            else:
                self.state = "outside"
        elif self.state == "message":
            over = LOG_RECORD.search(line) or len(self.message) >= MESSAGE_LINES
            if over or BAR.search(line.encode()):
                self.close()
            else:
                self.message.append(line)

    def close(self) -> None:
        """Keep what was read, if it was an exception."""
        if self.state == "message":
            text = "\n".join(self.message)[:MESSAGE_CHARS]
            self.exceptions.append(Caught(text, "\n".join(self.frames), self.chained))
            del self.exceptions[: -2 * KEPT_EXCEPTIONS]
            self.chained = False
        self.state = "outside"
