"""The painter: what a terminal shows in the end, seen through a small terminal of our own."""

from __future__ import annotations

import io
import re

from orchestrator.paint import Painter
from orchestrator.report_text import Screen


class Terminal(io.StringIO):
    """Understands what the painter writes: text, new lines, "up and to the start", erasing."""

    def __init__(self):
        super().__init__()
        self.rows = [""]
        self.at = 0

    def write(self, text):
        for piece in re.findall(r"\x1b\[\d*[A-Z]|\x1b\[[\d;]*m|\n|[^\x1b\n]+", text):
            if piece == "\n":
                self.at += 1
                if self.at == len(self.rows):
                    self.rows.append("")
            elif piece.endswith("F") and piece.startswith("\x1b"):
                self.at = max(0, self.at - int(piece[2:-1]))
            elif piece == "\x1b[J":
                self.rows = [*self.rows[: self.at], ""]
            elif piece == "\x1b[K" or (piece.endswith("m") and piece.startswith("\x1b")):
                continue
            else:
                self.rows[self.at] = piece
        return len(text)

    @property
    def shown(self):
        return [row for row in self.rows if row]


def _painter(width=80):
    terminal = Terminal()
    return terminal, Painter(terminal, Screen(width=width, tty=True))


def test_a_new_screen_replaces_the_last_one():
    terminal, painter = _painter()
    painter.paint(["a", "b", "c"])
    painter.paint(["d"])
    assert terminal.shown == ["d"]
    painter.paint(["e", "f"])
    assert terminal.shown == ["e", "f"]


def test_kept_lines_stay_above():
    terminal, painter = _painter()
    painter.paint(["live"])
    painter.keep(["kept"])
    assert terminal.shown == ["kept", "live"]
    painter.paint(["live 2"])
    assert terminal.shown == ["kept", "live 2"]
    painter.write("a log line\nand another\n")
    assert terminal.shown == ["kept", "a log line", "and another", "live 2"]


def test_the_same_screen_is_not_written_again():
    terminal, painter = _painter()
    painter.paint(["a"])
    before = len(terminal.rows)
    writes: list[str] = []
    terminal.write = writes.append
    painter.paint(["a"])
    assert not writes
    assert len(terminal.rows) == before


def test_no_line_wraps():
    terminal, painter = _painter(width=20)
    painter.paint(["x" * 50])
    assert max(map(len, terminal.shown)) <= 20


def test_settled_lines_are_never_erased():
    terminal, painter = _painter()
    painter.paint(["the end"])
    painter.settle()
    painter.paint(["next"])
    assert terminal.shown == ["the end", "next"]


def test_clear_takes_the_screen_away():
    terminal, painter = _painter()
    painter.keep(["kept"])
    painter.paint(["live", "live"])
    painter.clear()
    assert terminal.shown == ["kept"]


def test_a_dead_terminal_ends_the_painting_and_nothing_else():
    class Gone(io.StringIO):
        def write(self, _text):
            raise OSError(5, "Input/output error")

    painter = Painter(Gone(), Screen(tty=True))
    painter.paint(["a"])
    assert painter.dead
    painter.keep(["b"])
    painter.clear()
    painter.settle()


def test_a_window_that_became_narrower():
    terminal, painter = _painter(width=80)
    painter.keep(["kept"])
    painter.paint(["x" * 60, "y"])
    terminal.rows = ["kept", "x" * 40, "x" * 20, "y", ""]  # as a terminal of 40 wraps it
    terminal.at = 4
    painter.fit(Screen(width=40, tty=True))
    painter.paint(["z"])
    assert terminal.shown == ["kept", "z"]


def test_a_tall_screen_shows_its_end():
    terminal, painter = _painter()
    painter.paint([f"line {i}" for i in range(100)])
    assert terminal.shown[-1] == "line 99"
    assert len(terminal.shown) <= 24
