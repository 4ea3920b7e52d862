"""The pod's start argument, run for real: the dead-man switch ends the pod whatever has died.

The script runs under dash and sh with a PATH of a few chosen programs, against a server that counts
what is asked with the pod's own key.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from providers import runpod_start
from tests.support.tiny_http import Answer, Asked, TinyServer, tiny_server

SCRIPT = Path(runpod_start.__file__).with_suffix(".sh")
LABEL = "gpujob-abcdef01-1f2e3d-1-a1b2c3"
POD_KEY = "rpa_POD0123456789SENTINEL"
BARE = [
    "sh",
    "cat",
    "cut",
    "date",
    "dirname",
    "grep",
    "head",
    "kill",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "sleep",
    "ssh-keygen",
    "timeout",
    "tr",
    "base64",
    "gzip",
]
TOOLS = ("curl", "wget", "python3")
PATIENCE_S = 60.0


def wait_for(done: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


class Pod:
    """One container's first process, and its log."""

    def __init__(self, folder: Path, server: TinyServer) -> None:
        self.server = server
        self.workdir = folder / "workspace" / "data"
        self.run = folder / "run"
        self.run.mkdir()
        shutil.copy(SCRIPT, self.run / "start.sh")
        self.log = folder / "container.log"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.add(*BARE)
        self.process: subprocess.Popen[bytes] | None = None
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "RUNPOD_POD_ID": "pod1",
            "RUNPOD_API_KEY": POD_KEY,
            "RUNPOD_API_BASE_URL": server.url,
            "GPUJOB_POD_LABEL": LABEL,
            "GPUJOB_POD_WORKDIR": str(self.workdir),
            "GPUJOB_POD_END_AT": str(int(time.time()) + 3600),
            "GPUJOB_POD_END_IN_S": "3600",
            "GPUJOB_POD_CONTACT_IN_S": "1800",
            "GPUJOB_POD_START": "entrypoint",
            "GPUJOB_POD_STEP_S": "0.1",
            "GPUJOB_POD_SSH_KEYS": str(folder / "ssh"),
            "GPUJOB_POD_PATH": str(self.bin),
        }

    def add(self, *names: str) -> None:
        for name in names:
            found = sys.executable if name == "python3" else shutil.which(name)
            assert found, name
            target = self.bin / name
            text = f'#!/bin/sh\nexec {os.path.realpath(found)} "$@"\n'
            target.write_text(text)
            target.chmod(0o755)

    def stub(self, name: str, text: str) -> None:
        target = self.bin / name
        target.write_text("#!/bin/sh\n" + text)
        target.chmod(0o755)

    def start(self, shell: str = "dash", *arguments: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [f"/bin/{shell}", str(self.run / "start.sh"), *arguments],
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def contact(self) -> Path:
        folder = self.workdir / LABEL
        folder.mkdir(parents=True)
        return folder


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with tiny_server(lambda _: Answer(204)) as tiny:
        yield tiny


@pytest.fixture
def pod(tmp_path: Path, server: TinyServer) -> Iterator[Pod]:
    made = Pod(tmp_path, server)
    yield made
    made.kill()


def graphql(asked: Asked) -> str:
    return str(asked.body["query"]) if asked.body else ""


# ---------------------------------------------------------------- what ends it


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"GPUJOB_POD_END_IN_S": "1"}, "deadline"),
        ({"GPUJOB_POD_END_AT": "1"}, "deadline"),
        ({"GPUJOB_POD_CONTACT_IN_S": "1"}, "nobody made contact"),
    ],
)
def test_the_pod_ends_at_the_earliest_of_its_limits(
    pod: Pod, server: TinyServer, changes: dict[str, str], why: str
) -> None:
    pod.add("curl")
    pod.env |= changes
    pod.start()
    wait_for(lambda: server.asked)
    assert server.paths()[0] == ("DELETE", "/v2/pods/pod1")
    assert server.asked[0].headers["authorization"] == f"Bearer {POD_KEY}"
    assert server.asked[0].headers["user-agent"].startswith("gpujob")
    assert why in pod.said()


def test_a_wall_clock_that_jumps_back_gains_no_time(pod: Pod, server: TinyServer) -> None:
    pod.add("curl")
    pod.stub("date", "echo 1000\n")
    pod.env["GPUJOB_POD_END_IN_S"] = "1"
    pod.start()
    wait_for(lambda: server.asked)


