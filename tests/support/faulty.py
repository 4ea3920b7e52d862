"""One `gpujob submit` on the simulated RunPod under one fault, and what it cost.

What is asserted is the guarantee: afterwards no pod of ours lives and foreign ones do, and the exit
code says what happened. What is told is the price: pod-seconds billed beyond a run without fault.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.support.cloud import Cloud, axolotl_mounts, cloud
from tests.support.gpujob_process import Gpujob

# Everything that waits, short; the rules are the documented ones.
FAST = {
    "GPUJOB_POLL_REMOTE_S": "0.3",
    "GPUJOB_WATCH_REMOTE_S": "0.5",
    "GPUJOB_SITE_REMOTE_S": "0.2",
    "GPUJOB_SITE_RETRY_S": "0.3",
    "GPUJOB_REQUESTS_PER_MINUTE": "6000",
    "GPUJOB_SETTLE_READS": "4",
    "GPUJOB_SETTLE_GAP_S": "0.3",
    "GPUJOB_SETTLE_LATE_1_S": "2",
    "GPUJOB_SETTLE_LATE_2_S": "4",
    "GPUJOB_TERMINATE_FIRST_S": "0.2",
    "GPUJOB_TERMINATE_MAX_S": "1",
    "GPUJOB_AGENT_LOST_S": "6",
    "GPUJOB_SSH_LOST_S": "10",
    "GPUJOB_RUNPOD_LIST_LAG_S": "0.2",
    "GPUJOB_RUNPOD_BOOT_TIMEOUT_S": "12",
}
# What an image's Python is asked for: Axolotl's version, and whether PyTorch has the GPUs.
PYTHON = """\
#!/bin/sh
case "$2" in
  *version*axolotl*) echo 0.21.0 ;;
  *torch.cuda*)
    case "$(nvidia-smi)" in
      *"CUDA Version: 13"*) echo '{"cuda": "13.0", "available": true, "count": 1}' ;;
      *) echo '{"cuda": "13.0", "available": false, "count": 0}' ;;
    esac ;;
  *) exec %s "$@" ;;
esac
"""
VENV = "/workspace/axolotl-venv"  # where Axolotl's cloud image has its own
LIMIT_S = 400.0
OK, NO_OFFER, UNFINISHED = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Fault:
    """A scenario: switches armed before the submit, or harm done once the training runs.

    ends: the exit codes that tell the truth. settings: the simulator's, from its start. env:
    settings of gpujob beside FAST. skypilot, dstack: what SkyPilot 0.14.1 and dstack 0.22.5 did in
    the same one, where it was measured.
    """

    name: str
    armed: tuple[dict[str, Any], ...] = ()
    harm: dict[str, Any] | None = None
    ends: tuple[int, ...] = (OK,)
    settings: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    skypilot: str = ""
    dstack: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `billed_s` is of our pods, all together."""

    code: int
    billed_s: float
    left: int
    creates: int
    wall_s: float
    foreign_alive: bool
    text: str


def tool(folder: Path) -> Gpujob:
    """Return a gpujob with a stub in the place of Axolotl, as a pod finds it."""
    found = Gpujob(folder, **FAST)
    found.environ.pop("GPUJOB_AXOLOTL_ENV", None)
    return found


def job(found: Gpujob, **switches: Any) -> Path:
    """Return a job file for one L4, or another GPU where that is refused; switches: the stub's."""
    path = found.write_job(**switches)
    python = found.stub / "bin" / "python"
    python.unlink()
    python.write_text(PYTHON % sys.executable)
    python.chmod(0o755)
    section = json.dumps({"providers": ["runpod"], "types": ["L4", "A40"]})
    path.write_text(path.read_text().replace("gpu: {providers: [local]}", f"gpu: {section}"))
    return path


