"""How `local` instances end: whatever is killed, in whatever order, nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers import local_state, local_tree
from providers.base import Instance, InstanceId, InstanceState
from providers.errors import InvalidRequest, NotFound
from tests.support.local_machine import LocalMachine, is_running, pid_in, wait_until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    machine = LocalMachine(tmp_path / "home")
    yield machine
    machine.close()


def pids_of(machine: LocalMachine, label: str) -> tuple[int, int]:
    """Return the guard's and the server's pid."""
    folder = machine.instances / label
    return tuple(
        json.loads((folder / n).read_text())["pid"] for n in ("guard.json", "instance.json")
    )


# Everything that a trainer's tree has ever done to get away. Each writes its pid, then sleeps.
ESCAPES = {
    "child": "sh -c 'echo $$ > {}; sleep 100' & ",
    "own_session": "setsid sh -c 'echo $$ > {}; sleep 100' > /dev/null 2>&1 < /dev/null & ",
    "double_fork": "setsid sh -c 'sh -c \"echo \\$\\$ > {}; sleep 100\" & exit' & ",
    "no_environment": "env -i setsid sh -c 'echo $$ > {}; sleep 100' & ",
    "deaf": "setsid sh -c 'trap \"\" TERM INT HUP; echo $$ > {}; sleep 100; sleep 100' & ",
    "stopped": "setsid sh -c 'echo $$ > {}; kill -STOP $$' & ",
}


def start_escapes(machine: LocalMachine, instance: Instance, tmp_path: Path) -> list[int]:
    """Start one of each and return their pids."""
    lines = "".join(line.format(tmp_path / name) for name, line in ESCAPES.items())
    rc, _, _ = machine.run(instance, f"({lines}) > /dev/null 2>&1 < /dev/null")
    assert rc == 0
    pids = [pid_in(tmp_path / name) for name in ESCAPES]
    assert all(is_running(pid) for pid in pids)
    return pids


def assert_gone(machine: LocalMachine, label: str, pids: list[int], limit_s: float = 10) -> None:
    wait_until(lambda: not any(is_running(pid) for pid in pids), limit_s)
    wait_until(lambda: machine.state(label) is None, limit_s)
    assert label not in machine.living()
    assert machine.another().describe(InstanceId(label)).state is InstanceState.GONE
    assert not (machine.instances / label).exists()


# ---------------------------------------------------------------- by request


def test_terminate_ends_the_whole_tree_from_another_process(machine, tmp_path) -> None:
    instance = machine.ready()
    pids = [*start_escapes(machine, instance, tmp_path), *pids_of(machine, "job-1")]
    machine.another().terminate(instance.id)
    assert not any(is_running(pid) for pid in pids)  # at once: terminate waits for an idle guard
    assert_gone(machine, "job-1", pids)


def test_the_shell_line_ends_it_from_inside(machine, tmp_path) -> None:
    instance = machine.ready()
    pids = start_escapes(machine, instance, tmp_path)
    assert machine.run(instance, machine.provider.traits.self_destruct)[0] == 0
    assert_gone(machine, "job-1", pids)


def test_a_process_that_keeps_forking_is_caught(machine, tmp_path) -> None:
    """Each generation lives for a moment, and its number is new in every look at the table."""
    instance = machine.ready()
    sign = tmp_path / "sign"
    program = f"""
import os, time
end = time.time() + 60  # should the code under test fail, this must not run for ever
while time.time() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.0005)
    os.utime({str(sign)!r})
