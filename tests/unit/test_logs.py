"""The local side of a log: followed while it grows, and its last lines found."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.logs import follow, offset_of_last_lines
from tests.support.clocks import VirtualClock


def test_follow_reads_on_until_the_end(tmp_path: Path) -> None:
    """The file appears, grows, is cut back and written again, and ends with a last line."""
    path, clock = tmp_path / "train.log", VirtualClock()
    acts = [
        lambda: path.write_bytes(b"one\n"),
        lambda: path.write_bytes(b"one\ntwo\n"),
        lambda: path.write_bytes(b"one\n"),  # a pull begun anew
        lambda: path.write_bytes(b"one\ntwo\nthree\n"),
    ]
    ends = iter([False] * 12)

    def over() -> bool:
        if acts:
            acts.pop(0)()
        ended = next(ends, True)
        if ended and not path.read_bytes().endswith(b"last"):
            path.write_bytes(b"one\ntwo\nthree\nlast")
        return ended

    assert b"".join(follow(path, clock, over=over)) == b"one\ntwo\nthree\nlast"
    assert clock.monotonic() > 0, "it must wait where nothing came"


def test_follow_begins_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(bytes(1_000_000) + b"end")
    pieces = list(follow(path, VirtualClock(), over=lambda: True, offset=1_000_000))
    assert pieces == [b"end"]
    assert list(follow(tmp_path / "none", VirtualClock(), over=lambda: True)) == []


@settings(deadline=None)
@given(
    data=st.lists(st.sampled_from([b"\n", b"a", b"\r", b"x" * 40_000])).map(b"".join),
    lines=st.integers(min_value=1, max_value=6),
)
def test_the_last_lines_are_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, lines: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    every = data.split(b"\n")
    if every[-1] == b"":
        every.pop()
        wanted = b"".join(line + b"\n" for line in every[-lines:])
    else:
        wanted = b"\n".join(every[-lines:])
    assert data[offset_of_last_lines(path, lines) :] == wanted
