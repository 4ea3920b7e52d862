"""SshSite with the real agent and the stub trainer, over a real OpenSSH server."""

import hashlib
import json
import threading
import time
from pathlib import Path

import pytest

from orchestrator import transfer
from orchestrator.bootstrap import Upload
from orchestrator.clock import SystemClock
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.site import AgentStatus, SiteError, SiteRefused
from orchestrator.ssh_site import SshSite
from orchestrator.states import Reason
from tests.support.sites import make_site, payload, prepare
from tests.support.sshd import Sshd, new_host_key

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]

CLOCK = SystemClock()


def wait_for_exit(site: SshSite, limit_s: float = 60) -> AgentStatus:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        status = site.status()
        if status.exit is not None:
            return status
        time.sleep(0.1)
    raise AssertionError(f"no exit within {limit_s} s: {site.status()}")


def test_a_job_from_fresh_folder_to_result(server: Sshd, tmp_path: Path) -> None:
    data, model = tmp_path / "train.jsonl", tmp_path / "model"
    data.write_bytes(b'{"text": "x"}\n' * 40_000)
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(400_000))
    uploads = (Upload(model, "model"), Upload(data, "data/train.jsonl"))
    far = tmp_path / "work" / "gpujob-a-3f2a00-1-x"
    load = payload(far.name, *uploads, clock=CLOCK)
    site = make_site(server.shell, far, load, stub=tmp_path / "env", steps=15)
    site.probe()
    assert site.status().phase == "absent"
    assert prepare(site) == ["folder", "model", "data", "order"]
    assert far.stat().st_mode & 0o777 == 0o700
    assert (far / "data" / "train.jsonl").read_bytes() == data.read_bytes()
    assert (far / "model" / "model.safetensors").stat().st_size == 400_000
    assert site.prepare_next() is None
    assert site.start_trainer().phase in {"claimed", "training", "checking", "done"}
    again = make_site(server.shell, far, load, stub=tmp_path / "env", steps=15)
    assert again.prepare_next() is None, "what is there must not be done again"
    assert again.start_trainer().phase != "absent"
    status = wait_for_exit(again)
    assert status.exit is not None
    assert (status.exit.verdict, status.exit.reason) == ("succeeded", Reason.SUCCEEDED)
    assert (status.exit.last_step, status.exit.max_steps) == (15, 15)
    assert status.exit.trainer_starts == 1
    for name in ("train.log", "metrics.jsonl"):
        assert again.pull(name, tmp_path / name, 0) == (far / name).stat().st_size
        assert (tmp_path / name).read_bytes() == (far / name).read_bytes()
    got = again.collect(tmp_path / "home")
    assert (got.folder / "adapter_model.safetensors").stat().st_size > 4096
    assert json.loads((got.folder / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ] == ("acme/base")
    assert again.collect(tmp_path / "home") == got
    site.close()
    again.close()


def test_a_ready_instance_takes_little_time_and_few_bytes(server: Sshd, tmp_path: Path) -> None:
    far = tmp_path / "work" / "gpujob-quick"
    (tmp_path / "d.jsonl").write_bytes(b'{"text": "some words of an example"}\n' * 64)
    load = payload(far.name, Upload(tmp_path / "d.jsonl", "data/train.jsonl"), clock=CLOCK)
    shells: list[ParamikoShell] = []

    def connect() -> ParamikoShell:
        shells.append(server.shell())
        return shells[-1]

    site = make_site(connect, far, load, stub=tmp_path / "env", steps=3, startup_s=5)
    site.probe()
    begun = time.monotonic()
    prepare(site)
    site.start_trainer()
    took = time.monotonic() - begun
    assert sum(shell._wire.sent_bytes for shell in shells) < 200_000
    assert took < 60, "2 s on an idle machine; benches/bootstrap.py prints it"
    site.stop_trainer(now=True)
    site.close()


def test_every_step_can_be_cut_and_is_made_up_for(server: Sshd, tmp_path: Path) -> None:
    """The connection dies before each call in turn; a new site does only what is missing."""
    far = tmp_path / "work" / "gpujob-cut"
    data = tmp_path / "train.jsonl"
    data.write_bytes(b"0123456789abcdef" * 40_000)
    load = payload(far.name, Upload(data, "data/train.jsonl"), clock=CLOCK)
    performed: list[str] = []
    for _ in range(12):
        site = make_site(server.shell, far, load, stub=tmp_path / "env", steps=3)
        step = site.prepare_next()
        site.close()
        if step is None:
            break
        performed.append(step)
    assert performed == ["folder", "data", "order"]
    order = json.loads((far / "order.json").read_text())
    assert order["token"] == far.name
    assert order["argv"][0] == str(tmp_path / "env" / "bin" / "axolotl")
    assert 290 < order["deadline_in_s"] <= 300
    data.write_bytes(b"other content of the same file: " * 20_000)
    site = make_site(server.shell, far, load, stub=tmp_path / "env", steps=3)
    assert prepare(site) == ["data"]
    site.close()


def test_another_attempts_folder_is_refused(server: Sshd, tmp_path: Path) -> None:
    far = tmp_path / "work" / "gpujob-ours"
    site = make_site(server.shell, far, payload("one", clock=CLOCK), stub=tmp_path / "e", steps=2)
    prepare(site)
    site.start_trainer()
    other = make_site(server.shell, far, payload("two", clock=CLOCK), stub=tmp_path / "e", steps=2)
    for call in (other.prepare_next, other.status, other.start_trainer):
        (far / "order.json").write_text((far / "order.json").read_text().replace('"one"', '"two"'))
        with pytest.raises(SiteRefused, match="another") as caught:
            call()
        assert caught.value.reason is Reason.INTERNAL
    site.stop_trainer(now=True)
    site.close()
    other.close()


def test_a_full_disk_and_a_lost_file_are_definite(server: Sshd, tmp_path: Path) -> None:
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as file:
        file.truncate(1 << 43)
    load = payload("full", Upload(huge, "data/train.jsonl"), clock=CLOCK)
    site = make_site(server.shell, tmp_path / "w" / "full", load, stub=tmp_path / "e")
    with pytest.raises(SiteRefused, match="GB free") as caught:
        prepare(site)
    assert caught.value.reason is Reason.DISK_FULL
    site.close()
    load = payload("gone", Upload(tmp_path / "nothing", "data/train.jsonl"), clock=CLOCK)
    site = make_site(server.shell, tmp_path / "w" / "gone", load, stub=tmp_path / "e")
    with pytest.raises(SiteRefused, match="no longer there") as caught:
        prepare(site)
    assert caught.value.reason is Reason.PREPARE_FAILED
    site.close()


def test_no_python_is_definite_and_the_host_reachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    bare = f'ForceCommand PATH={tmp_path}/bin; eval "$SSH_ORIGINAL_COMMAND"'
    command = transfer.COMMAND.replace("/usr/local/bin:", "/nowhere:")
    monkeypatch.setattr("orchestrator.paramiko_shell.COMMAND", command)
    with Sshd(tmp_path / "sshd", extra=bare) as server:
        site = make_site(
            server.shell, tmp_path / "w", payload("p", clock=CLOCK), stub=tmp_path / "e"
        )
        site.probe()
        with pytest.raises(SiteRefused, match="no python3") as caught:
            site.prepare_next()
        assert caught.value.reason is Reason.PREPARE_FAILED
        site.close()


def test_no_axolotl_is_definite(server: Sshd, tmp_path: Path) -> None:
    load = payload("none", clock=CLOCK)
    site = make_site(server.shell, tmp_path / "w" / "none", load, stub=tmp_path / "e")
    (tmp_path / "e" / "bin" / "axolotl").unlink()
    with pytest.raises(SiteRefused, match="GPUJOB_AXOLOTL_ENV") as caught:
        prepare(site)
    assert caught.value.reason is Reason.PREPARE_FAILED
    site.close()


def test_stop_ends_the_trainer_and_says_so(server: Sshd, tmp_path: Path) -> None:
    far = tmp_path / "w" / "stop"
    load = payload(far.name, clock=CLOCK)
    site = make_site(
        server.shell, far, load, stub=tmp_path / "e", steps=10_000, ignore_term=True, children=2
    )
    prepare(site)
    site.start_trainer()
    site.stop_trainer(now=False)
    status = site.status()
    assert status.exit is not None
    assert status.exit.verdict == "stopped"
    site.stop_trainer(now=True)
    site.close()


def test_a_log_stays_equal_through_twelve_cuts(server: Sshd, tmp_path: Path) -> None:
    far, local = tmp_path / "w" / "log", tmp_path / "train.log"
    load = payload(far.name, clock=CLOCK)
    site = make_site(
        server.shell, far, load, stub=tmp_path / "e", steps=200, log_bytes_per_step=200_000
    )
    prepare(site)
    site.start_trainer()
    local.touch()
    stop, cuts, errors, offset = threading.Event(), 0, 0, 0

    def cut() -> None:
        nonlocal cuts
        while cuts < 12 and not stop.wait(0.25):
            cuts += bool(server.cut())

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        ended = False
        while not (ended and cuts >= 12):
            try:
                ended = site.status().exit is not None
                offset = site.pull("train.log", local, offset)
            except SiteError:
                errors += 1
            there, here = (far / "train.log").read_bytes(), local.read_bytes()
            assert there[: len(here)] == here
    finally:
        stop.set()
        thread.join()
    while (reached := site.pull("train.log", local, offset)) != offset:
        offset = reached
    digest = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (local, far / "train.log")]
    assert digest[0] == digest[1]
    assert local.stat().st_size > 40_000_000
    assert errors >= 6, f"{errors} errors: the cuts did not hurt"
    status = site.status()
    assert status.exit is not None
    assert status.exit.verdict == "succeeded", "the training must not notice"
    site.close()


