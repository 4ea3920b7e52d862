"""A machine rented by hand, through the real command line and a real OpenSSH server."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator import by_hand
from orchestrator.by_hand import Ask
from orchestrator.clock import SystemClock
from orchestrator.exits import Refused
from orchestrator.submit import plan, read_job
from providers.base import Needs
from providers.ssh import SshProvider
from tests.support.rented import Rented, ordinary_user, small_disk
from tests.support.sshd import Sshd, new_host_key

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("rented")) as server:
        yield server


@pytest.fixture
def rented(tmp_path: Path, server: Sshd) -> Iterator[Rented]:
    rented = Rented(tmp_path, server)
    yield rented
    rented.end_all()


def test_the_whole_job_and_its_owners_word(rented: Rented) -> None:
    done = rented.tool.run("submit", rented.job(), "--yes")
    assert done.code == 0, done.out + done.err
    assert "training SUCCEEDED   machine YOURS TO CLOSE" in done.out
    assert "GONE" not in done.out
    assert (rented.tool.out / "adapter_model.safetensors").stat().st_size > 1000
    assert rented.left() == []  # files wiped, processes ended, claim given up
    job = rented.tool.job()
    assert (job["outcome"], job["teardown"], job["exit_code"]) == ("SUCCEEDED", "yours_to_close", 0)
    assert "YOURS TO CLOSE   stub-job" in rented.tool.run("ps").out
    assert rented.tool.run("rm", job["id"]).code == 2
    assert Decimal(rented.tool.job()["cost_usd"]) > Decimal(job["cost_usd"])  # it counts on

    (rented.far / "huggingface").mkdir(parents=True)  # as a download would leave it
    (rented.far / "huggingface" / "blob").write_text("weights")
    assert rented.tool.run("submit", rented.job(), "--yes").code == 0
    assert rented.left() == []
    rented.tool.run("ps")
    first = rented.tool.run("status", job["id"], "--json").json()["job"]
    assert first["teardown"] == "handed_on"  # one machine, one meter: the second job's
    assert "handed on" in rented.tool.run("ps", "--all").out
    again = rented.tool.run("status", job["id"], "--json").json()["job"]
    assert again["cost_usd"] == first["cost_usd"]
    assert rented.tool.run("closed", job["id"]).code == 2
    job = rented.tool.job()
    assert job["teardown"] == "yours_to_close"

    assert rented.tool.run("closed", job["id"]).code == 0
    closed = rented.tool.job()
    assert closed["teardown"] == "closed_by_owner"
    assert rented.tool.job()["cost_usd"] == closed["cost_usd"]
    assert "YOURS TO CLOSE" not in rented.tool.run("ps").out
    assert rented.tool.run("closed", job["id"]).code == 2


def test_a_key_mismatch_is_2_before_anything(rented: Rented, tmp_path: Path) -> None:
    other = new_host_key(tmp_path / "other")
    rented.write(host_key=f"{other.type} {other.base64}")
    done = rented.tool.run("submit", rented.job(), "--yes")
    assert done.code == 2, done.out + done.err
    assert "Nothing was sent to it" in done.err
    assert "nothing was launched" in done.err
    assert rented.left() == []
    assert rented.tool.run("ps", "--all", "--json").json()["jobs"] == []


def test_what_is_wrong_is_said_before_anything(
    rented: Rented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(rented.job())
    provider = SshProvider(rented.tool.home, rented.machines, SystemClock())
    good = dict(rented.facts)

    def look(ask: Ask | None = None, *, output: Sequence[str] = ("out",), **changes: object) -> str:
        rented.write(**{**good, **changes})
        loaded = read_job(path, (f"output={json.dumps(output)}",))
        try:
            return " ".join(by_hand.look(plan(loaded, {"ssh": provider}), {"ssh": provider}, ask))
        except Refused as refused:
            return f"{int(refused.code)} {refused.launched} {refused} {refused.remedy}"

    new_host_key(tmp_path / "stranger")
    price = good["price"]
    undated = {key: value for key, value in price.items() if key != "date"}
    line = f"host_key: {rented.server.host_key.type} {rented.server.host_key.base64}"
    assert look(host_key=None).startswith("2 False ")
    assert line in look(host_key=None)  # the remedy is what to write
    assert "machines.yaml has SHA256:" in look(host_key="SHA256:" + "A" * 43)
    assert "Connection refused" in look(port=1)
    assert "refused the key" in look(key=str(tmp_path / "stranger"))
    assert "price.date: is missing" in look(price=undated)
    assert "nvidia-smi is not there" in look(price={**price, "gpu": "L40S"})
    assert "write: " in look(folder="/proc/gpujob")
    with small_disk(tmp_path / "small") as small:
        said = look(folder=str(small / "gpujob"))
        assert "disk: 0.0 GB free, the job needs about" in said
        assert "write: No space left on device" in said
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    told = look(output=["s3://results/x", "hf://ada/x", str(tmp_path / "second")])
    assert "127.0.0.1:1 cannot be reached from it (Connection refused), which is no harm" in told
    needed = provider.check(provider.offers()[0], Needs(egress=(("127.0.0.1", 1),)))
    assert [(check.ok, check.name) for check in needed if not check.ok] == [(False, "egress")]
    rented.far.mkdir(parents=True)
    (rented.far / "claim.json").write_text('{"label": "gpujob-x-1-1-1", "owner": "somebody"}')
    assert "claimed by gpujob-x-1-1-1 of owner somebody" in look()
    shutil.rmtree(rented.far)
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    assert "nobody vouched" in look(no, host_key=None)
    assert "SHA256:" in asked[0]
    assert "was looked at" in look(lambda _: True, host_key=None)
    assert "was looked at" in look(None, host_key=None)  # trusted from here on
    provider.close()
    assert rented.left() == []


def test_a_host_that_dies_keeps_the_job_open_until_its_owner_closes_it(
    tmp_path: Path,
) -> None:
    with Sshd(tmp_path / "sshd") as server:
        rented = Rented(tmp_path, server, GPUJOB_SSH_LOST_S="2", GPUJOB_ALARM_AFTER_S="2")
        process = rented.tool.start("submit", rented.job(steps=3000, seconds_per_step=0.1), "--yes")
        rented.tool.wait_for(lambda job: job["state"] == "RUNNING", "running")
        refused = rented.tool.run("closed", "stub-job")
        assert refused.code == 2  # it plainly lives
        assert "still answers" in refused.err
        other = Rented(tmp_path / "other", server)  # somebody else's gpujob, on the same machine
        other.write(folder=str(rented.far))
        stopped = other.tool.run("submit", other.job(), "--yes")
        assert stopped.code == 2, stopped.out + stopped.err
        assert "yellow is claimed by gpujob-" in stopped.err
        assert "nothing was launched" in stopped.err
        order = json.loads(next(rented.far.glob("*/order.json")).read_text())
        assert order["env"]["HF_HOME"] == str(rented.far / "huggingface")  # is wiped with the rest
        server.stop()
        rented.tool.wait_for(lambda job: job["teardown"] == "still_billing", "still billing")
        job = rented.tool.job()
        assert job["state"] == "STOPPING"  # and open: nothing is concluded from silence
        assert "gpujob closed" in rented.tool.run("ps").out
        assert rented.tool.run("closed", "stub-job").code == 0
        done = rented.tool.finish(process)
        assert done.code == 4, done.out + done.err
        job = rented.tool.job()
        assert (job["teardown"], job["reason"]) == ("closed_by_owner", "SSH_LOST")
        rented.end_all()  # the machine is gone in name only: end what runs on it


@pytest.mark.prove
def test_a_disk_that_fills_while_it_trains_ends_the_run(tmp_path: Path, server: Sshd) -> None:
    with small_disk(tmp_path / "small", "3g") as small:
        rented = Rented(tmp_path, server, GPUJOB_WATCH_SPEED="100")
        rented.far = small / "gpujob"
        rented.write(folder=str(rented.far))
        process = rented.tool.start("submit", rented.job(steps=9000, seconds_per_step=0.1), "--yes")
        rented.tool.wait_for(lambda job: job["state"] == "RUNNING", "running")
        with (small / "filler").open("wb") as file:  # as a checkpoint would
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small).free - (8 << 20))
        done = rented.tool.finish(process)
        assert done.code == 4, done.out + done.err
        job = rented.tool.job()
        assert (job["reason"], job["teardown"]) == ("DISK_FULL", "yours_to_close")
        assert rented.left() == []
        rented.end_all()


@pytest.mark.prove
def test_the_owners_commands_end_it_and_prove_it(rented: Rented, tmp_path: Path) -> None:
    ended, asked = tmp_path / "ended", tmp_path / "asked"
    rented.write(
        teardown_command=f"echo $GPUJOB_MACHINE >> {asked}; test -e {asked}.2 && touch {ended};"
        f" touch {asked}.2",
        check_command=f"test -e {ended}",
    )
    done = rented.tool.run("submit", rented.job(), "--yes")
    assert done.code == 0, done.out + done.err
    assert asked.read_text() == "yellow\n" * 2  # the first teardown did not do it: asked again
    job = rented.tool.job()
    assert (job["teardown"], job["exit_code"]) == ("gone", 0)


def test_as_an_ordinary_user() -> None:
    folder = Path(tempfile.mkdtemp(prefix="gpujob-rented-"))
    try:
        folder.chmod(0o755)
        with ordinary_user(f"gpujob{os.getpid()}") as account, Sshd(folder / "sshd") as server:
            rented = Rented(folder, server, user=account.pw_name)
            rented.write(folder="gpujob")  # below the login's home
            rented.far = Path(account.pw_dir) / "gpujob"
            done = rented.tool.run("submit", rented.job(), "--yes")
            assert done.code == 0, done.out + done.err
            assert rented.tool.job()["teardown"] == "yours_to_close"
            assert (rented.tool.out / "adapter_model.safetensors").exists()
            assert rented.left() == []
            rented.end_all()
    finally:
        shutil.rmtree(folder)


@pytest.mark.prove
@pytest.mark.axolotl
def test_the_whole_job_with_the_real_axolotl(rented: Rented, axolotl_python: Path) -> None:
    rented.write(axolotl_env=str(axolotl_python.parents[1]))
    source = Path(__file__).parents[2] / "examples" / "quickstart"
    folder = rented.tool.folder / "quickstart"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("out"))
    sets = ["gpu.providers=[ssh]", "training.max_steps=4", f"output={rented.tool.out}"]
    flags = [word for pair in sets for word in ("--set", pair)]
    process = rented.tool.start("submit", str(folder / "job.yaml"), "--yes", *flags)
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, out + err
    assert (rented.tool.out / "adapter_model.safetensors").stat().st_size > 1000
    assert rented.left() == []
    job = rented.tool.job()
    assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "yours_to_close")
