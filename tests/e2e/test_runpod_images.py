"""Own images, templates, and a pod that moves to another port, on the simulated RunPod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty import stage, training

pytestmark = [pytest.mark.e2e, pytest.mark.prove, pytest.mark.system("openssh-server")]
LIMIT_S = 400.0
CLOUD = "axolotlai/axolotl-cloud:0.16.1-py3.12-cu130-2.12.0"
PATHS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # what the job file asks for -> what RunPod was asked for: image, template, our start's row
    "none named": ({}, {"template": None, "start": "/start.sh"}),
    "an image with an entry point": ({"image": CLOUD}, {"image": CLOUD, "start": "entrypoint"}),
    "an image with nothing": ({"image": "me/own:1"}, {"image": "me/own:1", "start": "auto"}),
    "a template": ({"template": "tpl0a1b2c"}, {"template": "tpl0a1b2c", "start": "auto"}),
    "a template and an image": (
        {"template": "tpl0a1b2c", "image": "me/own:1"},
        {"template": "tpl0a1b2c", "image": "me/own:1", "start": "auto"},
    ),
}


@pytest.mark.parametrize("path", list(PATHS))
def test_each_way_to_an_image_ends_with_an_adapter(path: str, tmp_path: Path) -> None:
    asked, wanted = PATHS[path]
    with stage(tmp_path) as (cloud, tool, job):
        section = json.dumps({"providers": ["runpod"], "types": ["L4", "A40"], **asked})
        lines = job.read_text().splitlines()
        job.write_text("\n".join(f"gpu: {section}" if x.startswith("gpu:") else x for x in lines))
        process = tool.start("submit", str(job), "--yes")
        pod = cloud.wait(lambda: process.poll() is not None or cloud.pods(), "a pod", LIMIT_S)
        assert isinstance(pod, list), tool.finish(process).err
        shown = cloud.call("GET", f"/v2/pods/{pod[0]['id']}")[1]
        done = tool.finish(process, timeout_s=LIMIT_S)
        assert done.code == 0, done.out + done.err
        assert not cloud.pods()
        assert list(tool.out.rglob("adapter_model.safetensors"))
        told = {
            "image": shown["image"], "template": shown["template"],
            "start": shown["env"]["GPUJOB_POD_START"],
        }  # fmt: skip
        assert told | wanted == told


def test_a_pod_that_moved_is_reached_at_its_new_port(tmp_path: Path) -> None:
    with stage(tmp_path) as (cloud, tool, job):
        process = tool.start("submit", str(job), "--yes")
        pod = cloud.wait(lambda: process.poll() is not None or training(cloud), "training", LIMIT_S)
        assert isinstance(pod, str), tool.finish(process).err
        cloud.hurt(pod, "run_port_change")
        done = tool.finish(process, timeout_s=LIMIT_S)
        assert not cloud.pods(), done.out + done.err
        status = tool.run("status", "stub-job", "--json", "--events").json()
        first = [e for e in status["events"] if e["attempt"] == 1]
        ports = [e["data"]["endpoint"]["port"] for e in first if e["event"] == "EndpointSeen"]
        assert len(set(ports)) >= 2, ports
        boots = [line["port"] for line in cloud.lines("running") if line["pod"] == pod]
        assert ports[-1] == boots[-1]