"""
    sign.touch()
    (tmp_path / "chain.py").write_text(program)
    command = f"setsid {sys.executable} {tmp_path}/chain.py >/dev/null 2>&1 </dev/null &"
    machine.run(instance, command)

    def is_forking() -> bool:
        before = sign.stat().st_mtime_ns
        time.sleep(0.2)
        return bool(sign.stat().st_mtime_ns != before)

    assert is_forking()
    machine.provider.terminate(instance.id)
    assert_gone(machine, "job-1", [])
    assert not is_forking()


def test_removing_the_folder_ends_it(machine, tmp_path) -> None:
    instance = machine.ready()
    pids = [*start_escapes(machine, instance, tmp_path), *pids_of(machine, "job-1")]
    subprocess.run(["rm", "-rf", str(machine.instances / "job-1")], check=True)
    # Still there until it is not: never "gone" while a process of it lives.
    assert machine.state("job-1") in {InstanceState.UNKNOWN, None}
    wait_until(lambda: not any(is_running(pid) for pid in pids), 10)
    assert machine.provider.find("") == ()
    with pytest.raises(NotFound):
        machine.provider.describe(instance.id)


# ---------------------------------------------------------------- by its deadline


def test_the_deadline_ends_the_whole_tree_without_anybody(machine, tmp_path) -> None:
    instance = machine.ready(lifetime_s=8.0)
    pids = [*start_escapes(machine, instance, tmp_path), *pids_of(machine, "job-1")]
    assert instance.deadline_at is not None
    wait_until(lambda: not any(is_running(pid) for pid in pids), 10)
    late_s = time.time() - instance.deadline_at
    assert 0 <= late_s < 1.5
    assert_gone(machine, "job-1", pids)
    assert "deadline" in machine.provider.describe(instance.id).detail


def test_a_stopped_guard_does_not_stop_the_deadline(machine) -> None:
    instance = machine.ready(lifetime_s=8.0)
    pids = list(pids_of(machine, "job-1"))
    os.kill(pids[0], signal.SIGSTOP)
    assert_gone(machine, "job-1", pids, 15)
    assert time.time() - (instance.deadline_at or 0) < 12


def test_a_stopped_guard_does_not_stop_the_end_of_a_removed_folder(machine) -> None:
    machine.ready()
    pids = list(pids_of(machine, "job-1"))
    os.kill(pids[0], signal.SIGSTOP)
    subprocess.run(["rm", "-rf", str(machine.instances / "job-1")], check=True)
    wait_until(lambda: not any(is_running(pid) for pid in pids), 15)


def test_a_deadline_during_the_boot_counts(machine) -> None:
    machine.provider.launch(machine.request("job-1", 0.15))
    time.sleep(0.2)
    assert_gone(machine, "job-1", [], 10)


# ---------------------------------------------------------------- by a kill


@pytest.mark.parametrize("victim", ["guard", "server"])
def test_when_one_is_killed_the_other_ends_the_tree(machine, tmp_path, victim: str) -> None:
    instance = machine.ready()
    pids = [*start_escapes(machine, instance, tmp_path), *pids_of(machine, "job-1")]
    os.kill(pids_of(machine, "job-1")[victim == "server"], signal.SIGKILL)
    assert_gone(machine, "job-1", pids)
    assert victim in machine.provider.describe(instance.id).detail


def test_when_both_are_killed_it_is_not_gone_until_terminate_ends_the_rest(
    machine, tmp_path
) -> None:
    instance = machine.ready()
    pids = start_escapes(machine, instance, tmp_path)
    # A process that also cleared its environment is beyond tracing once both are dead.
    untraceable = pids.pop(list(ESCAPES).index("no_environment"))
    for pid in pids_of(machine, "job-1"):
        os.kill(pid, signal.SIGSTOP)  # so that neither sees the other die
    for pid in pids_of(machine, "job-1"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(is_running(p) for p in pids_of(machine, "job-1")), 5)
    assert all(is_running(pid) for pid in pids)
    seen = machine.another().describe(instance.id)
    assert seen.state is InstanceState.UNKNOWN
    assert [i.state for i in machine.provider.find("job-")] == [InstanceState.UNKNOWN]
    machine.another().terminate(instance.id)
    os.kill(untraceable, signal.SIGKILL)
    assert_gone(machine, "job-1", pids)


def test_a_stopped_guard_does_not_stop_terminate(machine, tmp_path) -> None:
    instance = machine.ready()
    pids = [*start_escapes(machine, instance, tmp_path), *pids_of(machine, "job-1")]
    os.kill(pids[-2], signal.SIGSTOP)
    machine.provider.terminate(instance.id)
    assert_gone(machine, "job-1", pids)


def test_a_reboot_leaves_a_stopped_instance_that_terminate_removes(machine) -> None:
    instance = machine.ready()
    for pid in pids_of(machine, "job-1"):
        os.kill(pid, signal.SIGSTOP)
    for pid in pids_of(machine, "job-1"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: machine.state("job-1") is InstanceState.STOPPED, 5)
    machine.provider.terminate(instance.id)
    assert_gone(machine, "job-1", [])


@pytest.mark.parametrize("wrong", ["started", "boot"])
def test_a_reused_process_id_is_never_killed(machine, wrong: str) -> None:
    """The recorded ids now belong to an innocent process; the true guard and server are dead."""
    with subprocess.Popen(["sleep", "60"]) as innocent:
        machine.ready()
        folder = machine.instances / "job-1"
        pids = pids_of(machine, "job-1")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for name in ("guard.json", "instance.json"):
            record = json.loads((folder / name).read_text())
            record |= local_tree.identity(innocent.pid) | {wrong: "other"}
            local_state.write_json(str(folder / name), record)
        machine.provider.terminate(InstanceId("job-1"))
        assert_gone(machine, "job-1", list(pids))
        assert innocent.poll() is None
        innocent.kill()


# ---------------------------------------------------------------- launchers that die

LAUNCHER = """
import os, signal, sys, time
from pathlib import Path
from orchestrator.clock import SystemClock
from providers import local_launch, local_state
from providers.base import LaunchRequest
from providers.local import LocalProvider

