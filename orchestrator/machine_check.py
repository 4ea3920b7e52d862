"""Whether a rented machine has what was rented: GPUs, their memory, its driver, its clock. Pure.

What the machine answers is not trusted further than for refusing it. The remote half is one shell
line, and one line of Python once Axolotl's own Python is known.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

from orchestrator.site import SiteRefused
from orchestrator.states import Reason

# Of the memory as sold that a card must show: with ECC on, GDDR cards keep 6 % (an L4 shows 23,034
# of 24,576 MiB).
LEAST_MEMORY = 0.9
SKEW_TOLD_S = 60.0
# Certificates, and the machine's own deadline, are judged by its clock.
SKEW_REFUSED_S = 3600.0
LOCKED_CUDA = (13, 0)  # of the PyTorch in orchestrator/locks/torch.txt
LOOK_TIMEOUT_S = 60.0  # a driver that wakes up takes some seconds a card
TORCH_TIMEOUT_S = 240.0  # the first import reads gigabytes from a cold disk
PART = "== gpujob =="

LOOK = f"""\
nvidia-smi -L; echo '{PART}'
nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits; echo '{PART}'
nvidia-smi | sed -n 's/.*CUDA Version: *\\([0-9.]*\\).*/\\1/p'; echo '{PART}'
date +%s"""
TORCH = (
    "import json, torch; c = torch.cuda; print(json.dumps({'cuda': torch.version.cuda,"
    " 'available': c.is_available(), 'count': c.device_count()}))"
)


@dataclass(frozen=True, slots=True)
class Rented:
    """What was rented. gpus 0: nothing is checked. vram_gib: of one GPU, as sold."""

    gpus: int = 0
    vram_gib: float = 0.0
    torch: bool = True  # False: the machine's GPUs are made up, as a simulated cloud's are


@dataclass(frozen=True, slots=True)
class Found:
    """What the machine has. driver_cuda: the newest CUDA that its driver runs; () unknown."""

    driver_cuda: tuple[int, ...] = ()
    words: str = ""


NOT_RENTED, NOTHING_KNOWN = Rented(), Found()


def judge(answer: str, rented: Rented, now: float) -> Found:
    """Return what `LOOK` found; raises SiteRefused where it is not what was rented.

    now: our clock when the answer came.
    """
    parts = [part.strip() for part in answer.split(PART)]
    if len(parts) != 4:
        raise SiteRefused(Reason.GPU_FAULT, f"nvidia-smi gave no answer: {_cut(answer)}")
    listed, memory, cuda, date = parts
    gpus = [line for line in listed.splitlines() if line.startswith("GPU ")]
    if len(gpus) != rented.gpus:
        message = f"{rented.gpus} GPUs were rented, nvidia-smi lists {len(gpus)}: {_cut(listed)}"
        raise SiteRefused(Reason.GPU_FAULT, message)
    sizes = [int(text) for text in memory.split() if text.isdigit()]
    least = min(sizes, default=0) / 1024
    if len(sizes) != rented.gpus or least < LEAST_MEMORY * rented.vram_gib:
        message = f"GPUs of {rented.vram_gib:g} GiB were rented, nvidia-smi shows {least:.1f}"
        raise SiteRefused(Reason.GPU_FAULT, message)
    skew_s = float(date) - now if date.isdigit() else 0.0
    if abs(skew_s) > SKEW_REFUSED_S:
        message = f"the machine's clock is {skew_s:+.0f} s off"
        raise SiteRefused(Reason.PREPARE_FAILED, message)
    words = f"clock {skew_s:+.0f} s" if abs(skew_s) > SKEW_TOLD_S else ""
    return Found(version(cuda), words)


def refuse_old_driver(found: Found, built_for: tuple[int, ...]) -> None:
    """Raise SiteRefused where the driver cannot run a CUDA build. Minor versions are compatible."""
    if found.driver_cuda and found.driver_cuda[0] < built_for[0]:
        have, need = ".".join(map(str, found.driver_cuda)), ".".join(map(str, built_for))
        message = f"the driver runs CUDA {have} at most, PyTorch is built for {need}"
        raise SiteRefused(Reason.DRIVER_MISMATCH, message)


def torch_line(python: str) -> str:
    """Return the shell line that asks PyTorch."""
    return f"{shlex.quote(python)} -c {shlex.quote(TORCH)}"


def judge_torch(answer: str, rented: Rented, found: Found) -> None:
    """Raise SiteRefused where PyTorch, asked by `torch_line`, cannot use the GPUs."""
    lines = [line for line in answer.splitlines() if line.startswith("{")]
    try:
        said = json.loads(lines[-1])
        cuda, available, count = said["cuda"], said["available"], said["count"]
    except (IndexError, ValueError, KeyError, TypeError):
        message = f"PyTorch could not be asked: {_cut(answer)}"
        raise SiteRefused(Reason.PREPARE_FAILED, message) from None
    if available is True and count == rented.gpus:
        return
    if isinstance(cuda, str) and version(cuda):
        refuse_old_driver(found, version(cuda))
    message = f"PyTorch sees {count} usable GPUs of {rented.gpus} (its CUDA: {cuda})"
    raise SiteRefused(Reason.GPU_FAULT, message)


def version(text: str) -> tuple[int, ...]:
    """Return "13.0" as (13, 0); () where it is none."""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text.strip())
    return (int(match[1]), int(match[2])) if match else ()


def _cut(text: str) -> str:
    return " ".join(text.split())[-200:] or "nothing"
