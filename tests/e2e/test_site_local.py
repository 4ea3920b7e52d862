"""The same shell and site against the `local` provider's server (asyncssh): no system package."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.bootstrap import Upload
from orchestrator.clock import SystemClock
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import HostKeyMismatch, RemoteFailed, ShellError, Target
from orchestrator.site import SiteError
from orchestrator.ssh_keys import job_key
from orchestrator.states import Reason
from providers.base import HostKey, Instance, InstanceState, LaunchRequest
from providers.local import LocalProvider
from tests.support.sites import make_site, payload, prepare

pytestmark = pytest.mark.e2e

CLOCK = SystemClock()


class Machine:
    """One local instance and the way to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.provider = LocalProvider(home, CLOCK)
        self.key = job_key(home, "3f2a00")
        offer = self.provider.offers()[0]
        deadline_at = CLOCK.now() + 300
        request = LaunchRequest("gpujob-t", "me", offer, self.key.public_line, deadline_at)
        self.instance: Instance = self.provider.launch(request)
        until = time.monotonic() + 60
        while self.instance.state is not InstanceState.READY:
            assert time.monotonic() < until
            time.sleep(0.1)
            self.instance = self.provider.describe(self.instance.id)
        self.shells: list[ParamikoShell] = []

    def shell(self, host_key: HostKey | None = None) -> ParamikoShell:
        it = self.instance
        assert it.host is not None
        assert it.port is not None
        assert it.user is not None
        target = Target(it.host, it.port, it.user, self.key.file, host_key or it.host_key)
        shell = ParamikoShell.connect(target)
        self.shells.append(shell)
        return shell

    def cut(self) -> None:
        """Drop the newest connection as a lost network would."""
        with contextlib.suppress(OSError):  # it was dead already
            self.shells[-1]._wire._sock.shutdown(2)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("home"))
    yield machine
    for shell in machine.shells:
        shell.close()
    machine.provider.terminate(machine.instance.id)


def test_commands_and_files(machine: Machine, tmp_path: Path) -> None:
    shell = machine.shell()
    end = shell.run("cat; echo err >&2; exit 3", stdin=b"\x00\xff", timeout_s=30)
    assert (end.rc, end.stdout, end.stderr) == (3, b"\x00\xff", b"err\n")
    assert shell.run("kill -9 $$", timeout_s=30).rc == -1
    with pytest.raises(ShellError, match="within 1 s"):
        shell.run("sleep 30", timeout_s=1)
    local, far = tmp_path / "local", tmp_path / "a 'name'\n"
    local.write_bytes(random.Random(1).randbytes(5_000_000))
    assert shell.put(local, str(far)) == shell.get(str(far), tmp_path / "b", max_bytes=1 << 30)
    assert far.read_bytes() == local.read_bytes() == (tmp_path / "b").read_bytes()
    tail = b"".join(shell.read_from(str(far), 4_999_000, max_bytes=1 << 20))
    assert tail == local.read_bytes()[-1000:]
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(RemoteFailed):
        shell.get(str(tmp_path / "link"), tmp_path / "c", max_bytes=1 << 20)


def test_the_host_key_is_the_one_learnt_at_launch(machine: Machine) -> None:
    with pytest.raises(HostKeyMismatch):
        machine.shell(HostKey("ssh-ed25519", job_key(machine.home, "b").public_line.split()[1]))


def test_a_job_with_twelve_cuts(machine: Machine, tmp_path: Path) -> None:
    assert machine.instance.workdir is not None
    far, log = Path(machine.instance.workdir) / "gpujob-t", tmp_path / "train.log"
    data = tmp_path / "d.jsonl"
    data.write_bytes(b'{"text": "x"}\n' * 30_000)
    load = payload(far.name, Upload(data, "data/train.jsonl"), clock=CLOCK)
    site = make_site(
        machine.shell, far, load, stub=tmp_path / "e", steps=150, log_bytes_per_step=100_000
    )
    assert prepare(site) == ["folder", "data", "order"]
    site.start_trainer()
    log.touch()
    cuts, offset, errors, ended = 0, 0, 0, False
    while not (ended and cuts >= 12):
        if cuts < 12:
            cuts += 1
            timer = threading.Timer(random.Random(cuts).random() / 10, machine.cut)
            timer.start()
        try:
            ended = site.status().exit is not None
            offset = site.pull("train.log", log, offset)
        except SiteError:
            errors += 1
        assert (far / "train.log").read_bytes().startswith(log.read_bytes())
        time.sleep(0.1)
    timer.join()
    site.close()
    site = make_site(machine.shell, far, load, stub=tmp_path / "e")
    while (reached := site.pull("train.log", log, offset)) != offset:
        offset = reached
    assert log.read_bytes() == (far / "train.log").read_bytes()
    assert len(machine.shells) > 6, f"{errors} errors: the cuts did not hurt"
    ended_with = site.status().exit
    assert ended_with is not None
    assert (ended_with.reason, ended_with.trainer_starts) == (Reason.SUCCEEDED, 1)
    got = site.collect(tmp_path / "home")
    assert (got.folder / "adapter_model.safetensors").is_file()
    site.close()
