"""Who lives, who descends from whom; numbers that are used again deceive nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from orchestrator.agent import procs
from orchestrator.agent.procs import (
    Process,
    descendants,
    end_tree,
    identity,
    is_alive,
    oom_kills,
    process_table,
    steady_s,
)

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def test_descendants():
    table = {
        1: Process(0, 1, False),
        2: Process(1, 2, False),
        3: Process(2, 3, False),
        4: Process(3, 3, True),
        5: Process(1, 5, False),
    }
    assert descendants(2, table) == {3}  # 4 is a zombie
    assert descendants(1, table) == {2, 3, 5}
    assert descendants(5, table) == set()


def test_a_number_that_is_used_again_is_another_process():
    assert is_alive(os.getpid(), identity(os.getpid()))
    assert not is_alive(os.getpid(), "boot:1")
    assert not is_alive(os.getpid(), "")
    assert not is_alive(None, identity(os.getpid()))
    assert not is_alive(2**30, "")
    assert not is_alive("1", identity(1))


def test_a_zombie_is_not_alive():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    known = identity(process.pid)
    end = time.monotonic() + 10
    while is_alive(process.pid, known) and time.monotonic() < end:
        time.sleep(0.01)
    assert process.returncode is None  # nobody has waited for it: it is a zombie
    assert identity(process.pid) == ""
    assert process.pid not in descendants(os.getpid(), process_table())
    process.wait()


def test_a_process_name_with_brackets_and_spaces(tmp_path):
    tool = tmp_path / ") 1 (S x"
    tool.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(tool), "60"])
    try:
        end = time.monotonic() + 10
        while process_table().get(process.pid) is None and time.monotonic() < end:
            time.sleep(0.01)
        assert process_table()[process.pid].parent == os.getpid()
    finally:
        process.kill()
        process.wait()


def test_end_tree_spares_whom_it_shall():
    one, two = subprocess.Popen(SLEEP), subprocess.Popen(SLEEP)
    others = descendants(os.getpid(), process_table()) - {one.pid, two.pid}

    def reap():
        one.poll()
        two.poll()

    began = time.monotonic()
    left = end_tree(os.getpid(), grace_s=60, spare={two.pid, *others}, reap=reap)
    assert left == set()
    assert time.monotonic() - began < 50  # the grace is not waited out
    assert one.wait(30) == -15  # it may have died since it was last asked after
    assert two.poll() is None
    two.kill()
    two.wait()


def test_the_other_unix(monkeypatch):
    """Where there is no /proc, `ps` is asked; it must say the same."""
    real = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self" and real(path))
    monkeypatch.setattr(procs, "stat_fields", lambda pid: None)
    if subprocess.run(["ps", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no ps")
    table = process_table()
    assert table[os.getpid()].parent == os.getppid()
    known = identity(os.getpid())
    assert known
    assert is_alive(os.getpid(), known)
    assert identity(2**22 + 1) == ""


def test_clocks_and_counters():
    before = steady_s()
    assert 0 <= steady_s() - before < 1
    kills = oom_kills()
    assert kills is None or kills >= 0