def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

home, public, life_s, where = sys.argv[1:]
module, _, rest = where.partition(".")
name, _, when = rest.partition(":")
if when:
    owner = {"os": os, "state": local_state, "launch": local_launch}[module]
    plain = getattr(owner, name)
    def dying(*args, **kwargs):
        if when == "after":
            plain(*args, **kwargs)
        die()
    setattr(owner, name, dying)
provider = LocalProvider(Path(home), SystemClock())
request = LaunchRequest(
    "job-1", "me", provider.offers()[0], public, time.time() + float(life_s)
)
print("launching", flush=True)
provider.launch(request)
die()
"""
POINTS = [
    "launch.new_host_key:before",
    "state.take_lock:before",
    "state.take_lock:after",
    "state.write_json:before",
    "state.write_json:after",
    "os.rename:before",
    "os.rename:after",
    "launch.start_guard:before",
    "launch.start_guard:after",
    "end",
]


def launch_and_die(machine: LocalMachine, where: str, life_s: float) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        LAUNCHER,
        str(machine.home),
        machine.public,
        str(life_s),
        where,
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


@pytest.mark.parametrize("where", POINTS)
def test_a_killed_launcher_leaves_an_instance_or_nothing(machine, where: str) -> None:
    with launch_and_die(machine, where, 60) as process:
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    state = machine.state("job-1")
    if POINTS.index(where) < POINTS.index("os.rename:after"):
        assert state is None
        assert machine.living() == {}
    elif POINTS.index(where) < POINTS.index("launch.start_guard:after"):
        assert (
            state is InstanceState.STOPPED
        )  # proven: nothing holds its lock, nothing bears its mark
        assert machine.living() == {}
    else:
        wait_until(lambda: machine.state("job-1") is InstanceState.READY, 20)
        instance = machine.provider.describe(InstanceId("job-1"))
        assert machine.run(instance, "echo alive")[1] == b"alive\n"
    if state is not None:
        with pytest.raises(InvalidRequest):
            machine.provider.launch(machine.request("job-1"))
    machine.provider.terminate(InstanceId("job-1"))
    assert machine.state("job-1") is None
    assert machine.living() == {}


def test_a_launcher_killed_at_any_moment(machine) -> None:
    """Left alone, nothing lives past the deadline; what is left on disk, terminate removes."""
    seen = set()
    for n in range(12):
        with launch_and_die(machine, "end", 3.0) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(n * 0.05)
            process.kill()
        seen.add(machine.state("job-1"))
        end = time.monotonic() + 8
        while machine.living() and n % 4 == 0:  # every fourth is left to its deadline
            assert time.monotonic() < end
            time.sleep(0.05)
        machine.provider.terminate(InstanceId("job-1"))
        assert machine.state("job-1") is None
        assert machine.living() == {}
        (machine.instances / ".gone" / "job-1.json").unlink(missing_ok=True)
    assert len(seen) > 1, "every kill came at the same moment: the test no longer tests"