@contextlib.contextmanager
def stage(
    folder: Path, *, step_s: float = 0.1, **settings: Any
) -> Iterator[tuple[Cloud, Gpujob, Path]]:
    """Yield a simulator with a foreign pod, a gpujob set up for it, and a job."""
    folder.mkdir(parents=True, exist_ok=True)
    found = tool(folder)
    path = job(found, seconds_per_step=step_s)
    mounts = [f"--mount={found.stub}:{VENV}", *axolotl_mounts(Path(sys.prefix))]
    with cloud(folder / "cloud", *mounts, **settings) as running:
        found.environ |= {"RUNPOD_API_KEY": running.key, "RUNPOD_API_BASE_URL": running.url}
        try:
            yield running, found, path
        finally:
            found.end_all()


def training(running: Cloud) -> str | None:
    """Return the id of a pod in which a trainer is at work."""
    for pod in running.pods():
        with contextlib.suppress(psutil.Error, TypeError):
            for process in psutil.Process(pod["pid"]).children(recursive=True):
                if "train" in process.cmdline() and "axolotl" in " ".join(process.cmdline()):
                    return str(pod["id"])
    return None


def training_or_over(running: Cloud, process: subprocess.Popen[str]) -> str | bool | None:
    return training(running) or process.poll() is not None


def play(fault: Fault, folder: Path) -> Outcome:
    """Run the scenario to its end."""
    step_s = 0.5 if fault.harm else 0.1  # harm takes a moment to be done
    with stage(folder, step_s=step_s, **fault.settings) as (running, found, path):
        foreign = running.foreign()
        found.environ |= fault.env
        for armed in fault.armed:
            running.fault(**armed)
        began = time.monotonic()
        process = found.start("submit", str(path), "--yes")
        if fault.harm:
            look = partial(training_or_over, running, process)
            pod = running.wait(look, "training", LIMIT_S, pause_s=0.2)
            assert isinstance(pod, str), "it was over before any harm was done"
            do_harm(running, pod, dict(fault.harm))
        done = found.finish(process, timeout_s=LIMIT_S)
        running.calm()
        living = [p["id"] for p in running.pods()]
        now = running.state()["now"]
        billed_s = sum(
            (p["ended_at"] or now) - p["created_at"]
            for p in running.pods(living=False)
            if p["id"] != foreign
        )
        return Outcome(
            code=done.code,
            billed_s=billed_s,
            left=len([pod for pod in living if pod != foreign]),
            creates=len(running.requests("create")),
            wall_s=time.monotonic() - began,
            foreign_alive=foreign in living,
            text=done.out + done.err,
        )


def do_harm(running: Cloud, pod: str, harm: dict[str, Any]) -> None:
    name = harm.pop("name")
    if name.startswith("run_"):
        running.hurt(pod, name, **harm)
    else:
        running.fault(name, **harm)


def arm(name: str, **options: Any) -> tuple[dict[str, Any], ...]:
    return ({"name": name} | options,)


Row = dict[str, Any]  # JSON: one fault and what came of it


def row_of(fault: Fault, came: Outcome, base_s: float) -> Row:
    """Return what is kept of a run. base_s: billed seconds of a run without fault."""
    return {
        "fault": fault.name,
        "exit": came.code,
        "creates": came.creates,
        "left": came.left,
        "extra_s": round(came.billed_s - base_s, 1),
        "held": came.left == 0 and came.foreign_alive and came.code in fault.ends,
    }


def table(rows: list[Row], faults: Iterable[Fault]) -> str:
    """Return the fault table as Markdown."""
    rivals = {fault.name: (fault.skypilot or "-", fault.dstack or "-") for fault in faults}
    head = (
        "| fault | gpujob: exit | create calls | left alive | extra billed s "
        "| SkyPilot | dstack |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['fault']} | {row['exit']} | {row['creates']} | {row['left']} "
        f"| {row['extra_s']:.1f} | {' | '.join(rivals.get(row['fault'], ('-', '-')))} |\n"
        for row in rows
    )
