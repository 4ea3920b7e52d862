"""`submit` on a real terminal (a pty): the live screen, the question of Ctrl-C, and its answers."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.gpujob_process import WAIT_S, Gpujob, heed_signals

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]


class Terminal:
    """A command on a pty of 80 columns; `seen` is everything it wrote."""

    def __init__(self, tool: Gpujob, *argv: str, columns: int = 80) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=tool.folder,
            env={**tool.environ, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - no thread runs here
        )
        os.close(slave)
        self.seen = ""

    def read(self, seconds: float = 0.2) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.master, 1 << 16).decode("utf-8", "replace")
            except OSError:  # Linux says so at the end of a pty
                time.sleep(0.05)

    def wait_for(self, pattern: str) -> None:
        until = time.monotonic() + WAIT_S
        while not re.search(pattern, self.seen):
            assert time.monotonic() < until, f"never {pattern!r}:\n{self.seen[-3000:]}"
            self.read()

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self.master, text.encode())

    def end(self) -> int:
        until = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < until, self.seen[-3000:]
            self.read()
        self.read(0.1)
        os.close(self.master)
        return self.process.returncode


def _own_terminal() -> None:
    heed_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes SIGINT


@pytest.fixture
def gpujob(tmp_path):
    tool = Gpujob(tmp_path)
    yield tool
    tool.end_all()


def test_the_live_screen_and_ctrl_c_twice(gpujob):
    path = gpujob.write_job(steps=2000, seconds_per_step=0.1)
    terminal = Terminal(gpujob, "submit", str(path))
    terminal.wait_for(r"step \d+/2000")
    assert "\x1b[" in terminal.seen
    assert "Rent it?" not in terminal.seen  # it costs nothing
    terminal.type("\x03")
    terminal.wait_for(r"\[d\]etach")
    terminal.type("\x03")
    terminal.wait_for("machine GONE")
    assert "training CANCELLED" in terminal.seen
    assert terminal.end() == 130
    assert gpujob.job()["teardown"] == "gone"


def test_detach_at_the_question(gpujob):
    path = gpujob.write_job(steps=60, seconds_per_step=0.2)
    terminal = Terminal(gpujob, "submit", str(path))
    terminal.wait_for(r"step \d+/60")
    terminal.type("\x03")
    terminal.wait_for(r"\[d\]etach")
    terminal.type("d\n")
    terminal.wait_for("goes on under gpujob supervise")
    assert terminal.end() == 0
    attached = Terminal(gpujob, "attach", "stub-job", columns=200)
    attached.wait_for("training SUCCEEDED")
    assert attached.end() == 0


def test_go_on_at_the_question(gpujob):
    path = gpujob.write_job(steps=40, seconds_per_step=0.2)
    terminal = Terminal(gpujob, "submit", str(path))
    terminal.wait_for(r"step \d+/40")
    terminal.type("\x03")
    terminal.wait_for(r"\[d\]etach")
    terminal.type("\n")
    terminal.wait_for("training SUCCEEDED")
    assert terminal.end() == 0


def test_no_colour_is_honoured(gpujob):
    gpujob.environ["NO_COLOR"] = "1"
    terminal = Terminal(gpujob, "ps")
    assert terminal.end() == 0
    assert "\x1b[" not in terminal.seen


def test_a_closed_window_lets_go(gpujob):
    path = gpujob.write_job(steps=60, seconds_per_step=0.2)
    terminal = Terminal(gpujob, "submit", str(path))
    terminal.wait_for(r"step \d+/60")
    os.close(terminal.master)  # the kernel sends HUP, and every write fails from now on
    assert terminal.process.wait(WAIT_S) == 130
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "gone")