def test_bytes_without_their_commit_are_cut_back(server: Sshd, tmp_path: Path) -> None:
    far, local = tmp_path / "w" / "commit", tmp_path / "train.log"
    site = make_site(server.shell, far, payload("c", clock=CLOCK), stub=tmp_path / "e")
    far.mkdir(parents=True)
    (far / "train.log").write_bytes(data := bytes(range(256)) * 1000)
    assert site.pull("train.log", local, 0) == 256_000
    assert site.pull("train.log", local, 100) == 256_000  # the commit of the rest was lost
    assert local.read_bytes() == data
    local.write_bytes(data[:50_000] + b"torn" * 100_000)  # a crash in the middle of a write
    assert site.pull("train.log", local, 40_000) == 256_000
    assert local.read_bytes() == data
    local.write_bytes(data[:10])  # a person's editor
    assert site.pull("train.log", local, 256_000) == 256_000
    assert local.read_bytes() == data
    site.close()


def test_a_log_that_was_replaced_is_said_so(server: Sshd, tmp_path: Path) -> None:
    far, local = tmp_path / "w" / "short", tmp_path / "train.log"
    site = make_site(server.shell, far, payload("c", clock=CLOCK), stub=tmp_path / "e")
    far.mkdir(parents=True)
    (far / "train.log").write_bytes(b"0123456789")
    offset = site.pull("train.log", local, 0)
    (far / "train.log").write_bytes(b"new")
    with pytest.raises(SiteRefused, match="3 bytes, but 10") as caught:
        site.pull("train.log", local, offset)
    assert caught.value.reason is Reason.INSTANCE_LOST
    assert local.read_bytes() == b"0123456789"
    site.close()


