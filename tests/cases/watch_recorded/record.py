"""Records the traces beside it: real processes, looked at by the agent's own gauge.

    PYTHONPATH=. python tests/cases/watch_recorded/record.py [NAME...]

Each trace is a child process that does what a training does, good or bad, while this one takes a
sample every half second, as the agent does. What a test then replays is what Linux really said of
it: CPU time, bytes through files and sockets, dead children, the growth of the log, the free disk.
No GPU is here: what takes one stays written by hand, in watch_traces/. Full disk needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.gauge import Gauge
from orchestrator.agent.metrics import GpuSampler
from orchestrator.agent.procs import steady_s

HERE = Path(__file__).parent
EVERY_S, LIMIT_S = 0.5, 5.0
AT_ONCE = 2

# What every child begins with. turn(): from here on it is bad, and the limit runs.
HEAD = """
import json, os, socket, sys, threading, time
def record(**event):
    with open("metrics.jsonl", "a") as file: file.write(json.dumps(event) + "\\n")
def log(text): print(text, flush=True)
def turn(): open("turn", "w").write(str(time.clock_gettime(time.CLOCK_BOOTTIME)))
def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: sum(range(2000))
def step(number, loss=1.5, gradient=0.4, seconds=0.3, quiet=False):
    compute(seconds)
    record(event="log", step=number, loss=loss, grad_norm=gradient)
    if not quiet: log("{'loss': %s}" % loss)
def begin(): record(event="train_begin", step=0, max_steps=99); log("Starting trainer...")
def train(first=1, steps=8):
    for number in range(first, first + steps): step(number)
def pair():
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    return near, server.accept()[0]
def trickle(seconds, out):
    # The other side of the transfer is a process of its own, as it is in the world.
    near, far = pair()
    if os.fork() == 0:
        if os.fork(): os._exit(0)
        os.setsid()
        end = time.monotonic() + seconds
        with open("/dev/zero", "rb") as zero:
            while time.monotonic() < end:
                (far.recv(1 << 20) if out else far.sendall(zero.read(60_000))); time.sleep(0.1)
        os._exit(0)
    os.wait()
    far.close()
    # Bytes through sockets alone are in no figure of /proc: what counts is the file beside them.
    if out: open("weights", "wb").write(bytes(12_000_000))
    end = time.monotonic() + seconds
    with open("weights", "rb" if out else "wb") as file:
        while time.monotonic() < end:
            try:
                if out: near.sendall(file.read(60_000)); time.sleep(0.1)
                else: file.write(near.recv(1 << 20))
            except OSError: break