def test_contact_once_made_counts_for_ever(pod: Pod, server: TinyServer) -> None:
    pod.add("curl")
    pod.env["GPUJOB_POD_CONTACT_IN_S"] = "2"
    folder = pod.contact()
    pod.start()
    state = pod.workdir / f".{LABEL}.armed"
    wait_for(lambda: state.exists() and state.read_text().endswith("yes\n"))
    folder.rmdir()
    time.sleep(2.5)
    assert server.asked == []


def test_a_lost_lease_ends_it_only_where_one_was_asked_for(pod: Pod, server: TinyServer) -> None:
    pod.add("curl")
    lease = pod.contact() / "lease"
    lease.write_text("1")
    pod.env["GPUJOB_POD_LEASE_S"] = "2"
    pod.start()
    for beat in range(12):
        lease.write_text(str(beat))
        time.sleep(0.3)
    assert server.asked == []
    wait_for(lambda: server.asked)
    assert "lease" in pod.said()


def test_a_restarted_container_keeps_its_first_deadline(pod: Pod, server: TinyServer) -> None:
    pod.add("curl")
    pod.env["GPUJOB_POD_END_IN_S"] = "4"
    pod.start()
    wait_for(lambda: "armed" in pod.said())
    pod.kill()
    pod.env["GPUJOB_POD_END_IN_S"] = "3600"  # the environment's relative time would begin anew
    pod.start()
    wait_for(lambda: server.asked)


def test_the_switch_is_set_again_when_it_is_killed(pod: Pod, server: TinyServer) -> None:
    pod.add("curl")
    pod.env["GPUJOB_POD_END_IN_S"] = "3"
    pod.start()
    wait_for(lambda: "armed" in pod.said())
    assert pod.process is not None
    children = Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children")
    first = wait_for(lambda: children.read_text().split())[0]
    os.kill(int(first), signal.SIGKILL)
    wait_for(lambda: server.asked)


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize("shell", ["dash", "sh", "bash"])
@pytest.mark.parametrize("tool", TOOLS)
def test_one_tool_of_three_is_enough(pod: Pod, server: TinyServer, shell: str, tool: str) -> None:
    server.answer = lambda asked: Answer(403 if asked.method == "DELETE" else 200, {"data": {}})
    pod.add(tool)
    pod.start(shell, "end")
    wait_for(lambda: len(server.asked) >= 2)
    assert server.paths()[:2] == [("DELETE", "/v2/pods/pod1"), ("POST", "/graphql")]
    assert graphql(server.asked[1]) == 'mutation{podTerminate(input:{podId:"pod1"})}'
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {POD_KEY}"}
    assert {asked.headers["user-agent"] for asked in server.asked} == {"gpujob-pod"}


def test_a_tool_that_fails_leaves_it_to_the_next(pod: Pod, server: TinyServer) -> None:
    pod.stub("curl", "exit 60\n")
    pod.stub("wget", '[ "$1" = --help ] && echo --method; exit 5\n')
    pod.add("python3")
    pod.start("dash", "end")
    wait_for(lambda: server.asked)


def test_the_chain_goes_on_to_stop_and_never_gives_up(pod: Pod, server: TinyServer) -> None:
    def refuse(asked: Asked) -> Answer:
        return (
            Answer(403, {"title": "Forbidden"})
            if asked.method == "DELETE"
            else Answer(200, {"errors": [{"message": "no"}], "data": None})
        )

    server.answer = refuse
    pod.add("curl")
    pod.start("dash", "end")
    wait_for(lambda: len(server.asked) >= 6)
    words = [graphql(asked) or "DELETE" for asked in server.asked[:6]]
    stop = 'mutation{podStop(input:{podId:"pod1"}){id}}'
    one = ["DELETE", 'mutation{podTerminate(input:{podId:"pod1"})}', stop]
    assert words == one + one
    assert "nobody lets the pod end itself" in pod.said()


def test_an_end_that_was_granted_and_did_not_come_is_asked_again(
    pod: Pod, server: TinyServer
) -> None:
    pod.add("curl")
    pod.start("dash", "end")
    wait_for(lambda: len(server.asked) >= 3)
    assert [asked.method for asked in server.asked[:3]] == ["DELETE", "DELETE", "POST"]


def test_where_nobody_lets_it_end_the_training_is_stopped(pod: Pod, server: TinyServer) -> None:
    server.answer = lambda _: Answer(403, {"title": "Forbidden"})
    pod.add("curl")
    folder = pod.contact()
    env = {**os.environ, "GPUJOB_FOLDER": str(folder)}
    trainer = subprocess.Popen(["sleep", "600"], env=env)
    other = subprocess.Popen(["sleep", "600"], env={**env, "GPUJOB_FOLDER": f"{folder}x"})
    try:
        pod.start("dash", "end")
        assert trainer.wait(PATIENCE_S) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (trainer, other):
            process.kill()
            process.wait()


