"""The shipped agent and real processes: claims, ends, deaths. The trainer is the stub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from orchestrator.agent.bundle import AGENT_FILE
from tests.support.agent_driver import Attempt

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.name != "posix", reason="POSIX")]


@pytest.fixture
def attempt(tmp_path):
    made = []

    def make(name="job", **switches):
        made.append(Attempt(tmp_path / name, **switches))
        return made[-1]

    yield make
    for one in made:
        one.clear()


def gone(attempt, seconds=10):
    """Wait until nothing of the attempt lives; return what does."""
    end = time.monotonic() + seconds
    while attempt.processes() and time.monotonic() < end:
        time.sleep(0.05)
    return attempt.processes()


def test_success(attempt):
    job = attempt(steps=5)
    assert job.start()["started"] is True
    verdict = job.wait()
    assert (verdict["verdict"], verdict["reason"], verdict["rc"]) == ("succeeded", "SUCCEEDED", 0)
    assert (verdict["last_step"], verdict["max_steps"], verdict["trainer_starts"]) == (5, 5, 1)
    assert verdict["adapter"] == {"tensors": 2, "finite": True}
    assert verdict["token"] == "token-1"
    assert verdict["started_at"] <= verdict["ended_at"] <= time.time()
    assert "Model successfully saved" in verdict["evidence"]
    assert gone(job) == []
    status = job.status()
    assert (status["phase"], status["alive"]) == ("done", False)
    assert status["log_bytes"] == (job.folder / "train.log").stat().st_size > 0
    assert status["metrics_bytes"] == (job.folder / "metrics.jsonl").stat().st_size > 0
    for name in ("train.log", "exit.json", "claim", "heartbeat.json", "metrics.jsonl"):
        assert (job.folder / name).stat().st_mode & 0o077 == 0, name


def test_a_whole_model(attempt):
    job = attempt(steps=3)
    job.order["expect_adapter"] = False
    (job.folder / "config.yml").write_text(f"output_dir: {job.folder}/out\n")
    job.start()
    assert job.wait()["verdict"] == "succeeded"


FAILURES = {
    "oom": "OUT_OF_MEMORY",
    "disk_full": "DISK_FULL",
    "data_missing": "DATA_MISSING",
    "error": "TRAINER_FAILED",
    "nan": "DIVERGED",
    "nan_adapter": "DIVERGED",
    "partial": "INCOMPLETE",
    "no_final_line": "INCOMPLETE",
    "no_adapter": "INCOMPLETE",
    "killed": "TRAINER_KILLED",
}


@pytest.mark.parametrize("fail", FAILURES)
@pytest.mark.parametrize("metrics", [True, False])
def test_failures(attempt, fail, metrics):
    job = attempt(steps=4, fail=fail, metrics=metrics)
    job.start()
    verdict = job.wait()
    assert (verdict["verdict"], verdict["reason"]) == ("failed", FAILURES[fail])
    assert verdict["signal"] == (9 if fail == "killed" else None)
    assert verdict["evidence"]


def test_a_trainer_that_can_not_be_started(attempt):
    job = attempt()
    job.order["argv"] = ["/no/such/axolotl"]
    answer = job.start()
    assert answer["started"] is False
    assert "/no/such/axolotl" in answer["error"]
    assert job.wait()["reason"] == "PREPARE_FAILED"
    assert gone(job) == []


def test_the_same_owner_finds_it_started_and_a_foreign_one_is_refused(attempt):
    job = attempt(steps=1000)
    first = job.start()
    assert job.start() == {"started": False, "already": True, "pid": first["pid"]}
    job.order["token"] = "token-2"
    assert "another owner" in job.start(expect=3)["error"]
    job.stop("--now")
    assert job.start(expect=3)["error"]  # a finished folder stays claimed
    job.order["token"] = "token-1"
    assert job.start()["already"] is True
    assert (job.folder / "starts").read_bytes() == b"+"


def test_ten_starts_at_once_start_one_trainer(attempt):
    job = attempt(steps=1000)
    path = job.folder / "order.json"
    path.write_text(json.dumps(job.order))
    command = [sys.executable, "-I", "-S", str(job.folder / AGENT_FILE), "start", str(path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(10)]
    answers = [json.loads(one.communicate(timeout=60)[0]) for one in running]
    assert sorted(answer["started"] for answer in answers) == [False] * 9 + [True]
    assert (job.folder / "starts").read_bytes() == b"+"
    stub = [one for one in job.processes() if "stub_trainer.py" in " ".join(one.cmdline())]
    assert len(stub) == 1


def test_the_start_command_holds_nothing_open(attempt):
    """An SSH channel ends only when all that inherited it have closed it."""
    job = attempt(steps=1000)
    path = job.folder / "order.json"
    path.write_text(json.dumps(job.order))
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    job.command("start", str(path), close_fds=False, stdin=subprocess.DEVNULL)
    os.close(writable)
    os.set_blocking(readable, False)
    assert os.read(readable, 1) == b""  # end of file, not "try again"
    os.close(readable)
    (agent,) = [one for one in job.processes() if one.pid == job.claim()["pid"]]
    assert os.getsid(agent.pid) != os.getsid(0)
    (trainer,) = [one for one in agent.children() if "stub" in " ".join(one.cmdline())]
    assert os.getsid(trainer.pid) == trainer.pid
    opened = {str(Path(f"/proc/{trainer.pid}/fd/{fd}").readlink()) for fd in (0, 1, 2)}
    assert opened == {"/dev/null", str(job.folder / "train.log")}


@pytest.mark.parametrize("now", [True, False])
def test_stop_ends_the_whole_tree(attempt, now):
    job = attempt(steps=1000, children=6, ignore_term=True)
    job.order["stop_grace_s"] = 120.0 if now else 1.0
    job.start()
    job.until("5/1000")
    assert len(job.processes()) == 9
    began = time.monotonic()
    answer = job.stop(*(["--now"] if now else []), "--reason", "IDLE")
    took = time.monotonic() - began
    assert answer["exit"]["verdict"] == "stopped"
    assert answer["exit"]["reason"] == "IDLE"
    assert took < 60 if now else took > 1  # at once, or after the grace
    assert gone(job) == []
    assert job.stop()["exit"] == answer["exit"]  # again: the same answer


def test_what_a_finished_trainer_leaves_behind_is_ended(attempt):
    job = attempt(steps=2, children=3)
    job.start()
    assert job.wait()["verdict"] == "succeeded"
    ours = {job.claim()["pid"], job.claim()["keeper"]}
    assert {one.pid for one in job.processes()} <= ours  # before the verdict, not after it
    assert gone(job) == []


def test_await_and_status_where_there_is_nothing(attempt, tmp_path):
    job = attempt()
    assert job.status()["phase"] == "absent"
    began = time.monotonic()
    assert job.command("await", str(job.folder), "--timeout", "30")["exit"] is None
    assert time.monotonic() - began < 25  # nobody is there to wait for
    assert job.stop()["phase"] == "absent"
    assert "no folder" in job.command("status", str(tmp_path / "none"), expect=2)["error"]
    assert "usage" in job.command("dance", expect=2)["error"]
    assert "usage" in job.command("dance", str(tmp_path), expect=2)["error"]
    assert "no reason" in job.command("stop", str(job.folder), "--reason", "x y", expect=2)["error"]
    assert "timeout" in job.command("await", str(job.folder), "--timeout", "x", expect=2)["error"]


def test_a_bad_order_starts_nothing(attempt):
    job = attempt()
    job.order["argv"] = "axolotl"
    assert "argv" in job.start(expect=2)["error"]
    assert not (job.folder / "claim").exists()


def test_manifest(attempt):
    job = attempt(steps=4, save_steps=2)
    job.start()
    job.wait()
    out = job.folder / "out"
    (out / "link").symlink_to("/etc/passwd")
    (out / "folder").symlink_to("/etc")
    (out / "deep").mkdir()
    (out / "deep" / "a b.json").write_bytes(b"{}")
    (out / "bad\nname").write_bytes(b"")
    (out / os.fsdecode(b"bad\xff")).write_bytes(b"")
    os.mkfifo(out / "pipe")
    files = job.command("manifest", str(job.folder))["files"]
    assert [file["path"] for file in files] == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "config.json",
        "deep/a b.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    import hashlib

    assert files[4] == {
        "path": "deep/a b.json",
        "bytes": 2,
        "sha256": hashlib.sha256(b"{}").hexdigest(),
    }
    for number in range(2001):
        (out / f"{number}").write_bytes(b"")
    assert "more than 2000" in job.command("manifest", str(job.folder), expect=1)["error"]


def test_start_costs_little(attempt):
    job = attempt(steps=1000)
    path = job.folder / "order.json"
    path.write_text(json.dumps(job.order))
    process = psutil.Popen(
        [sys.executable, "-I", "-S", str(job.folder / AGENT_FILE), "start", str(path)],
        stdout=subprocess.PIPE,
    )
    before = os.times()
    process.communicate(timeout=30)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < 0.5


def test_a_loud_trainer_is_logged_byte_for_byte(attempt):
    job = attempt(steps=30, seconds_per_step=0, log_bytes_per_step=1_000_000)
    job.start()
    assert job.wait()["verdict"] == "succeeded"
    log = (job.folder / "train.log").read_bytes()
    assert len(log) > 30_000_000
    assert log.count(b"\x00\xff\x1b[31m") == 30
