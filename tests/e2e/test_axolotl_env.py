"""The environment's builder with a real venv and a real pip; the packages are tiny stand-ins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import cast

import psutil
import pytest

from orchestrator import axolotl_env
from orchestrator.agent.bundle import environment_source
from orchestrator.axolotl_env import AxolotlEnv, EnvBuilding, EnvReady
from orchestrator.remote import Shell
from orchestrator.site import SiteRefused
from orchestrator.states import Reason
from tests.support.local_shell import LocalShell
from tests.support.stub_env import make_stub_env
from tests.support.wheels import make_wheel

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
OTHERS = ("transformers", "peft", "trl", "accelerate", "bitsandbytes")


class World:
    """An instance without Axolotl, an index of tiny wheels, and locks that pin them."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.root, self.index = folder / "job", folder / "envs", folder / "index"
        for one in (self.folder, self.index):
            one.mkdir()
        line = make_wheel(
            self.index, "axolotl", "0.21.0", "def main(): print('hi')", "axolotl:main"
        )
        lock = line + "".join(make_wheel(self.index, name, "1.0") for name in OTHERS)
        torch = make_wheel(self.index, "torch", "2.13.0+cpu")
        plain = make_wheel(self.index, "torch", "2.13.0")
        uv = make_wheel(self.index, "uv", "0.1")
        build = make_wheel(self.index, "setuptools", "84.0")
        files = {
            "build.txt": build,
            "axolotl.txt": lock,
            "torch-cpu.txt": torch,
            "torch.txt": plain,
            "uv.txt": uv,
        }
        self.locks = {name: text.encode() for name, text in files.items()}
        monkeypatch.setattr(axolotl_env, "lock_files", lambda: self.locks)
        monkeypatch.setattr(axolotl_env, "locks_sha256", lambda: "f" * 64)
        self.script = environment_source().decode()
        monkeypatch.setattr(axolotl_env, "environment_source", self.shipped)

    def shipped(self):
        return self.script.encode()

    def env(self, asked_by="gpujob-1", **changes):
        network = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        environ = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin", "HOME": "/tmp"}  # noqa: PTH120
        arguments = {"variant": "cpu", "network": network, **changes}
        shell = cast("Shell", LocalShell(environ))
        return AxolotlEnv(shell, str(self.folder), str(self.root), asked_by, **arguments)

    def build(self, env=None, seconds=120):
        env = env or self.env()
        steps: list[EnvBuilding] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = env.ensure()
            if isinstance(answer, EnvReady):
                return answer, steps
            steps.append(answer)
            time.sleep(0.1)
        raise AssertionError(steps[-1])

    def venvs(self):
        return sorted(path.name for path in self.root.glob("axolotl-*/venv-*"))


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path, monkeypatch)
    yield made
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path) in " ".join(process.info["cmdline"] or []):
            process.kill()


def test_built_once_then_reused(world):
    ready, steps = world.build()
    assert ready.source == "built"
    assert ready.versions["axolotl"] == "0.21.0"
    assert ready.versions["torch"] == "2.13.0+cpu"
    assert steps[0].step == "begin"
    assert {"venv"} <= {step.step for step in steps}
    assert all(step.done <= step.of for step in steps)
    assert steps[-1].seconds > 0
    assert subprocess.check_output([ready.axolotl]).strip() == b"hi"
    again = world.env("gpujob-2").ensure()
    assert again == ready
    assert world.venvs() == [ready.axolotl.split("/")[-3]]  # a venv built anew has another name


def test_two_at_once_build_one(world):
    one, two = world.env("gpujob-1"), world.env("gpujob-2")
    assert isinstance(one.ensure(), EnvBuilding)
    answers = {world.build(two)[0].axolotl, world.build(one)[0].axolotl}
    assert len(answers) == 1
    assert len(world.venvs()) == 1


def test_a_killed_build_leaves_nothing_that_counts(world):
    assert isinstance(world.env().ensure(), EnvBuilding)
    while not world.venvs():
        time.sleep(0.02)
    stale = world.venvs()
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(world.root) in command or str(world.folder) in command:
            os.kill(process.pid, signal.SIGKILL)
    ready, _ = world.build()
    assert ready.axolotl.split("/")[-3] not in stale
    assert world.venvs() == [ready.axolotl.split("/")[-3]]


