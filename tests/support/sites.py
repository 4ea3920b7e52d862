"""Sites for tests: the real agent over a real shell, with the stub trainer in Axolotl's place."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.artifacts.collect import Result
from orchestrator.axolotl_env import AxolotlEnv
from orchestrator.bootstrap import Bootstrap, Composed, Machine, Payload, Upload
from orchestrator.clock import Clock, SystemClock
from orchestrator.remote import Shell
from orchestrator.ssh_site import SshSite
from tests.support.stub_env import make_stub_env


def compose(machine: Machine) -> Composed:
    config = (
        f"base_model: {machine.folder}/model\noutput_dir: {machine.folder}/out\nadapter: lora\n"
    )
    argv = (machine.axolotl.axolotl, "train", f"{machine.folder}/config.yml")
    return Composed(config.encode(), (*argv, "--launcher", "python"), {"STUB_FLAG": "1"})


def payload(label: str, *uploads: Upload, clock: Clock, **changes: Any) -> Payload:
    plain = Payload(
        job="3f2a00",
        attempt=1,
        label=label,
        token=label,
        deadline_at=clock.now() + 300,
        compose=compose,
        uploads=uploads,
        stop_grace_s=1.0,
    )
    return replace(plain, **changes)


def make_site(
    connect: Callable[[], Shell], folder: Path, load: Payload, *, stub: Path, **switches: Any
) -> SshSite:
    """A site in `folder`; `stub` becomes the stub trainer's environment, with these switches."""
    make_stub_env(stub, **switches)

    def environment(shell: Shell, at: str) -> AxolotlEnv:
        return AxolotlEnv(shell, at, str(folder.parent / "envs"), load.label, given=str(stub))

    boot = Bootstrap(load, str(folder), environment, SystemClock())
    own = lambda _: {"README.md": b"# made by a test\n"}  # noqa: E731
    return SshSite(connect, boot, Result(load.job, load.expect_adapter, "acme/base", own))


def prepare(site: SshSite) -> list[str]:
    steps = []
    while (step := site.prepare_next()) is not None:
        steps.append(step)
    return steps
