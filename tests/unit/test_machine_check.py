"""What a rented machine shows against what was rented."""

from __future__ import annotations

import json
import subprocess

import pytest

from orchestrator.machine_check import (
    LOOK,
    PART,
    Found,
    Rented,
    judge,
    judge_torch,
    refuse_old_driver,
    torch_line,
    version,
)
from orchestrator.site import SiteRefused
from orchestrator.states import Reason

NOW = 1_800_000_000.0
TWO = Rented(gpus=2, vram_gib=24.0)


def answer(
    *, gpus: int = 2, mib: str = "23034", cuda: str = "13.0", date: str = f"{NOW:.0f}"
) -> str:
    listed = "".join(f"GPU {n}: NVIDIA L4 (UUID: GPU-{n})\n" for n in range(gpus))
    return f"{listed}{PART}\n{(mib + chr(10)) * gpus}{PART}\n{cuda}\n{PART}\n{date}\n"


def refused(text: str, rented: Rented = TWO) -> SiteRefused:
    with pytest.raises(SiteRefused) as caught:
        judge(text, rented, NOW)
    return caught.value


def test_what_was_rented_is_let_through() -> None:
    assert judge(answer(), TWO, NOW) == Found((13, 0))
    assert judge(answer(cuda=""), TWO, NOW) == Found(())


def test_a_clock_that_is_off_is_told() -> None:
    assert judge(answer(date=f"{NOW - 90:.0f}"), TWO, NOW).words == "clock -90 s"


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (answer(gpus=1), Reason.GPU_FAULT, "lists 1"),
        (answer(gpus=3), Reason.GPU_FAULT, "lists 3"),
        (answer(gpus=0), Reason.GPU_FAULT, "lists 0"),
        (answer(mib="16376"), Reason.GPU_FAULT, "shows 16.0"),
        (answer(mib="[N/A]"), Reason.GPU_FAULT, "shows 0.0"),
        (answer(date=f"{NOW + 86400:.0f}"), Reason.PREPARE_FAILED, "+86400 s off"),
        ("sh: nvidia-smi: not found", Reason.GPU_FAULT, "not found"),
        ("", Reason.GPU_FAULT, "nothing"),
    ],
)
def test_another_machine_is_refused(text: str, reason: Reason, words: str) -> None:
    error = refused(text)
    assert error.reason is reason
    assert words in str(error)


@pytest.mark.parametrize("have", [(), (13, 0), (13, 2), (14, 0)])
def test_a_driver_that_is_new_enough_or_unknown_passes(have: tuple[int, ...]) -> None:
    refuse_old_driver(Found(have), (13, 0))


def test_an_old_driver_is_refused() -> None:
    with pytest.raises(SiteRefused) as caught:
        refuse_old_driver(Found((12, 8)), (13, 0))
    assert caught.value.reason is Reason.DRIVER_MISMATCH
    assert "12.8" in str(caught.value)


def torch(available: object = True, count: object = 2, cuda: object = "13.0") -> str:
    document = {"cuda": cuda, "available": available, "count": count}
    return f"a warning\n{json.dumps(document)}\n"


def test_pytorch_that_sees_all_passes() -> None:
    judge_torch(torch(), TWO, Found())


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        (torch(available=False, count=0), Found((13, 0)), Reason.GPU_FAULT),
        (torch(available=False, count=0), Found((12, 4)), Reason.DRIVER_MISMATCH),
        (torch(available=False, cuda=None), Found((12, 4)), Reason.GPU_FAULT),
        (torch(count=1), Found(), Reason.GPU_FAULT),
        (torch(available="yes"), Found(), Reason.GPU_FAULT),
        ("ModuleNotFoundError: No module named 'torch'", Found(), Reason.PREPARE_FAILED),
        ("{}", Found(), Reason.PREPARE_FAILED),
        ("{", Found(), Reason.PREPARE_FAILED),
    ],
)
def test_pytorch_that_does_not_is_refused(text: str, found: Found, reason: Reason) -> None:
    with pytest.raises(SiteRefused) as caught:
        judge_torch(text, TWO, found)
    assert caught.value.reason is reason


def test_the_lines_run_where_there_is_nothing(tmp_path: object) -> None:
    """Without a driver or PyTorch the answers are still whole, and refused in words."""
    env = {"PATH": "/bin:/usr/bin"}
    done = subprocess.run(["sh", "-c", LOOK], capture_output=True, text=True, env=env)
    assert done.returncode == 0
    if "GPU " not in done.stdout:
        assert refused(done.stdout).reason is Reason.GPU_FAULT
    line = torch_line("/no such/python")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=env)
    with pytest.raises(SiteRefused, match="could not be asked"):
        judge_torch(done.stdout or done.stderr, TWO, Found())


@pytest.mark.parametrize("text", ["", "13", "13.0.1", "a.b", "-1.2"])
def test_no_version_is_none(text: str) -> None:
    assert version(text) == ()
