"""RSS of `gpujob supervise` with one job, and with more: MB for the first, MB for each further one.

python -m benches.supervisor_memory [FURTHER JOBS]
"""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.gpujob_process import Gpujob

SETTLE_S = 20.0  # after the last one runs: sweeps and several looks at each


def memory_mb(pid: int) -> dict[str, float]:
    """Return VmRSS and its private part, VmHWM, of a process; MB are 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(
        line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM", "Rss"))
    )
    return {name: int(text.split()[0]) * 1024 / 1e6 for name, text in fields.items()}


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running(tool: Gpujob, count: int) -> None:
    """Wait until so many jobs run, then for a while."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        jobs = tool.run("ps", "--json").json()["jobs"]
        if sum(job["state"] == "RUNNING" for job in jobs) == count:
            time.sleep(SETTLE_S)
            return
        time.sleep(2)
    sys.exit(f"never {count} jobs running")


def shown(pid: int, jobs: int) -> float:
    """Print one line; return the RSS."""
    before = cpu_s(pid)
    time.sleep(10)
    spent = (cpu_s(pid) - before) / 10
    figures = memory_mb(pid)
    words = ", ".join(f"{name} {value:.1f}" for name, value in sorted(figures.items()))
    print(f"{jobs:>3} jobs: {words} MB; CPU {100 * spent:.1f} %", flush=True)
    return figures["VmRSS"]


def main() -> None:
    """Print the figures."""
    further = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with TemporaryDirectory(prefix="gpujob-bench-") as folder:
        tool = Gpujob(Path(folder))
        path = tool.write_job(steps=100_000, seconds_per_step=1)
        try:
            tool.run("submit", str(path), "--yes", "--detach")
            running(tool, 1)
            pid = int((tool.home / "supervise.lock").read_text())
            first = shown(pid, 1)
            for number in range(further):
                place = f"output={folder}/out-{number}"
                tool.run("submit", str(path), "--yes", "--detach", "--set", place)
            running(tool, 1 + further)
            last = shown(pid, 1 + further)
            print(f"one job {first:.1f} MB, each further one {(last - first) / further:.2f} MB")
            tool.run("cancel", "--all")
        finally:
            tool.end_all()


if __name__ == "__main__":
    main()
