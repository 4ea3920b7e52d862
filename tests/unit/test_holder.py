"""A dead process's jobs are taken at once, and only a provably dead one's."""

import subprocess
import sys
import time

import pytest

from orchestrator.holder import for_people, is_dead, new_holder

HEAD = "from orchestrator.holder import new_holder; print(new_holder(), flush=True)\n"


def holder_of_a_child(code: str) -> tuple["subprocess.Popen[str]", str]:
    child = subprocess.Popen([sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_we_are_alive():
    assert not is_dead(new_holder())
    assert new_holder() != new_holder()


def test_a_killed_process_is_dead():
    child, holder = holder_of_a_child("import time; time.sleep(60)")
    with child:
        assert not is_dead(holder)
        child.kill()
        child.wait()
        assert is_dead(holder)


def test_a_zombie_is_dead():
    child, holder = holder_of_a_child("")
    with child:
        assert child.stdout is not None
        child.stdout.read()
        for _ in range(100):
            if is_dead(holder):
                break
            time.sleep(0.05)
        assert is_dead(holder)


def test_a_younger_process_of_the_same_pid_is_another():
    machine, pid, started, rand = new_holder().split("|")
    assert is_dead(f"{machine}|{pid}|{int(started) - 1}|{rand}")


@pytest.mark.parametrize("holder", ["", "x", "other/boot/1|1|5|ab", "a|b|c|d", "|||"])
def test_what_cannot_be_judged_counts_as_alive(holder):
    assert not is_dead(holder)


def test_people_read_a_process_and_a_machine():
    assert for_people("box/1234/99|4711|5|ab") == "process 4711 on box"
    assert for_people(None) is None
    assert for_people("odd") == "odd"