def test_an_image_without_any_tool_is_refused(pod: Pod) -> None:
    pod.start()
    wait_for(lambda: "image refused" in pod.said())
    assert "host key" not in pod.said()


# ---------------------------------------------------------------- secrets


def test_the_key_is_in_no_argument_no_log_and_no_file(
    pod: Pod, server: TinyServer, tmp_path: Path
) -> None:
    server.answer = lambda _: Answer(500, {"title": "no"})
    for tool in TOOLS:
        real = sys.executable if tool == "python3" else shutil.which(tool)
        pod.stub(tool, f'echo "{tool} $*" >>{tmp_path}/argv; exec {real} "$@"\n')
    pod.start("dash", "end")
    wait_for(lambda: len(server.asked) >= 9)
    pod.kill()
    argv = (tmp_path / "argv").read_text()
    assert all(tool in argv for tool in TOOLS)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert POD_KEY not in path.read_text(errors="replace"), path


# ---------------------------------------------------------------- SSH and the image's own start


def test_the_own_start_comes_up_with_a_new_host_key_told_in_the_log(
    pod: Pod, tmp_path: Path
) -> None:
    pod.add("curl")
    keys = tmp_path / "ssh"
    keys.mkdir()
    for name in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "ssh_host_rsa_key"):
        (keys / name).write_text("ssh-ed25519 FROMTHEIMAGE image\n")
    start = tmp_path / "own-start"
    start.write_text(f'#!/bin/sh\necho "own start $PUBLIC_KEY"; cat {keys}/*.pub; exec sleep 99\n')
    start.chmod(0o755)
    pod.env |= {"GPUJOB_POD_START": str(start), "PUBLIC_KEY": "ssh-ed25519 MINE"}
    pod.start()
    wait_for(lambda: "own start ssh-ed25519 MINE" in pod.said())
    line = wait_for(
        lambda: [w for w in pod.said().splitlines() if runpod_start.HOST_KEY_WORD in w]
    )[-1]
    told = runpod_start.host_key_said(line, LABEL)
    body = (keys / "ssh_host_ed25519_key.pub").read_text().split()[1]
    assert told is not None
    assert (told.type, told.base64) == ("ssh-ed25519", body)
    assert not (keys / "ssh_host_rsa_key").exists()
    assert "FROMTHEIMAGE" not in pod.said()
    pod.kill()
    pod.start()  # the container restarts on the same disk: the key is pinned by now
    wait_for(lambda: pod.said().count("own start") == 2)
    assert (keys / "ssh_host_ed25519_key.pub").read_text().split()[1] == body


def test_a_notice_of_interruption_reaches_the_agent(pod: Pod, tmp_path: Path) -> None:
    pod.add("curl")
    folder = pod.contact()
    agent = subprocess.Popen(
        [
            "sh",
            "-c",
            f"trap 'echo saved >{folder}/exit.json; exit' TERM; while :; do sleep 0.1; done",
        ]
    )
    try:
        (folder / "claim").write_text(
            f'{{"token": "t", "pid": {agent.pid}, "pid_started": 7, "keeper": 1}}'
        )
        pod.start()
        wait_for(lambda: "armed" in pod.said())
        assert pod.process is not None
        pod.process.terminate()
        assert pod.process.wait(PATIENCE_S) == 143
        assert (folder / "exit.json").read_text() == "saved\n"
    finally:
        agent.kill()
        agent.wait()


def test_the_argument_unpacks_to_the_script(tmp_path: Path) -> None:
    argument = runpod_start.start_argument().replace(runpod_start.FOLDER, str(tmp_path / "f"))
    argument = argument.replace("exec sh", "echo sh")
    done = subprocess.run(["sh", "-c", argument], capture_output=True, text=True, check=True)
    assert done.stdout == f"sh {tmp_path}/f/start.sh\n"
    assert (tmp_path / "f" / "start.sh").read_bytes() == SCRIPT.read_bytes()
    assert len(runpod_start.start_argument()) < 8000


@pytest.mark.parametrize(
    "line",
    [
        "",
        "gpujob: host key",
        f"gpujob: host key other ssh-ed25519 {'A' * 68}",
        f"gpujob: host key {LABEL} ssh-ed25519 {'A' * 68}",
        f"gpujob: host key {LABEL} ssh-dss {'A' * 68}",
        f"gpujob: host key {LABEL} ssh-ed25519 short",
    ],
)
def test_a_line_that_is_no_host_key_is_none(line: str) -> None:
    assert runpod_start.host_key_said(line, LABEL) is None
