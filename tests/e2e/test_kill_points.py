"""SIGKILL of gpujob at every journal write and every provider call, before and after.

Real processes, real SSH, the real agent; the trainer is a stub that passes the agent's own success
check. After the kill either the next `gpujob` command brings the job to its true end, or, where
nobody ever comes back, the instance's own deadline does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers import local_tree
from tests.support.stub_env import make_stub_env

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
KILLER = ROOT / "tests" / "support" / "killer.py"

# What one undisturbed job passes, in order. A new kind of point fails the first test.
JOURNAL = (
    "JobSubmitted", "Opened", "LaunchAsked", "Launched", "EndpointSeen", "SshReady",
    "StepDone", "StartAsked", "TrainerStarted", "pulled", "TrainerExited", "ArtifactsPushed",
    "TerminateAsked", "TerminateAccepted", "AbsenceRead", "MachineGone", "InstanceGone",
    "JobClosed",
)  # fmt: skip
PROVIDER = ("launch", "describe", "find", "terminate")
POINTS = [f"journal.{when}:{name}#1" for name in JOURNAL for when in ("before", "after")] + [
    f"provider.{when}:{verb}#1" for verb in PROVIDER for when in ("before", "after")
]  # fmt: skip
# The second bootstrap step, the second read: where "again" differs from "first".
AGAIN = ["journal.before:StepDone#2", "provider.after:describe#2", "provider.after:find#2"]
UNCLEAR = ["journal.after:LaunchAsked#1", "provider.before:launch#1"]
ALONE = [
    "provider.after:launch#1", "journal.after:Launched#1", "journal.after:StepDone#1",
    "journal.before:StartAsked#1", "journal.after:TrainerStarted#1",
    "journal.before:TrainerExited#1",
]  # fmt: skip
# The gate takes one point of each kind; all of them are `make prove`'s.
GATE = {
    "journal.before:JobSubmitted#1", "journal.after:LaunchAsked#1", "provider.after:launch#1",
    "journal.after:SshReady#1", "journal.before:StartAsked#1", "journal.after:pulled#1",
    "journal.before:ArtifactsPushed#1", "provider.before:terminate#1",
    "journal.after:AbsenceRead#1", "journal.before:JobClosed#1",
}  # fmt: skip
GATE_ALONE = {"provider.after:launch#1", "journal.after:TrainerStarted#1"}


def shared(points: list[str], gate: set[str]) -> list[Any]:
    """Return the points as parameters; those that the gate does not take are marked `prove`."""
    assert gate <= set(points)
    return [p if p in gate else pytest.param(p, marks=pytest.mark.prove) for p in points]


class World:
    """One home, one stub, one job file."""

    def __init__(
        self,
        folder: Path,
        *,
        seconds_per_step: float = 0.1,
        hours: float = 1.0,
        real: Path | None = None,
    ) -> None:
        self.home = folder / "home"
        self.starts = folder / "starts"
        stub = make_stub_env(folder / "env", steps=8, seconds_per_step=seconds_per_step)
        axolotl = stub / "bin" / "axolotl"
        shebang, _, rest = axolotl.read_text().partition("\n")
        note = f"open({str(self.starts)!r}, 'a').write('start\\n')"
        axolotl.write_text(f"{shebang}\n{note}\n{rest}")
        self.job = folder / "job.yaml"
        self.job.write_text(
            f"name: kill\nmodel: {ROOT}/examples/quickstart/tiny-llama\nmethod: lora\n"
            f"data: {{train: {ROOT}/examples/quickstart/data.jsonl, format: alpaca}}\n"
            "training: {max_steps: 8, sequence_len: 128, packing: false}\n"
            f"gpu: {{providers: [local]}}\nlimits: {{hours: {hours}}}\noutput: {folder}/out\n"
        )
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GPUJOB_")},
            "PYTHONPATH": str(ROOT),
            "GPUJOB_HOME": str(self.home),
            "GPUJOB_AXOLOTL_ENV": str(real or stub),
            "GPUJOB_LOCAL_PRICE_USD_PER_HOUR": "3.60",
            "GPUJOB_SWEEP": "on",
            # A dead driver is noticed by its pid at once; the lease only matters for a stopped one.
            "GPUJOB_LEASE_S": "10",
            # `local` answers at once, so an unclear launch need not be watched for 15 minutes here.
            "GPUJOB_SETTLE_READS": "2",
            "GPUJOB_SETTLE_GAP_S": "0.5",
            "GPUJOB_SETTLE_LATE_1_S": "1.5",
            "GPUJOB_SETTLE_LATE_2_S": "2",
        }

    def submit(self, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(KILLER), "submit", str(self.job), "--yes"],
            env={**self.env, **extra}, capture_output=True, text=True, timeout=600, cwd=ROOT,
        )  # fmt: skip

    def ask(self, *command: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *command, "--json"],
            env=self.env, capture_output=True, text=True, timeout=60, cwd=ROOT,
        )  # fmt: skip
        return json.loads(done.stdout)

    def living(self) -> dict[str, list[int]]:
        return local_tree.marked(str(self.home.resolve() / "instances"))

    def stop_daemon(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int((self.home / "supervise.lock").read_text()), signal.SIGTERM)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.stop_daemon()
    assert not made.living()


def eventually(done: Any, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, f"not within {limit_s} s"
        time.sleep(0.2)


def check_ledger(world: World, job_id: str) -> None:
    """Hold the cost to the instance's own record: no hole, and nothing beyond the proof.

    It is at least the machine's own life, and at most the time from the intent to the proof of
    absence. The price is 0.001 USD a second.
    """
    job = world.ask("status", job_id)["job"]
    for attempt in job["attempts"]:
        cost = Decimal(attempt["cost_usd"])
        record = world.home / "instances" / ".gone" / f"{attempt['label']}.json"
        if record.is_file():
            life = json.loads(record.read_text())
            lived_s = Decimal(life["ended_at"]) - Decimal(life["created_at"])
            assert cost >= lived_s / 1000, (attempt, life)
        known_s = Decimal(attempt["gone_at_unix_s"] or 0) - Decimal(attempt["intent_at_unix_s"])
        assert cost <= max(known_s, Decimal(0)) / 1000 + Decimal("0.001"), attempt
    total = Decimal(world.ask("cost")["total_usd"])
    assert total == sum(Decimal(a["cost_usd"]) for a in job["attempts"])


def test_the_points_are_all_known(world: World, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = world.submit(GPUJOB_TEST_TRACE=str(trace))
    assert done.returncode == 0, done.stdout + done.stderr
    seen = set(trace.read_text().split())
    named = {p for p in seen if p.startswith(("journal.", "provider.")) and p.endswith("#1")}
    assert named == set(POINTS), named ^ set(POINTS)
    assert set(AGAIN) <= seen
    assert len(POINTS + AGAIN) >= 30


@pytest.mark.parametrize("point", shared(POINTS + AGAIN, GATE))
def test_killed_there_the_next_command_ends_it(world: World, point: str) -> None:
    done = world.submit(GPUJOB_TEST_KILL_AT=point)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stdout, done.stderr)
    jobs = world.ask("ps")["jobs"]
    if not jobs:
        assert point == "journal.before:JobSubmitted#1"
        assert not world.living()
        return
    (job,) = jobs
    eventually(lambda: world.ask("ps", "--all")["jobs"][0]["state"] == "CLOSED", 90)
    job = world.ask("status", job["id"])["job"]
    # Killed between the intent and the call, the machine of that name never came, which `local`
    # can prove; a second attempt did the work.
    never_came = [a for a in job["attempts"] if a["launched_at_unix_s"] is None]
    assert len(never_came) == (point in UNCLEAR), job
    assert job["outcome"] == "SUCCEEDED", job
    assert job["teardown"] == "gone", job
    assert all(Decimal(a["cost_usd"]) == 0 for a in never_came), job
    assert (Path(job["output_folder"]) / "adapter_model.safetensors").is_file()
    assert world.starts.read_text() == "start\n", "one trainer start"
    records = list((world.home / "instances" / ".gone").glob("*.json"))
    assert len(records) == 1, "one launch by the instances' own record"
    assert len(job["attempts"]) == 1 + len(never_came)
    assert not world.living()
    check_ledger(world, job["id"])


@pytest.mark.prove
@pytest.mark.axolotl
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["journal.after:pulled#1", "journal.before:ArtifactsPushed#1"])
def test_killed_while_the_real_axolotl_runs_or_is_collected(
    tmp_path: Path, axolotl_python: Path, point: str
) -> None:
    world = World(tmp_path, real=axolotl_python.parent.parent)
    done = world.submit(GPUJOB_TEST_KILL_AT=point)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stdout, done.stderr)
    assert world.living(), "the training goes on"
    (job,) = world.ask("ps")["jobs"]
    eventually(lambda: world.ask("ps", "--all")["jobs"][0]["state"] == "CLOSED", 600)
    job = world.ask("status", job["id"])["job"]
    assert (job["outcome"], job["teardown"], job["step"]) == ("SUCCEEDED", "gone", 8), job
    assert (Path(job["output_folder"]) / "adapter_model.safetensors").is_file()
    assert job["attempts"][0]["number"] == len(job["attempts"]) == 1
    assert not world.living()
    check_ledger(world, job["id"])
    world.stop_daemon()


@pytest.mark.parametrize("point", shared(ALONE, GATE_ALONE))
def test_killed_there_for_good_the_deadline_ends_it(tmp_path: Path, point: str) -> None:
    hours = 0.02  # 72 s: time enough to reach the point, short enough to wait for
    world = World(tmp_path, hours=hours, seconds_per_step=0.1 if "Exited" in point else 60)
    done = world.submit(GPUJOB_TEST_KILL_AT=point)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stdout, done.stderr)
    assert world.living(), "the machine lives on without us"
    eventually(lambda: not world.living(), hours * 3600 + 15)
    world.env["GPUJOB_SWEEP"] = "on"
    eventually(lambda: world.ask("ps", "--all")["jobs"][0]["state"] == "CLOSED", 60)
    job = world.ask("ps", "--all")["jobs"][0]
    assert job["teardown"] == "gone", job
    check_ledger(world, job["id"])
    world.stop_daemon()
