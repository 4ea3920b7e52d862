"""The main job through the real command line: real processes, real SSH, the stub as trainer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.gpujob_process import Gpujob

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]


def _gone(tool: Gpujob) -> bool:
    until = time.monotonic() + 20
    while tool.processes() and time.monotonic() < until:
        time.sleep(0.2)
    return not tool.processes()


def test_success(gpujob):
    path = gpujob.write_job()
    done = gpujob.run("submit", str(path), "--yes")
    assert done.code == 0, done.out + done.err
    assert "training SUCCEEDED   machine GONE (proven " in done.out
    assert "notional" in done.out
    phases = [line.split()[0] for line in done.out.splitlines() if line.startswith("  ")]
    wanted = ["intent", "launch", "boot", "prepare", "train", "stop"]
    assert [phase for phase in dict.fromkeys(phases) if phase in wanted] == wanted
    assert "\x1b" not in done.out

    job = gpujob.job()
    assert (job["outcome"], job["teardown"], job["state"]) == ("SUCCEEDED", "gone", "CLOSED")
    assert job["exit_code"] == 0
    assert job["price_is_notional"] is True
    status = gpujob.run("status", "stub-job", "--json", "--events").json()
    (attempt,) = status["job"]["attempts"]
    assert attempt["absence_reads"] == 2
    assert (attempt["step"], attempt["max_steps"]) == (12, 12)
    events = [event["event"] for event in status["events"]]
    assert events.count("LaunchAsked") == events.count("StartAsked") == 1

    cost = gpujob.run("cost", "--json").json()
    seconds = Decimal(str(attempt["gone_at_unix_s"] - attempt["intent_at_unix_s"]))
    assert Decimal(cost["total_usd"]) == Decimal(job["cost_usd"])
    assert abs(Decimal(job["cost_usd"]) - seconds * Decimal("0.001")) < Decimal("0.002")

    adapter = gpujob.out / "adapter_model.safetensors"
    assert adapter.stat().st_size > 1000
    assert (gpujob.out / "README.md").exists()
    log = gpujob.home / "jobs" / job["id"] / "attempt-1" / "train.log"
    shown = subprocess.run(
        [sys.executable, "-m", "orchestrator", "logs", job["id"]],
        env=gpujob.environ, capture_output=True, check=True, cwd=gpujob.folder,
    )  # fmt: skip
    assert shown.stdout == log.read_bytes()
    assert gpujob.run("status", job["id"], "--exit-code").code == 0
    assert _gone(gpujob), gpujob.processes()


@pytest.mark.parametrize(
    ("fail", "reason"), [("oom", "OUT_OF_MEMORY"), ("nan", "DIVERGED"), ("killed", None)]
)
def test_a_failed_training_is_4_and_says_why(gpujob, fail, reason):
    done = gpujob.run("submit", str(gpujob.write_job(fail=fail)), "--yes")
    assert done.code == 4, done.out + done.err
    job = gpujob.job()
    assert (job["outcome"], job["teardown"], job["exit_code"]) == ("FAILED", "gone", 4)
    assert reason is None or job["reason"] == reason
    assert job["cause"]
    assert job["next_step"]
    assert f"why       {job['reason']}" in done.out
    assert not gpujob.out.exists() or not list(gpujob.out.glob("*.safetensors"))
    assert gpujob.run("status", job["id"], "--exit-code").code == 4
    assert _gone(gpujob), gpujob.processes()


def test_ctrl_c_without_a_terminal_cancels_with_130(gpujob):
    path = gpujob.write_job(steps=2000, seconds_per_step=0.1)
    process = gpujob.start("submit", str(path), "--yes")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    process.send_signal(signal.SIGINT)
    done = gpujob.finish(process)
    assert done.code == 130, done.out + done.err
    assert "machine GONE" in done.out
    job = gpujob.job()
    assert (job["outcome"], job["reason"], job["exit_code"]) == ("CANCELLED", "INTERRUPTED", 130)
    assert _gone(gpujob), gpujob.processes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_term_and_hup_let_go_of_an_armed_job(gpujob, number):
    path = gpujob.write_job(steps=40, seconds_per_step=0.2)
    process = gpujob.start("submit", str(path), "--yes")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    process.send_signal(number)
    done = gpujob.finish(process)
    assert done.code == 130
    assert "gpujob attach" in done.out
    attached = gpujob.run("attach", "stub-job")
    assert attached.code == 0, attached.out + attached.err
    job = gpujob.job()
    assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "gone")
    status = gpujob.run("status", job["id"], "--json", "--events").json()
    events = [event["event"] for event in status["events"]]
    assert events.count("LaunchAsked") == events.count("StartAsked") == 1
    assert _gone(gpujob), gpujob.processes()


def test_term_before_the_training_cancels(gpujob):
    path = gpujob.write_job(startup_s=1)
    process = gpujob.start("submit", str(path), "--yes")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("  launch"):
            break
    process.send_signal(signal.SIGTERM)
    done = gpujob.finish(process)
    job = gpujob.job()
    if job["attempt"] is not None and "RUNNING" not in done.out and done.code == 130:
        assert job["teardown"] in {"gone", "none", "living", "stopping"}
    assert done.code == 130, done.out + done.err
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert job["teardown"] in {"gone", "none"}
    assert _gone(gpujob), gpujob.processes()


def test_a_detached_job_is_driven_by_the_daemon(gpujob):
    path = gpujob.write_job(seconds_per_step=0.05)
    done = gpujob.run("submit", str(path), "--yes", "--detach", "--json")
    assert done.code == 0, done.err
    body = done.json()
    assert body["detached"] is True
    job_id = body["job"]["id"]
    attached = gpujob.run("attach", job_id[:4])
    assert attached.code == 0, attached.out + attached.err
    assert "training SUCCEEDED" in attached.out
    assert _gone(gpujob), gpujob.processes()  # the daemon leaves when nothing is open


def test_cancel_waits_for_the_proof(gpujob):
    path = gpujob.write_job(steps=2000, seconds_per_step=0.1, ignore_term=True, children=2)
    gpujob.run("submit", str(path), "--yes", "--detach")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    done = gpujob.run("cancel", "--all")
    assert done.code == 0, done.out + done.err
    assert "training CANCELLED   machine GONE (proven " in done.out
    assert _gone(gpujob), gpujob.processes()


def test_kill_9_is_mended_by_the_next_command(gpujob):
    path = gpujob.write_job(steps=40, seconds_per_step=0.2)
    process = gpujob.start("submit", str(path), "--yes")
    gpujob.environ["GPUJOB_SWEEP"] = "off"
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    process.kill()
    process.communicate()
    del gpujob.environ["GPUJOB_SWEEP"]
    done = gpujob.run("ps")
    assert "started gpujob supervise" in done.err
    job = gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
    assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "gone")
    assert _gone(gpujob), gpujob.processes()


def test_one_document_on_stdout_and_the_talk_on_stderr(gpujob):
    done = gpujob.run("submit", str(gpujob.write_job()), "--yes", "--json")
    body = done.json()
    assert body["kind"] == "submit"
    assert body["job"]["outcome"] == "SUCCEEDED"
    assert "prepare" in done.err


def test_a_dry_run_starts_nothing(gpujob):
    done = gpujob.run("submit", str(gpujob.write_job()), "--dry-run")
    assert done.code == 0, done.err
    assert "base_model:" in done.out
    assert "nothing was started" in done.out
    plan = gpujob.run("submit", str(gpujob.folder / "job.yaml"), "--dry-run", "--json").json()
    assert plan["quotes"][0]["provider"] == "local"
    assert not gpujob.run("ps", "--json").json()["jobs"]
    assert not gpujob.processes()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("data.train=nowhere.jsonl", "nowhere.jsonl"),
        ("training.sequence_len=0", "sequence_len"),
        ("method=qlorra", "method"),
        ("gpu.providers=[moon]", "moon"),
        ("gpu.max_price=1", "max_price"),
    ],
)
def test_bad_input_is_2_and_launches_nothing(gpujob, change, word):
    done = gpujob.run("submit", str(gpujob.write_job()), "--yes", "--set", change)
    assert done.code == 2, done.out + done.err
    assert done.out == ""
    assert word in done.err
    assert done.err.rstrip().endswith("nothing was launched.   (exit 2)")
    assert "Traceback" not in done.err
    assert not gpujob.run("ps", "--json").json()["jobs"]


def test_nothing_fits_is_3(gpujob):
    done = gpujob.run("submit", str(gpujob.write_job()), "--yes", "--set", "gpu.types=[H100 80]")
    assert done.code == 3, done.out + done.err
    assert "gpu.types asks for H100 80" in done.err


def test_logs_follow_to_the_end(gpujob):
    path = gpujob.write_job(steps=30, seconds_per_step=0.2)
    gpujob.run("submit", str(path), "--yes", "--detach")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    followed = subprocess.run(
        [sys.executable, "-m", "orchestrator", "logs", "stub-job", "-f"],
        env=gpujob.environ, capture_output=True, check=True, cwd=gpujob.folder, timeout=120,
    )  # fmt: skip
    job = gpujob.job()
    log = gpujob.home / "jobs" / job["id"] / "attempt-1" / "train.log"
    assert followed.stdout == log.read_bytes()
    assert job["closed_at_unix_s"] is not None
    late = gpujob.run("logs", "stub-job", "--since", "1000d")
    assert late.out.encode("utf-8", "surrogateescape")[:20] == log.read_bytes()[:20]


def test_a_reader_that_has_seen_enough(gpujob):
    line = f"{sys.executable} -m orchestrator --help | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line],
        env=gpujob.environ,
        capture_output=True,
        text=True,
        check=True,
        cwd=gpujob.folder,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_a_second_supervisor_is_refused(gpujob):
    first = gpujob.start("supervise")
    try:
        assert first.stderr is not None
        assert "supervising" in first.stderr.readline()
        second = gpujob.run("supervise")
        assert second.code == 2
        assert f"process {first.pid}" in second.err
    finally:
        first.send_signal(signal.SIGTERM)
        done = gpujob.finish(first)
    assert done.code == 0


def test_ssh_reaches_the_living_machine(gpujob):
    path = gpujob.write_job(steps=600, seconds_per_step=0.1)
    gpujob.run("submit", str(path), "--yes", "--detach")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    done = gpujob.run("ssh", "stub-job", "--", "echo", "here-i-am")
    if "no ssh command" in done.err:
        pytest.skip("needs the Debian package openssh-client")
    assert done.code == 0, done.err
    assert "here-i-am" in done.out
    assert gpujob.run("cancel", "--all").code == 0


def test_job_documents_agree(gpujob):
    gpujob.run("submit", str(gpujob.write_job()), "--yes")
    summary = gpujob.run("ps", "--json").json()["jobs"][0]
    job = gpujob.run("status", summary["id"], "--json").json()["job"]
    moving = {"age_s"}
    assert {k: v for k, v in summary.items() if k not in moving} == {
        k: job[k] for k in summary if k not in moving
    }
    assert json.loads(json.dumps(job)) == job
