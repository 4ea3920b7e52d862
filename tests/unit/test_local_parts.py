"""The parts of `local` that need no instance: state on disk, process table, GPU list, deadline."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from providers import local_guard, local_state, local_tree
from providers.local_gpu import LocalGpu, detect, parse, visible
from tests.support.local_machine import wait_until

# ---------------------------------------------------------------- GPUs

SMI = """GPU-1, NVIDIA H200, 143771
GPU-2, NVIDIA GeForce GTX 1080, 8192
GPU-3, NVIDIA H200, [N/A]
NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.

GPU-4, NVIDIA A100-SXM4-40GB, 40960
"""


def test_nvidia_smi_is_parsed_and_named() -> None:
    assert parse(SMI) == [
        LocalGpu("GPU-1", "H200", 141.0),
        LocalGpu("GPU-2", "NVIDIA GeForce GTX 1080", 8.0),
        LocalGpu("GPU-4", "A100-40GB", 40.0),
    ]
    assert parse("") == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["GPU-1a", "GPU-1b", "GPU-2"]),
        ("0,2", ["GPU-1a", "GPU-2"]),
        ("2,0", ["GPU-2", "GPU-1a"]),
        ("GPU-2", ["GPU-2"]),
        ("GPU-1", []),  # ambiguous
        ("", []),
        ("-1", []),
        ("1,9,0", ["GPU-1b"]),  # CUDA stops at the first that is not there
    ],
)
def test_cuda_visible_devices_is_kept_to(limit: str | None, expected: list[str]) -> None:
    found = [LocalGpu(u, "H200", 141.0) for u in ("GPU-1a", "GPU-1b", "GPU-2")]
    assert [g.uuid for g in visible(found, limit)] == expected


@pytest.mark.parametrize(
    ("script", "count"),
    [("echo 'GPU-1, NVIDIA H200, 143771'", 1), ("echo broken; exit 9", 0), (None, 0)],
)
def test_detection_runs_the_tool_of_the_path(
    tmp_path: Path, script: str | None, count: int
) -> None:
    if script:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    assert len(detect({"PATH": f"{tmp_path}:/usr/bin:/bin"} if script else {"PATH": ""})) == count


# ---------------------------------------------------------------- state on disk


def test_the_lock_is_life(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert not local_state.is_alive(folder)
    fd = local_state.take_lock(folder)
    assert local_state.is_alive(folder)
    with subprocess.Popen(["sleep", "60"], pass_fds=[fd]) as holder:
        os.close(fd)
        assert local_state.is_alive(folder)
        holder.kill()
        holder.wait()
    assert not local_state.is_alive(folder)


def test_lookers_do_not_take_each_other_for_life(tmp_path: Path) -> None:
    os.close(local_state.take_lock(str(tmp_path)))
    looker = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    assert not local_state.is_alive(str(tmp_path))
    os.close(looker)


def test_burying_races_are_won_once_and_keep_a_note(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    local_state.write_json(str(folder / "launch.json"), {"label": "job", "owner": "me", "gpus": []})
    (folder / "server.log").write_text("x" * 9000 + "last line")
    threads = [
        threading.Thread(target=local_state.bury, args=(str(folder), f"by {n}", 5.0))
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".gone"]
    note = json.loads((tmp_path / ".gone" / "job.json").read_text())
    assert note["owner"] == "me"
    assert note["ended_at"] == 5.0
    assert note["log"].endswith("last line")
    assert len(note["log"]) == local_state.LOG_TAIL_BYTES


def test_a_note_that_cannot_be_written_does_not_keep_the_folder(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / ".gone").write_text("in the way")
    local_state.bury(str(tmp_path / "job"), "asked to", 1.0)
    assert [p.name for p in tmp_path.iterdir()] == [".gone"]


def test_only_the_newest_notes_are_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(local_state, "GRAVES_KEPT", 3)
    for n in range(6):
        (tmp_path / f"job-{n}").mkdir()
        local_state.bury(str(tmp_path / f"job-{n}"), "asked to", float(n))
        os.utime(local_state.grave(str(tmp_path), f"job-{n}"), (n, n))
    left = sorted(p.name for p in (tmp_path / ".gone").iterdir())
    assert left == ["job-3.json", "job-4.json", "job-5.json"]


def test_tidy_removes_old_stages_and_trash_and_no_launch_in_progress(tmp_path: Path) -> None:
    for name in (".new-old", ".new-young", ".new-locked", ".trash-x", "job"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    fd = local_state.take_lock(str(tmp_path / ".new-locked"))
    os.utime(tmp_path / ".new-locked", (0, 0))
    os.utime(tmp_path / ".new-young", (1000, 1000))
    local_state.tidy(str(tmp_path), 1001.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".new-locked", ".new-young", "job"]
    os.close(fd)


# ---------------------------------------------------------------- processes


def test_the_process_table_knows_us() -> None:
    me = local_tree.table()[os.getpid()]
    assert me == local_tree.look(os.getpid())
    assert me.ppid == os.getppid()
    assert local_tree.same(local_tree.identity(os.getpid())) is not None
    assert local_tree.look(2**22 + 1) is None


@pytest.mark.parametrize(
    "change",
    [
        {"started": "1"},
        {"boot": "other"},
        {"pid": 1},
        {"pid": None},
        {"pid": "1"},
        {"pid": 2**22 + 1},
    ],
)
def test_an_identity_is_not_believed_by_its_number(change: dict[str, object]) -> None:
    assert local_tree.same({**local_tree.identity(os.getpid()), **change}) is None
    assert local_tree.same(None) is None


def test_a_zombie_is_dead_and_a_command_name_may_hold_anything(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as odd:
        wait_until(lambda: (p := local_tree.look(odd.pid)) and p.ppid == os.getpid(), 5)
        assert local_tree.same(local_tree.identity(odd.pid)) is not None
        identity = local_tree.identity(odd.pid)
        os.kill(odd.pid, signal.SIGKILL)
        wait_until(lambda: (p := local_tree.look(odd.pid)) and p.state == "Z", 5)
        assert local_tree.same(identity) is None


def test_a_signal_hits_only_the_process_that_was_seen() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        seen = local_tree.look(process.pid)
        assert seen is not None
        assert not local_tree.send(seen._replace(started="1"), signal.SIGKILL)
        time.sleep(0.1)
        assert process.poll() is None
        assert local_tree.send(seen, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not local_tree.send(seen, signal.SIGKILL)


def test_ps_tells_the_same_as_proc(tmp_path: Path) -> None:
    """The way of other Unixes, held against Linux's own."""
    folder = tmp_path / "with space" / "job"
    variables = {**os.environ, local_state.MARK_VARIABLE: local_state.mark(str(folder))}
    with subprocess.Popen(["sleep", "60"], env=variables) as process:
        ours, theirs = local_tree.table()[process.pid], local_tree.ps_table()[process.pid]
        assert ours[:2] == theirs[:2]
        assert theirs.started
        pairs = dict(local_tree.ps_marks())
        assert pairs[process.pid] == local_state.mark(str(folder))
        assert local_tree.marked(str(folder.parent)) == {"job": [process.pid]}
        assert local_tree.marked(str(tmp_path)) == {}
        process.kill()


# ---------------------------------------------------------------- the deadline


class Clocks:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.monotonic = 1000.0, 50.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic)


@pytest.mark.parametrize(
    ("wall_s", "monotonic_s", "left_s"),
    [(0, 0, 60), (10, 10, 50), (-86400, 10, 50), (86400, 10, 60 - 86400), (60, 60, 0)],
)
def test_the_earlier_clock_wins(
    monkeypatch, wall_s: float, monotonic_s: float, left_s: float
) -> None:
    clocks = Clocks(monkeypatch)
    deadline = local_guard.Deadline(1060.0)
    clocks.wall += wall_s
    clocks.monotonic += monotonic_s
    assert deadline.left_s() == left_s


def test_the_guard_imports_little() -> None:
    """It must run before anything else: what it loads is a promise."""
    heavy = {"asyncio", "asyncssh", "pathlib", "subprocess", "dataclasses", "cryptography"}
    program = "import sys, providers.local_guard; print(' '.join(sys.modules))"
    command = [sys.executable, "-S", "-c", program]
    root = Path(__file__).resolve().parents[2]
    loaded = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True)
    assert heavy & set(loaded.stdout.split()) == set()
