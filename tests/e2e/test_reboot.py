"""A machine that cannot be ended, through the installed service: heard of soon, and gone on with.

The supervisor runs by its systemd unit alone: that file's command, environment and folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator import daemon
from orchestrator.service import service, unit_text
from tests.support.gpujob_process import ROOT
from tests.support.local_machine import wait_until
from tests.support.rented import Rented
from tests.support.sshd import Sshd
from tests.support.units import read_unit

pytestmark = [pytest.mark.e2e, pytest.mark.prove, pytest.mark.system("openssh-server")]
WAIT_S = 180.0
HEARD_WITHIN_S = 60.0


def heard(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_terminate_that_keeps_failing_is_heard_and_a_reboot_goes_on(tmp_path: Path) -> None:
    said, asked, door = tmp_path / "said", tmp_path / "asked", tmp_path / "door"
    with Sshd(tmp_path / "sshd") as server:
        rented = Rented(
            tmp_path,
            server,
            GPUJOB_ALARM_COMMAND=f"cat >> {said}; echo >> {said}",
            GPUJOB_ALARM_AFTER_S="30",
        )
        rented.write(teardown_command=f"echo asked >> {asked}; test -e {door}")
        tool = rented.tool
        folder = tmp_path / "my jobs"
        folder.mkdir()
        ours = {name: value for name, value in tool.environ.items() if name[:7] == "GPUJOB_"}
        (folder / ".env").write_text("".join(f"{k}='{v}'\n" for k, v in ours.items()))
        tool.home.mkdir(parents=True)
        unit = unit_text(service(tool.home, folder, {"PATH": os.environ["PATH"]}))
        argv, environ, where = read_unit(unit)
        assert environ["PYTHONPATH"] == str(ROOT)

        def boot() -> subprocess.Popen[bytes]:
            with (tmp_path / "supervise.out").open("ab") as out:
                started = subprocess.Popen(argv, env=environ, cwd=where, stdout=out, stderr=out)
            wait_until(lambda: daemon.running(tool.home) == started.pid, WAIT_S)
            return started

        first = boot()
        second: subprocess.Popen[bytes] | None = None
        try:
            done = tool.run("submit", rented.job(), "--yes", "--detach")
            assert done.code == 0, done.out + done.err
            wait_until(lambda: "still_billing" in {one["kind"] for one in heard(said)}, WAIT_S)
            delivered = said.stat().st_mtime
            job = tool.run("status", "stub-job", "--json").json()["job"]
            began = job["attempts"][0]["terminate_first_asked_at_unix_s"]
            assert delivered - began <= HEARD_WITHIN_S
            assert job["teardown"] == "still_billing"
            assert job["exit_code"] == 5

            first.send_signal(signal.SIGKILL)  # the power goes
            first.wait()
            calls = lines(asked)
            second = boot()  # and comes back
            wait_until(lambda: lines(asked) >= calls + 2, WAIT_S)  # it keeps on asking
            door.touch()
            job = tool.wait_for(lambda one: one["closed_at_unix_s"] is not None, "closed")
            assert (job["outcome"], job["teardown"]) == ("SUCCEEDED", "yours_to_close")
            assert (tool.out / "adapter_model.safetensors").exists()
            assert rented.left() == []
            wait_until(lambda: "finished" in {one["kind"] for one in heard(said)}, WAIT_S)
            kinds = [one["kind"] for one in heard(said)]
            assert kinds.count("still_billing") == 1  # it remembers what it told before
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_S) == 0
        finally:
            for process in (first, second):
                if process is not None:
                    process.kill()
                    process.wait()
            rented.end_all()