def test_another_machine_at_the_address_is_definite(server: Sshd, tmp_path: Path) -> None:
    wrong = new_host_key(tmp_path / "other")
    site = make_site(
        lambda: server.shell(host_key=wrong),
        tmp_path / "w",
        payload("h", clock=CLOCK),
        stub=tmp_path / "e",
    )
    with pytest.raises(SiteRefused) as caught:
        site.probe()
    assert caught.value.reason is Reason.HOST_KEY_MISMATCH


def test_close_frees_a_blocked_call_and_stays_closed(server: Sshd, tmp_path: Path) -> None:
    far = tmp_path / "w" / "close"
    load = payload(far.name, clock=CLOCK, stop_grace_s=60.0)
    site = make_site(server.shell, far, load, stub=tmp_path / "e", steps=10_000, ignore_term=True)
    prepare(site)
    site.start_trainer()
    threading.Timer(1.0, site.close).start()
    begun = time.monotonic()
    with pytest.raises(SiteError):
        site.stop_trainer(now=False)
    assert time.monotonic() - begun < 50  # the grace would hold it for 60
    with pytest.raises(SiteError, match="closed"):
        site.status()
    last = make_site(server.shell, far, load, stub=tmp_path / "e")
    last.stop_trainer(now=True)
    last.close()


def test_a_host_that_is_not_there_can_be_tried_again(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd") as server:
        site = make_site(
            server.shell, tmp_path / "w", payload("r", clock=CLOCK), stub=tmp_path / "e"
        )
        site.probe()
        server.stop()
        with pytest.raises(SiteError):
            site.probe()
        server.start()
        site.probe()
        site.close()
