"""Prints the memory of one supervisor with 1 and with 50 jobs in training, on the fake cloud.

`python benches/supervisor_memory.py`. Promised: 120 MB for one job, 5 MB per further one.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

COUNTS = (1, 50)


def main() -> None:
    """Measure each count in a process of its own."""
    found = {}
    for count in COUNTS:
        done = subprocess.run(
            [sys.executable, __file__, str(count)], capture_output=True, text=True, check=True
        )
        found[count] = float(done.stdout)
        print(f"{count:3d} jobs in training: {found[count]:6.1f} MB")
    few, many = COUNTS
    print(f"each further job: {(found[many] - found[few]) / (many - few):.2f} MB")


def measure(count: int) -> None:
    """Print the resident size in MB once `count` jobs train, their threads all at work."""
    from orchestrator.clock import SystemClock, WakeableClock
    from orchestrator.home import open_home
    from orchestrator.runner import Runner
    from orchestrator.store import Store
    from orchestrator.supervisor import Supervisor
    from providers.fake import DEFAULT_OFFERS, FakeCloud, FakeProvider
    from tests.support.core import new_job
    from tests.support.stub_site import Stub

    clock = SystemClock()
    home = open_home(Path(tempfile.mkdtemp(prefix="gpujob-bench-")))
    store = Store.open(home.database_url)
    stub = Stub(clock, work_s=1e9, log=b"a line of the log\n" * 50_000)
    for number in range(count):
        store.create_job(replace(new_job(f"{number:06x}", DEFAULT_OFFERS[0])), now=clock.now())
    provider = FakeProvider(FakeCloud(clock, random.Random(1)))
    runner = Runner(store, {"fake": provider}, stub.make, home, clock, "owner")
    supervisor = Supervisor(runner, WakeableClock())
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    while len([job for job in supervisor.jobs if supervisor.armed(job)]) < count:
        time.sleep(0.2)
    time.sleep(5.0)
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in s)
    print(int(line.split()[1]) / 1000)
    supervisor.detach()
    thread.join(30.0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
    else:
        main()
