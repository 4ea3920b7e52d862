"""`gpujob logs`: the training's log, byte for byte into a pipe, harmless text on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, looked

if TYPE_CHECKING:
    from orchestrator.opened import Looked
    from orchestrator.views import JobView

LOOK_EVERY_S = 1.0  # how often the store is asked whether a followed job is over
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SINCE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def logs(word: str, *, follow: bool, since: str | None, attempt: int | None) -> int:
    """Print the log; with `follow`, go on through later attempts until the job is over; exit 0."""
    with looked() as state:
        now = state.now()
        job = state.store.job(state.store.find_job(word), now=now)
        moment = None if since is None else moment_of(since, now)
        number = _attempt_number(job, attempt)
        path = state.home.log_path(job.id, number)
        from orchestrator.log_index import offset_since

        offset = offset_since(path, moment) if moment is not None else 0
        if follow:
            _follow(state, job, number, offset, only=attempt)
        elif path.exists():
            _pour(_blocks(path, offset), state)
        else:
            err(f"no log yet: attempt {number} is {job.attempts[number - 1].state}")
    return Exit.OK


def _attempt_number(job: JobView, wanted: int | None) -> int:
    if not job.attempts:
        raise Refused(f"job #{job.id} has no attempt yet", remedy="Try again in a moment.")
    numbers = [attempt.number for attempt in job.attempts]
    if wanted is None:
        return numbers[-1]
    if wanted not in numbers:
        raise Refused(f"job #{job.id} has no attempt {wanted}; it has {numbers[-1]}")
    return wanted


def moment_of(text: str, now: float) -> float:
    """Return the UNIX seconds of "10m", "2h", "14:05", "2026-11-30 14:05"; raises Refused."""
    match = SINCE.fullmatch(text.strip())
    if match:
        return now - float(match[1]) * UNITS_S[match[2]]
    here = datetime.fromtimestamp(now).astimezone()
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text.strip(), form).time()  # noqa: DTZ007 - zone is added
        except ValueError:
            continue
        then = here.replace(hour=clock.hour, minute=clock.minute, second=clock.second)
        return (then if then <= here else then - timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except ValueError:
        raise Refused(
            f"--since {text}: not a time",
            remedy="Give 90s, 10m, 2h, 1d, a time of day such as 14:05, or a date and time.",
        ) from None


def _blocks(path: Path, offset: int) -> Iterable[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while block := file.read(1 << 18):
            yield block


def _follow(state: Looked, job: JobView, number: int, offset: int, *, only: int | None) -> None:
    from orchestrator.logs import follow

    while True:
        over = _over(state, job.id, number)
        path = state.home.log_path(job.id, number)
        _pour(follow(path, state.clock, over=over, offset=offset), state)
        latest = state.store.job(job.id, now=state.now())
        if only is not None or latest.attempts[-1].number == number:
            return
        number, offset = number + 1, 0
        err(f"-- attempt {number} --")


def _over(state: Looked, job_id: str, number: int) -> Callable[[], bool]:
    """Return a test for "no more bytes will come", which asks the store once a second."""
    last = [float("-inf"), False]

    def over() -> bool:
        if state.clock.monotonic() - last[0] >= LOOK_EVERY_S:
            job = state.store.job(job_id, now=state.now())
            newer = job.attempts[-1].number > number
            last[:] = [state.clock.monotonic(), newer or job.closed_at is not None]
        return bool(last[1])

    return over


def _pour(blocks: Iterable[bytes], state: Looked) -> None:
    """Write bytes as they are into a pipe or file; on a terminal as text that cannot act on it."""
    if not state.screen.tty:
        for block in blocks:
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
        return
    from orchestrator.log_text import LogText

    text = LogText(tty=True, width=state.screen.width)
    for block in blocks:
        sys.stdout.write(text.feed(block))
        sys.stdout.flush()
    sys.stdout.write(text.end())
    sys.stdout.flush()
