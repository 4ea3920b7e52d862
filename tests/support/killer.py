"""Run gpujob's command line with a hook at every journal write and provider call.

GPUJOB_TEST_TRACE=FILE appends every point reached as `name#occurrence`. GPUJOB_TEST_KILL_AT names
one: there the process ends itself with SIGKILL, as a power cut would. GPUJOB_TEST_STOP_AT: there
it falls asleep (SIGSTOP) until somebody wakes it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

from orchestrator import points

_seen: Counter[str] = Counter()
_lock = threading.Lock()
_kill_at = os.environ.get("GPUJOB_TEST_KILL_AT")
_stop_at = os.environ.get("GPUJOB_TEST_STOP_AT")
_trace = os.environ.get("GPUJOB_TEST_TRACE")


def hook(name: str) -> None:
    """Count the point, write it down, and die if it is the one."""
    with _lock:
        _seen[name] += 1
        point = f"{name}#{_seen[name]}"
        if _trace:
            with Path(_trace).open("a") as out:
                out.write(point + "\n")
        if point == _kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if point == _stop_at:
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    from orchestrator.__main__ import main

    points.install(hook)
    main()
