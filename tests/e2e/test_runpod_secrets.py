"""Sentinel secrets on the simulated RunPod: in no pod, no log, no disk, no process of the job.

Looked at while the job runs: the pod's environment as GET shows it, the container's log, the pod's
disk, arguments and environments of every process in it; afterwards all that is at home. The same
searcher must find what is planted in each of these places.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.clock import SystemClock
from providers.runpod_api import Api
from tests.support.cloud import KEY, Cloud, axolotl_mounts
from tests.support.faulty import VENV, stage
from tests.support.leaks import Leak, Searcher
from tests.support.pods import create, running

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server"), pytest.mark.timeout(900)]
PLAIN = {
    "HF_TOKEN": "Sentinel1/hf+t0ken one~Zq",
    "AWS_SECRET_ACCESS_KEY": "Sentinel2/aws+S3cret/two=",
    "WANDB_API_KEY": "Sentinel4wandbFour0123456789",
    "GPUJOB_ALARM_SECRET": "Sentinel9!alarm+nine/9",
}
SECRETS = {**PLAIN, "RUNPOD_API_KEY": KEY}  # the account's; a pod has one of its own
FOLDERS = ("workspace", "root", "tmp", "run", "var/tmp", "home", "etc/rp_environment")
# What this machine lends to the pods is not theirs.
MOUNTED = {VENV, *(flag.removeprefix("--mount=") for flag in axolotl_mounts(Path(sys.prefix)))}
LIMIT_S = 300.0


class Looker:
    """Collects what can be seen of pods, each thing once, by the place where it was seen."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.seen: dict[tuple[str, bytes], None] = {}
        self._api = Api(KEY, cloud.url, SystemClock(), total_s=5.0)

    def look(self, *, log: bool = False) -> None:
        for pod in self.cloud.pods():
            found = self.cloud.call("GET", f"/v2/pods/{pod['id']}")[1]
            self._add("GET", json.dumps(found, ensure_ascii=False).encode())
            if log:
                self._log(pod["id"])
            if pod["pid"]:
                for name, data in inside(pod["pid"]):
                    self._add(name, data)

    def _log(self, pod_id: str) -> None:
        params = {"source": "container", "tail": "1000"}
        with contextlib.suppress(Exception):  # it may end meanwhile
            for event in self._api.events("logs", f"/pods/{pod_id}/logs", params):
                self._add("log", json.dumps(event, ensure_ascii=False).encode())

    def _add(self, name: str, data: bytes) -> None:
        self.seen[name, data] = None

    def places(self) -> set[str]:
        return {name.split(" ", maxsplit=1)[0] for name, _ in self.seen}

    def leaks(self, searcher: Searcher) -> list[Leak]:
        return [leak for name, data in self.seen for leak in searcher.data(data, name)]


def inside(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield what the processes and the disk of a pod show."""
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    yield part, Path(f"/proc/{process.pid}/{part}").read_bytes()
    root = Path(f"/proc/{pid}/root")
    for folder in FOLDERS:
        for place, below, names in os.walk(root / folder):
            at = Path("/") / Path(place).relative_to(root)
            below[:] = [name for name in below if str(at / name) not in MOUNTED]
            for name in names:
                path = Path(place, name)
                with contextlib.suppress(OSError):
                    if path.is_file() and not path.is_symlink():
                        yield f"disk {path.relative_to(root)}", path.read_bytes()
        with contextlib.suppress(OSError):
            if (root / folder).is_file():
                yield f"disk {folder}", (root / folder).read_bytes()


def searcher() -> Searcher:
    return Searcher({name: word.encode() for name, word in SECRETS.items()})


def test_no_secret_reaches_a_pod_or_stays_at_home(tmp_path: Path) -> None:
    with stage(tmp_path, step_s=0.4) as (sim, found, path):
        found.environ |= PLAIN
        looker, process = Looker(sim), found.start("submit", str(path), "--yes")
        logged = False
        while process.poll() is None:
            looker.look(log=not logged)
            logged = "log" in looker.places()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.3)
        done = found.finish(process, timeout_s=LIMIT_S)
        assert done.code == 0, done.out + done.err
        assert looker.places() == {"GET", "log", "cmdline", "environ", "disk"}
        disk = {name for name, _ in looker.seen if name.startswith("disk ")}
        assert any(name.endswith("order.json") for name in disk), sorted(disk)
        search = searcher()
        leaks = looker.leaks(search)
        keys = set((found.home / "keys").glob("*/id_ed25519"))
        leaks += search.tree(found.home, but=keys) + search.tree(found.out)
        leaks += search.database(found.home / "gpujob.db")
        leaks += search.data((done.out + done.err).encode(), "screen")
        assert leaks == []


def test_what_is_planted_in_a_pod_is_found(sim_pod: tuple[Cloud, int]) -> None:
    sim, pid = sim_pod
    (Path(f"/proc/{pid}/root/root") / "left.txt").write_text("x" + PLAIN["WANDB_API_KEY"] + "x")
    looker = Looker(sim)

    def logged() -> bool:
        looker.look(log=True)
        return "log" in looker.places()

    sim.wait(logged, "the log")
    found = {(leak.name, leak.where.split(" ", maxsplit=1)[0]) for leak in looker.leaks(searcher())}
    assert found >= {
        ("HF_TOKEN", "GET"), ("HF_TOKEN", "environ"), ("HF_TOKEN", "log"),
        ("WANDB_API_KEY", "disk"), ("GPUJOB_ALARM_SECRET", "cmdline"),
    }  # fmt: skip


@pytest.fixture
def sim_pod(tmp_path: Path) -> Iterator[tuple[Cloud, int]]:
    """Yield a pod whose environment, log and arguments hold what they must not."""
    word = PLAIN["GPUJOB_ALARM_SECRET"]
    args = f"""sh -c 'echo "$HF_TOKEN"; while :; do sleep 1; done' -- '{word}'"""
    with stage(tmp_path) as (sim, _, _):
        pod = create(sim, "planted", args=args, env={"HF_TOKEN": PLAIN["HF_TOKEN"]})
        running(sim, pod["id"])
        yield sim, int(sim.pod(pod["id"])["pid"])