def test_another_file_than_the_locked_one_is_refused(world):
    make_wheel(world.index, "peft", "1.0", "import os  # something else")
    with pytest.raises(SiteRefused, match="PIP_") as refused:
        world.build()
    assert refused.value.reason is Reason.PREPARE_FAILED
    assert world.venvs() == []
    # Told to the one who met it as often as asked; another attempt tries anew.
    with pytest.raises(SiteRefused):
        world.env().ensure()
    assert isinstance(world.env("gpujob-2").ensure(), EnvBuilding)


def test_the_plain_torch_is_the_last_way(world):
    next(world.index.glob("torch-2.13.0+cpu*")).unlink()
    world.script = world.script.replace('"cuda": 11 << 30', '"cuda": 1 << 20')
    assert ">= (22, 3)" in world.script  # and here no pip may be borrowed
    world.script = world.script.replace(">= (22, 3)", ">= (99, 0)")
    assert world.build()[0].versions["torch"] == "2.13.0"


def test_no_wheel_no_disk_no_python(world):
    next(world.index.glob("peft*")).unlink()
    with pytest.raises(SiteRefused, match=r"peft.*3\.14"):
        world.build()
    world.script = world.script.replace('"cpu": 4 << 30', '"cpu": 1 << 60')
    with pytest.raises(SiteRefused, match="GB free") as refused:
        world.build(world.env("gpujob-2"))
    assert refused.value.reason is Reason.DISK_FULL
    world.script = world.script.replace('"cpu": 1 << 60', '"cpu": 1 << 20')
    world.script = world.script.replace(">= (22, 3)", ">= (99, 0)").replace('"ensurepip"', '"none"')
    with pytest.raises(SiteRefused, match=r"apt install python3\.\d+-venv"):
        world.build(world.env("gpujob-3"))
    world.script = world.script.replace("((3, 11), (3, 14))", "((4, 0), (4, 1))")
    with pytest.raises(SiteRefused, match="no Python from"):
        world.env("gpujob-4").ensure()


def test_an_environment_that_can_not_import_is_not_ready(world):
    line = make_wheel(world.index, "trl", "1.0", "")
    broken = make_wheel(world.index, "peft", "1.0", "raise ImportError('no such luck')")
    lock = world.locks["axolotl.txt"].decode().splitlines(keepends=True)
    lock = [one for one in lock if not one.startswith(("trl", "peft"))] + [line, broken]
    world.locks["axolotl.txt"] = "".join(lock).encode()
    with pytest.raises(SiteRefused, match="no such luck"):
        world.build()
    assert world.venvs() == []


def test_what_the_user_names_is_taken(world, tmp_path):
    stub = make_stub_env(tmp_path / "stub")
    ready = world.env(given=str(stub)).ensure()
    assert ready == EnvReady(f"{stub}/bin/axolotl", f"{stub}/bin/python", "given", {})
    with pytest.raises(SiteRefused, match="GPUJOB_AXOLOTL_ENV"):
        world.env(given=str(tmp_path)).ensure()


def test_an_image_that_has_it(world, tmp_path):
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    for name, text in {"axolotl": "exit 0", "python": "echo 0.21.3"}.items():
        (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
        (binaries / name).chmod(0o755)
    env = world.env()
    env.shell.env["PATH"] += f":{binaries}"
    ready = env.ensure()
    assert (ready.source, ready.versions) == ("image", {"axolotl": "0.21.3"})
    (binaries / "python").write_text("#!/bin/sh\necho 0.19.0\n")
    assert isinstance(env.ensure(), EnvBuilding)  # another minor version is not ours


def test_nothing_is_uploaded_that_is_not_needed(world, tmp_path):
    env = world.env(given=str(make_stub_env(tmp_path / "stub")))
    env.ensure()
    assert not world.root.exists()
    assert len(env.shell.commands) == 1
    spec = json.dumps(env.shell.commands)
    assert str(world.index) not in spec  # what may hold a password goes by standard input
