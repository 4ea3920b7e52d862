"""The watchdog and the alarm through the real command line, on `local`, with fast clocks."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.gpujob_process import Gpujob

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="the instance's processes are in /proc"),
]


def test_a_hanging_training_ends_early_and_is_heard_of(tmp_path):
    heard = tmp_path / "heard"
    command = f'cat >> "{heard}"; echo >> "{heard}"'
    gpujob = Gpujob(tmp_path, GPUJOB_WATCH_SPEED="600", GPUJOB_ALARM_COMMAND=command)
    job = gpujob.write_job(fail="hang", fail_at_step=5, save_steps=2)
    try:
        done = gpujob.run("submit", str(job), "--yes", "--set", "limits.hours=2")
        assert done.code == 4, done.err
        assert "idle 30 min, stalled 30 min" in done.out
        status = gpujob.run("status", "stub-job", "--json").json()["job"]
        assert status["reason"] == "STALLED"
        assert "after step 5" in status["evidence"]
        assert status["teardown"] == "gone"
        assert status["attempts"][0]["checkpoint_step"] == 4
        kinds = [json.loads(line)["kind"] for line in heard.read_text().splitlines() if line]
        assert sorted(kinds) == ["finished", "stalled"]
        told = gpujob.run("status", "stub-job", "--events").out
        assert "the training ended at step 5 of 12: STALLED" in told
        log = (gpujob.home / "jobs" / status["id"] / "gpujob.log").read_text()
        assert all(isinstance(json.loads(line), dict) for line in log.splitlines())
    finally:
        gpujob.end_all()
