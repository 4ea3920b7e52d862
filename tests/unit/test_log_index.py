"""`logs --since`: when the bytes came, and which words mean which moment."""

from __future__ import annotations

from datetime import datetime

import pytest

from orchestrator.cli_logs import moment_of
from orchestrator.exits import Refused
from orchestrator.log_index import index_of, note, offset_since

LOG = b"".join(b"line %03d\n" % i for i in range(100))  # nine bytes a line


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(LOG)
    last = 0.0
    for at, size in ((100.0, 90), (110.0, 180), (110.5, 200), (120.0, 455), (130.0, 900)):
        last = note(path, at=at, size_bytes=size, last_at=last)
    return path


def test_at_most_one_note_a_second(log):
    assert len(index_of(log).read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        (0.0, 0),
        (100.0, 0),
        (100.1, 90),
        (115.0, 180),
        (120.5, 450),  # 455 lies in the middle of a line: the whole line is shown
        (1000.0, 900),
    ],
)
def test_where_it_starts(log, at, offset):
    assert offset_since(log, at) == offset


def test_without_times_all_is_shown(tmp_path):
    assert offset_since(tmp_path / "none.log", 5.0) == 0
    broken = tmp_path / "train.log"
    broken.write_bytes(LOG)
    index_of(broken).write_text("100.0 90\nnot a line\n")
    assert offset_since(broken, 500.0) == 90


def test_a_full_disk_does_not_end_a_job(tmp_path):
    assert note(tmp_path / "no folder" / "train.log", at=9.0, size_bytes=1, last_at=3.0) == 3.0


NOW = datetime(2026, 11, 30, 14, 30, 0).astimezone().timestamp()


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [
        ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2d", 172_800),
        ("14:05", 1500), ("14:29:30", 30), ("15:00", 84_600), ("2026-11-30 14:00", 1800),
    ],
)  # fmt: skip
def test_moments(text, ago_s):
    assert moment_of(text, NOW) == pytest.approx(NOW - ago_s)


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10 parsecs", "25:00"])
def test_what_is_no_moment(text):
    with pytest.raises(Refused, match="not a time"):
        moment_of(text, NOW)
