"""Pods are real: own root, own processes, own network, a real sshd, a start argument that runs."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from contextlib import suppress

import psutil
import pytest

from orchestrator.ssh_keys import JobKey
from tests.support.cloud import Cloud, cloud
from tests.support.pods import create, running, said, shell

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]
OWN_END = (
    'sh -c \'curl -s -o /tmp/answer -w "delete says %{http_code}\\n" -X DELETE {url}/v2/pods/'
    '$RUNPOD_POD_ID -H "Authorization: Bearer $RUNPOD_API_KEY"; exec sleep infinity\''
)


def container_lines(sim: Cloud, pod_id: str) -> str:
    """The container's log so far, read as a client reads it: until the stream is quiet."""
    request = urllib.request.Request(f"{sim.url}/v2/pods/{pod_id}/logs?source=container&tail=500")
    request.add_header("Authorization", f"Bearer {sim.key}")
    found: list[str] = []
    with urllib.request.urlopen(request, timeout=1.5) as stream, suppress(TimeoutError):
        found.extend(json.loads(x[6:])["line"] for x in stream if x.startswith(b"data: "))
    return "\n".join(found)


def test_a_pod_has_a_root_gpus_and_environment_of_its_own(sim: Cloud, key: JobKey) -> None:
    made = create(
        sim, "gpujob-own", key, env={"SECRET": "x'y\"z"}, gpu={"id": "NVIDIA L4", "count": 2}
    )
    pod = running(sim, made["id"])
    remote = shell(sim, pod, key)
    seen = said(remote, "nvidia-smi -L; env | grep -c RUNPOD_; ls -A /home /tmp; hostname")
    assert seen.count("NVIDIA L4") == 2
    assert "\n0\n" in seen, "a session sees no RUNPOD_*, only PID 1 does"
    known = said(remote, "cat /etc/rp_environment; tr '\\0' '\\n' < /proc/1/environ")
    assert f'export RUNPOD_POD_ID="{pod["id"]}"' in known
    assert "SECRET=x'y\"z" in known
    assert f"RUNPOD_TCP_PORT_22={pod['ssh']['direct']['port']}" in known
    assert not said(remote, "ls -A /root | grep -v -e bashrc -e ssh -e cloud-entry; true")
    assert "sshd" not in said(remote, "ps -e | grep -v -e sshd -e bash -e ps | tail -n +2")
    remote.close()


def test_the_start_argument_is_executed_and_ends_its_own_pod(sim: Cloud) -> None:
    made = create(sim, "gpujob-ends", args=OWN_END.replace("{url}", sim.url))
    sim.wait(lambda: not sim.pod(made["id"])["living"], "its own end")
    assert sim.pod(made["id"])["end_cause"] == "own key"


@pytest.mark.parametrize(("strength", "living"), [("full", 0), ("stop", 1), ("denied", 1)])
def test_the_pods_key_has_three_strengths(sim: Cloud, strength: str, living: int) -> None:
    sim.set(pod_key=strength)
    made = create(sim, "gpujob-key")
    other = create(sim, "gpujob-other")
    pod_key = sim.pod(made["id"])["key"]
    assert sim.call("DELETE", f"/v2/pods/{other['id']}", key=pod_key)[0] == 403
    stop = sim.call("POST", f"/v2/pods/{made['id']}/action", {"action": "stop"}, key=pod_key)[0]
    assert stop == (403 if strength == "denied" else 200)
    assert sim.call("GET", "/v2/pods", key=pod_key)[0] == 403
    status, _, _ = sim.call("DELETE", f"/v2/pods/{made['id']}", key=pod_key)
    assert status == (204 if strength == "full" else 403)
    sim.set(pod_key="full")
    assert len([p for p in sim.pods() if p["id"] == made["id"]]) == living


def test_a_finished_command_is_started_again_on_the_same_disk(sim: Cloud) -> None:
    script = (
        "sh -c 'echo boot >> /boots; wc -l < /boots; test $(wc -l < /boots) -lt 3 || exec sleep 99'"
    )
    made = create(sim, "gpujob-again", args=script)
    sim.set(restart_s=0.05)
    sim.wait(lambda: sim.pod(made["id"])["boots"] == 3, "three boots")
    sim.wait(lambda: container_lines(sim, made["id"]) == "1\n2\n3", "the log of three boots")


def test_stop_wipes_the_container_disk_and_keeps_the_volume(sim: Cloud, key: JobKey) -> None:
    made = create(sim, "gpujob-stop", key)
    pod = running(sim, made["id"])
    remote = shell(sim, pod, key)
    said(remote, "touch ~/mine /workspace/data/kept")
    action = f"/v2/pods/{pod['id']}/action"
    assert sim.call("POST", action, {"action": "stop"})[1]["status"] == "EXITED"
    assert sim.call("POST", action, {"action": "stop"})[0] == 409
    stopped = sim.call("GET", f"/v2/pods/{pod['id']}")[1]
    assert (stopped["cost"], stopped["runtime"], stopped["ssh"]["direct"]) == (0.0, None, None)
    assert sim.call("POST", action, {"action": "start"})[0] == 200
    again = running(sim, pod["id"])
    assert again["ssh"]["direct"]["port"] != pod["ssh"]["direct"]["port"]
    remote = shell(sim, again, key)
    found = said(remote, "ls ~/mine; ls /workspace/data")
    assert (found, said(remote, "id -un")) == ("kept\n", "root\n")
    remote.close()


def test_runpods_own_image_has_no_sshd_once_a_start_argument_replaces_it(
    sim: Cloud, key: JobKey
) -> None:
    image = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
    bare = create(sim, "gpujob-bare", key, image=image, args="sleep 99")
    full = create(sim, "gpujob-full", key, image=image)
    shell(sim, running(sim, full["id"]), key).close()
    running(sim, bare["id"])
    pid = sim.pod(bare["id"])["pid"]
    assert [p.name() for p in psutil.Process(pid).children(recursive=True)] == []


def test_nothing_is_left_when_the_simulator_is_killed(tmp_path, key: JobKey) -> None:
    with cloud(tmp_path / "doomed") as doomed:
        made = create(doomed, "gpujob-left", key)
        shell(doomed, running(doomed, made["id"]), key).close()
        first = psutil.Process(doomed.pod(made["id"])["pid"])
        assert first.is_running()
        os.kill(doomed.process.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs([first], timeout=30)
        assert not alive
        assert gone
