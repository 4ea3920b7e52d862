"""The primitives of what is shown: widths hold, numbers have units, nothing moves the cursor."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plain import harmless
from orchestrator.report_text import (
    Column,
    bar,
    cells,
    clip,
    duration,
    exact_money,
    money,
    number,
    screen_of,
    size,
    sparkline,
    table,
    wrap,
)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (Decimal(0), "$0.00"),
        (Decimal("0.000833"), "$0.0008"),
        (Decimal("0.00999"), "$0.0100"),
        (Decimal("2.405"), "$2.41"),
        (Decimal("1234.5"), "$1234.50"),
        (None, "-"),
    ],
)
def test_money(usd, text):
    assert money(usd) == text


def test_exact_money_is_never_scientific():
    assert exact_money(Decimal("1E+3")) == "1000.000000"
    assert exact_money(Decimal("0.0000004")) == "0.000000"
    assert exact_money(Decimal("0.0000005")) == "0.000001"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"),
     (86_400, "1d0h"), (-5, "0s"), (None, "-")],
)  # fmt: skip
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_sizes_are_decimal():
    assert [size(n) for n in (0, 999, 1000, 6_200_000, 8_100_000_000)] == [
        "0 B", "999 B", "1.0 kB", "6.2 MB", "8.1 GB",
    ]  # fmt: skip


def test_numbers():
    assert [number(x) for x in (None, 1.28449, 2531.4)] == ["-", "1.284", "2,531"]


@pytest.mark.parametrize(("done", "total", "text"), [
    (0, 10, "----------"), (5, 10, "#####-----"), (10, 10, "##########"),
    (99, 10, "##########"), (-1, 10, "----------"), (3, 0, "----------"),
])  # fmt: skip
def test_bar(done, total, text):
    assert bar(done, total, 10) == text


def test_sparkline_marks_what_is_no_number():
    assert sparkline([3.0, 2.2, 1.0], 10) == "█▅▁"
    assert sparkline([1.0, float("nan"), 2.0], 10) == "▁x█"
    assert sparkline([float("nan")] * 3, 10) == "xxx"
    assert sparkline([], 10) == ""
    assert sparkline([1.7e308, -1.7e308], 2) == "█▁"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=300), st.integers(1, 60))
def test_sparkline_is_never_wider_than_asked(values, width):
    assert len(sparkline(values, width)) <= width


@given(st.text())
def test_harmless_text_has_no_control_left(text):
    shown = harmless(text)
    assert "\x1b" not in shown
    assert all(char.isprintable() or char == " " or not char.isascii() for char in shown)
    assert "\n" not in shown


def test_a_name_cannot_paint():
    assert harmless("a\x1b[2Jb\r\nc\u202e") == "a?[2Jb  c?"


@given(st.text(), st.integers(0, 60))
def test_clip_holds_the_width(text, width):
    assert cells(clip(text, width)) <= width


def test_wide_characters_count_twice():
    assert cells("模型") == 4
    assert clip("模型模型", 5) == "模型…"


@given(st.text(alphabet="abc d", max_size=200), st.integers(10, 80))
def test_wrap_loses_no_word(text, width):
    assert " ".join(wrap(text, width)).split() == text.split()


COLUMNS = (
    Column("job", floor=8, keep=90),
    Column("where", floor=6, keep=10),
    Column("age", right=True, keep=5),
    Column("cost", right=True),
)


@given(
    st.lists(
        st.tuples(*[st.text(max_size=60)] * 2, *[st.text("0123456789$.hms", max_size=10)] * 2),
        max_size=5,
    ),
    st.integers(20, 200),
)
def test_a_table_holds_its_width_and_keeps_the_cost(rows, width):
    lines = table(COLUMNS, rows, width)
    assert len(lines) == len(rows) + 1
    assert all(cells(line) <= width for line in lines)
    assert "cost" in lines[0]
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.endswith(row[-1].rstrip()), "a number was cut"


def test_the_least_needed_column_goes_first():
    rows = [("a" * 20, "RTX 4090 runpod", "2h14m", "$2.60")]
    assert table(COLUMNS, rows, 80)[0].split() == ["job", "where", "age", "cost"]
    assert table(COLUMNS, rows, 24)[0].split() == ["job", "where", "cost"]
    assert table(COLUMNS, rows, 18)[0].split() == ["job", "cost"]


class _Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        raise OSError


@pytest.mark.parametrize(
    ("stream", "environ", "colour", "width"),
    [
        (_Terminal(), {}, True, 80),
        (_Terminal(), {"NO_COLOR": "1"}, False, 80),
        (_Terminal(), {"TERM": "dumb"}, False, 80),
        (_Terminal(), {"COLUMNS": "132"}, True, 132),
        (_Terminal(), {"COLUMNS": "10"}, True, 40),
        (io.StringIO(), {}, False, 200),
        (io.StringIO(), {"COLUMNS": "80"}, False, 80),
    ],
)
def test_screen(stream, environ, colour, width):
    screen = screen_of(stream, environ)
    assert (screen.colour, screen.width) == (colour, width)
