"""A probe that goes on, through the real command line, on `local`, with the stub trainer."""

from __future__ import annotations

import sys

import pytest

from tests.support.gpujob_process import Gpujob

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.prove,
    pytest.mark.skipif(sys.platform != "linux", reason="the instance's processes are in /proc"),
]


def test_a_probe_goes_on_in_the_same_machine_and_its_result_is_the_jobs(tmp_path):
    gpujob = Gpujob(tmp_path)
    job = gpujob.write_job(seconds_per_step=0.5)
    try:
        done = gpujob.run("probe", str(job), "--yes", "--go-on", "--steps", "4", "--json")
        assert done.code == 0, done.err
        assert "goes on here, on the same machine" in done.err
        body = done.json()
        (met,) = body["probes"]
        assert body["went_on"] == met["job_id"]
        assert met["seconds_per_step"] == pytest.approx(0.5, rel=0.5)
        (one,) = gpujob.run("ps", "--all", "--json").json()["jobs"]  # no second job, no second rent
        assert one["id"] == body["went_on"]
        assert (one["outcome"], one["step"], one["attempt"]) == ("SUCCEEDED", 12, 1)
        assert one["teardown"] == "gone"
        assert (gpujob.out / "adapter_model.safetensors").is_file()
    finally:
        gpujob.end_all()
