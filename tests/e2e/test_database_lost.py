"""The database deleted in mid-run: the provider's listing tells enough to take it up again."""

from __future__ import annotations

import signal

import pytest

from tests.support.gpujob_process import Gpujob

pytestmark = pytest.mark.e2e


def test_sweep_adopts_and_the_panic_button_ends_it(gpujob: Gpujob) -> None:
    process = gpujob.start("submit", str(gpujob.write_job(seconds_per_step=30.0)), "--yes")
    before = gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    attempt = gpujob.run("status", before["id"], "--json").json()["job"]["attempts"][0]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for path in gpujob.home.glob("gpujob.db*"):
        path.unlink()

    done = gpujob.run("sweep", "--adopt", "--json")
    assert "adopted" in done.out, done.err
    after = gpujob.run("status", before["id"], "--json").json()["job"]["attempts"][0]
    for key in ("label", "number", "instance_id", "price_usd_per_hour", "deadline_at_unix_s"):
        assert after[key] == attempt[key], key

    assert gpujob.run("cancel", "--all").code in {0, 130}
    job = gpujob.wait_for(lambda job: job["teardown"] == "gone", "gone")
    assert (job["id"], job["state"]) == (before["id"], "CLOSED")


@pytest.mark.prove
def test_the_panic_button_needs_no_record(gpujob: Gpujob) -> None:
    process = gpujob.start("submit", str(gpujob.write_job(seconds_per_step=30.0)), "--yes")
    gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for path in gpujob.home.glob("gpujob.db*"):
        path.unlink()
    done = gpujob.run("cancel", "--all")
    assert done.code == 0, done.err
    assert gpujob.job()["teardown"] == "gone"
    assert not list((gpujob.home / "instances").glob("gpujob-*"))
