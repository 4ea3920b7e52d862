"""Prints what the `local` provider costs: seconds of each verb and the boot, memory, CPU at rest.

python benches/local_provider.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paramiko

from providers.base import InstanceState
from tests.support.local_machine import LocalMachine, wait_until


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def cpu_s(pid: int) -> float:
    """Return CPU seconds of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> tuple[float, float]:
    """Return resident and proportional memory."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text().split()
    return tuple(int(text[text.index(k) + 1]) / 1024 for k in ("Rss:", "Pss:"))  # type: ignore[return-value]


def run_true(client: paramiko.SSHClient) -> int:
    return int(client.exec_command("true")[1].channel.recv_exit_status())


def one_life(machine: LocalMachine, label: str, rows: dict[str, list[float]]) -> None:
    provider = machine.provider
    request = machine.request(label)
    began = time.perf_counter()
    instance = provider.launch(request)
    rows["launch returns"].append(time.perf_counter() - began)
    wait_until(lambda: machine.state(label) is InstanceState.READY, 60, 0.005)
    rows["launch to READY"].append(time.perf_counter() - began)
    instance = provider.describe(instance.id)
    with machine.login(instance) as client:
        client.exec_command("true")[1].read()
        rows["launch to first command done"].append(time.perf_counter() - began)
        rows["command on an open connection"].append(timed(partial(run_true, client)))
    rows["describe"].append(timed(partial(provider.describe, instance.id)))
    rows["find"].append(timed(partial(provider.find, "")))
    rows["terminate, until gone"].append(timed(partial(provider.terminate, instance.id)))
    assert machine.state(label) is None


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    rows: dict[str, list[float]] = {
        name: []
        for name in (
            "launch returns",
            "launch to READY",
            "launch to first command done",
            "command on an open connection",
            "describe",
            "find",
            "terminate, until gone",
        )
    }
    with tempfile.TemporaryDirectory() as home:
        machine = LocalMachine(Path(home))
        try:
            for n in range(rounds):
                one_life(machine, f"bench-{n}", rows)
            machine.ready("rest")
            pids = sorted(machine.living()["rest"], key=lambda p: memory_mib(p)[0])
            before = [cpu_s(p) for p in pids]
            time.sleep(10)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds")
            for name, seconds in rows.items():
                middle, worst = statistics.median(seconds), max(seconds)
                print(f"{name:32} median {middle * 1000:8.1f} ms   worst {worst * 1000:8.1f} ms")
            for name, pid, used in zip(("guard", "server"), pids, before, strict=True):
                rss, pss = memory_mib(pid)
                share = (cpu_s(pid) - used) / 10 * 100
                print(f"{name:32} RSS {rss:.1f} MiB, PSS {pss:.1f} MiB, CPU at rest {share:.1f} %")
        finally:
            machine.close()


if __name__ == "__main__":
    main()