"""


@dataclass(frozen=True)
class Scene:
    """One trace. kind, reason: what must come of it."""

    about: str
    body: str
    kind: str = "busy"
    reason: str = ""
    # Seconds from the turn to the end of its patience; "disk" and "loss" findings have none.
    patience_s: float = LIMIT_S
    disk_mb: int = 0


SCENES = {
    "train": Scene("steps of a third of a second", "begin()\ntrain(steps=40)"),
    "eval_pause": Scene(
        "an evaluation of twice the limit: only its bar in the log moves",
        """
        begin(); train()
        for part in range(20): compute(0.4); log("%d/20 [00:01<00:02]" % part); time.sleep(0.1)
        record(event="evaluate", step=8, eval_loss=1.4); train(9)
        """,
    ),
    "long_setup": Scene(
        "tokenizing for twice the limit: no line, no record", "compute(11)\nbegin(); train()"
    ),
    "download": Scene(
        "weights over a slow socket for twice the limit", "trickle(11, out=False)\nbegin(); train()"
    ),
    "upload": Scene(
        "after the last step the result is sent over a slow socket",
        "begin(); train(); record(event='train_end', step=8)\ntrickle(11, out=True)",
    ),
    "log_silence": Scene(
        "steps of 4 s on a huge batch, and no line of the log",
        "begin()\nfor n in range(1, 5): step(n, seconds=4, quiet=True)",
    ),
    "stalled_loop": Scene(
        "after step 8 a thread spins; no step, no line",
        "begin(); train(); turn(); compute(60)", "stalled", "STALLED",
    ),
    "hung": Scene(
        "after step 8 it waits for a lock that nobody opens",
        "begin(); train(); turn(); threading.Event().wait(60)", "stalled", "STALLED",
    ),
    "talking_loop": Scene(
        "one warning for ever, and no step: believed eight times as long",
        "begin(); train(); turn()\nwhile True: log('warning: retrying'); time.sleep(0.2)",
        "stalled", "STALLED", 8 * LIMIT_S,
    ),
    "zombie": Scene(
        "a data loader worker died, and its parent waits for it without asking after it",
        """
        begin(); train()
        if os.fork() == 0: os._exit(9)
        turn(); threading.Event().wait(60)
        """,
        "stalled", "STALLED", LIMIT_S / 3,
    ),
    "idle_notebook": Scene(
        "a kernel that was started and forgotten", "turn(); time.sleep(60)", "idle", "IDLE"
    ),
    "nan": Scene(
        "gradients are no number from step 9 on",
        "begin(); train(); turn()\nfor n in range(9, 60): step(n, loss=0.0, gradient='nan')",
        "stalled", "DIVERGED", 0.9,
    ),
    "exploded": Scene(
        "the loss rises to 40 and stays",
        "begin(); train(); turn()\nfor n in range(9, 90): step(n, loss=40.0)",
        "stalled", "DIVERGED", 3.0,
    ),
    "full_disk": Scene(
        "a checkpoint fills the disk",
        """
        begin(); train()
        with open("checkpoint", "wb") as file: file.write(bytes(25 << 20))
        turn(); train(9, 40)
        """,
        "stalled", "DISK_FULL", 0.0, disk_mb=32,
    ),
}  # fmt: skip


@contextlib.contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Lend a small disk where one is asked for."""
    if not megabytes:
        yield
        return
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "gpujob-trace", str(folder)]
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def record(name: str, place: Path) -> None:
    """Write the trace of one scene."""
    scene = SCENES[name]
    patience_s = scene.patience_s if scene.reason else 0.0
    rows: list[list[Any]] = []
    turn_at: float | None = None
    with tempfile.TemporaryDirectory(dir=place) as folder, disk(Path(folder), scene.disk_mb):
        with (Path(folder) / "train.log").open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-c", HEAD + textwrap.dedent(scene.body)],
                cwd=folder, stdout=out, stderr=out,
            )  # fmt: skip
        metrics, log = f"{folder}/metrics.jsonl", f"{folder}/train.log"
        sampler = GpuSampler(metrics)
        sampler.tick()  # finds that there is no nvidia-smi
        gauge = Gauge(folder, log, metrics, sampler)
        start = steady_s()
        while child.poll() is None:
            rows.append(list(gauge.look(os.getpid(), steady_s() - start)))
            turned = Path(folder, "turn")
            if turn_at is None and turned.exists() and turned.read_text():
                turn_at = float(turned.read_text()) - start
            over = turn_at is not None and rows[-1][0] > turn_at + patience_s + 8 * EVERY_S
            if over:
                child.kill()
            time.sleep(max(0.0, start + len(rows) * EVERY_S - steady_s()))
    expect: dict[str, object] = {"kind": scene.kind}
    if turn_at is not None:
        expect |= {"reason": scene.reason, "at_s": round(turn_at - rows[0][0] + patience_s, 2)}
    head = {
        "about": scene.about,
        "recorded": True,
        "limits": {"idle_s": LIMIT_S, "stall_s": LIMIT_S, "every_s": EVERY_S},
        "expect": expect,
    }
    lines = [json.dumps(head), *(json.dumps(row) for row in rows)]
    (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def main(names: list[str]) -> None:
    """Record these, or all, each in a process of its own: a sample is of one's descendants."""
    place = Path(tempfile.mkdtemp(prefix="gpujob-traces-"))
    if len(names) == 1:
        record(names[0], place)
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:  # more would starve each other on a small machine
            list(pool.map(lambda name: subprocess.run([sys.executable, __file__, name], check=True),
                          names or SCENES))  # fmt: skip
    place.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
