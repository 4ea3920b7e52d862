"""gpujob that kills itself at a named point: `python -m tests.support.kill_main submit ...`.

`GPUJOB_TEST_KILL_AT`: a number (the n-th point of this process), a name such as
`provider.after:launch`, or a name and the how-manieth time, `journal.after:StepDone#3`.
`GPUJOB_TEST_POINTS`: a file to which every point reached is appended, one a line.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path


def hook_from(kill_at: str, record_to: str) -> Callable[[str], None]:
    """Return the hook for `points.install` that these two settings ask for."""
    wanted, _, nth = kill_at.partition("#")
    reached: Counter[str] = Counter()
    lock = threading.Lock()

    def hook(name: str) -> None:
        with lock:
            reached[name] += 1
            reached[""] += 1
            if record_to:
                with Path(record_to).open("a", encoding="utf-8") as file:
                    file.write(name + "\n")
            count = reached[""] if wanted.isdigit() else reached[name]
            due = int(wanted) if wanted.isdigit() else int(nth or 1)
            if (wanted.isdigit() or wanted == name) and count == due:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def main() -> None:
    """Install the hook and run gpujob."""

    from orchestrator import points

    points.install(
        hook_from(
            os.environ.get("GPUJOB_TEST_KILL_AT", ""), os.environ.get("GPUJOB_TEST_POINTS", "")
        )
    )
    sys.argv[0] = "gpujob"
    runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
