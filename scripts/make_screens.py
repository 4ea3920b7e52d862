"""Capture what a person sees, at 80 and 200 columns, into docs/screens/. Needs tmux.

    python scripts/make_screens.py [scene ...]

The commands are the real ones in a real terminal, on a home of their own below a temporary folder.
The job of `submit`, `logs` and `status` really runs on `local`, with the quickstart's model and
data: set GPUJOB_AXOLOTL_ENV to a ready Axolotl environment, else one is built first. The list with
something wrong in it (`ps`, `cost`) is a database filled by tests/support/filled_store.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "screens"
WIDTHS = (80, 200)
ROWS = 64
JOB = ROOT / "examples" / "quickstart" / "job.yaml"


class Terminal:
    """One tmux session; `screen` is what stands on it now."""

    def __init__(self, name: str, width: int, home: Path) -> None:
        self.name = f"gpujob-screens-{os.getpid()}-{name}-{width}"
        given = os.environ.get("GPUJOB_AXOLOTL_ENV", "")
        shell = f"env PS1='$ ' GPUJOB_HOME={home} GPUJOB_AXOLOTL_ENV={given} bash --norc"
        tmux("new-session", "-d", "-s", self.name, "-x", str(width), "-y", str(ROWS), shell)
        self.type(f'gpujob() {{ {sys.executable} -m orchestrator "$@"; }}')
        self.type(f"cd {shlex.quote(str(home.parent))}; export PYTHONPATH={ROOT}")
        self.type("export GPUJOB_SWEEP=off GPUJOB_LOCAL_PRICE_USD_PER_HOUR=0.10; clear")
        self.until(r"\A\$ ?$")

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        tmux("send-keys", "-t", self.name, line, "Enter")

    def key(self, key: str) -> None:
        """Press one key, as tmux names it."""
        tmux("send-keys", "-t", self.name, key)

    @property
    def screen(self) -> str:
        """The screen, blanks at line ends and below the text removed."""
        text = tmux("capture-pane", "-p", "-t", self.name)
        return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"

    def until(self, pattern: str, *, within_s: float = 900.0) -> str:
        """Return the screen once it shows the pattern."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            screen = self.screen
            if re.search(pattern, screen, flags=re.MULTILINE):
                return screen
            time.sleep(0.3)
        raise SystemExit(f"{self.name}: never {pattern!r}\n{self.screen}")

    def close(self) -> None:
        """End the session."""
        tmux("kill-session", "-t", self.name)


def tmux(*words: str) -> str:
    """Return what tmux prints."""
    done = subprocess.run(["tmux", *words], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def terminal(name: str, width: int, home: Path) -> Iterator[Terminal]:
    """Lend a terminal."""
    one = Terminal(name, width, home)
    try:
        yield one
    finally:
        one.close()


def save(name: str, width: int, text: str) -> None:
    """Write one capture; the prompt and this machine's folders are no part of it."""
    OUT.mkdir(exist_ok=True)
    if names_a_folder(text):
        raise SystemExit(f"{name}: a folder of this machine stands on the screen\n{text}")
    path = OUT / f"{name}-{width}.txt"
    path.write_text(re.sub(r"\n\$ ?$", "\n", text.rstrip("\n") + "\n"), encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(text.splitlines())} lines")


def names_a_folder(text: str) -> bool:
    """Return whether a text names a folder of this very machine, even across a line's end."""
    private = [str(ROOT), os.environ.get("GPUJOB_AXOLOTL_ENV", "")]
    return any(place and place in text.replace("\n", "") for place in private)


def newest_lines(one: Terminal, count: int = 16) -> str:
    """Return the last lines of a screen, once none of them names a folder of this machine."""
    while True:
        lines = one.screen.splitlines()[-count:]
        if len(lines) == count and not names_a_folder("\n".join(lines)):
            return "\n".join(lines) + "\n"
        time.sleep(1.0)


def scene_submit(folder: Path) -> None:
    """Capture a job in the middle and at its end, with its log and its status."""
    for width in WIDTHS:
        home = folder / f"demo-{width}" / "home"
        shutil.copytree(JOB.parent, home.parent)
        with terminal("submit", width, home) as one:
            one.type("gpujob submit job.yaml")
            one.until(r"train +#{6,}.*ETA")
            save("submit-running", width, one.screen)
            with terminal("logs", width, home) as two:
                two.type("gpujob logs quickstart -f")
                two.until(r"'loss'")
                save("logs-follow", width, newest_lines(two))
            one.until(r"^  cost .*notional price;")
            save("submit-end", width, one.screen)
            one.type("clear; gpujob status quickstart")
            one.until(r"^  output")
            save("status", width, one.screen)


def scene_list(folder: Path) -> None:
    """Capture the list and the costs when a machine still bills, and one job of it."""
    sys.path.insert(0, str(ROOT))
    from tests.support.filled_store import fill

    home = folder / "list"
    _, store, ids = fill(home, t0=time.time() - 7_000)
    store.save_strays([], providers=["runpod"])
    store.journal.acquire(ids["running"], "workstation/boot/1|4711|99|ff", 3_600)
    for width in WIDTHS:
        with terminal("list", width, home) as one:
            for name, words, last in (
                ("ps", "ps", r"legal-ar"),
                ("cost", "cost", r"still grows"),
                ("status-failed", "status intents", r"^  output"),
                ("doctor", "doctor", r"provider ssh"),
                ("help", "--help", r"Exit codes"),
            ):
                one.type(f"clear; gpujob {words}")
                one.until(last)
                save(name, width, one.screen)
    store.close()


def scene_error(folder: Path) -> None:
    """Capture what a mistake in a job file gets."""
    home = folder / "error"
    text = JOB.read_text(encoding="utf-8")
    text = text.replace("  providers: [local]", "  max_price: 1\n  providers: [local]")
    (folder / "job.yaml").write_text(text)
    (folder / "tiny-llama").symlink_to(JOB.parent / "tiny-llama")
    (folder / "data.jsonl").symlink_to(JOB.parent / "data.jsonl")
    for width in WIDTHS:
        with terminal("error", width, home) as one:
            one.type("clear; gpujob submit job.yaml")
            one.until(r"\(exit 2\)")
            save("error", width, one.screen)


def scene_plan(folder: Path) -> None:
    """Capture what a job needs, where it fits and what it costs there, from the price list."""
    shutil.copytree(ROOT / "examples" / "qlora", folder / "plan")
    for width in WIDTHS:
        with terminal("plan", width, folder / "plan" / "home") as one:
            one.type("clear; gpujob plan job.yaml")
            one.until(r"billed apart\.$")
            save("plan", width, one.screen)


SCENES: dict[str, Callable[[Path], None]] = {
    "error": scene_error,
    "list": scene_list,
    "plan": scene_plan,
    "submit": scene_submit,
}


def main() -> None:
    """Make the scenes named, or all."""
    if shutil.which("tmux") is None:
        raise SystemExit("this needs tmux (Debian package tmux)")
    chosen = sys.argv[1:] or list(SCENES)
    folder = Path(tempfile.gettempdir()) / "gpujob-demo"  # a fixed name: it stands in captures
    folder.mkdir(mode=0o700)
    try:
        for name in chosen:
            SCENES[name](folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
