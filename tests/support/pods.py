"""Create requests and shells for pods of the simulated RunPod."""

from __future__ import annotations

from typing import Any, cast

from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import ShellError, Target
from orchestrator.ssh_keys import JobKey
from tests.support.cloud import Cloud

IMAGE = "axolotlai/axolotl-cloud:0.16.1-py3.12-cu130-2.12.0"
L4 = {"id": "NVIDIA L4", "count": 1}


def asked(name: str, **changes: Any) -> dict[str, Any]:
    """Return a create request as gpujob sends it."""
    base = {
        "name": name,
        "image": IMAGE,
        "gpu": L4,
        "ports": ["22/tcp"],
        "disk": 20,
        "mounts": {"persistent": {"size": 20, "path": "/workspace/data"}},
        "env": {},
    }
    return base | changes


def create(cloud: Cloud, name: str, key: JobKey | None = None, **changes: Any) -> dict[str, Any]:
    """Return the answer to a create that must succeed."""
    env = {"PUBLIC_KEY": key.public_line} if key else {}
    request = asked(name, env=env | changes.pop("env", {}), **changes)
    status, pod, _ = cloud.call("POST", "/v2/pods", request)
    assert status == 201, pod
    return cast("dict[str, Any]", pod)


def running(cloud: Cloud, pod_id: str) -> dict[str, Any]:
    """Return the pod as GET describes it once it is RUNNING with a way in."""

    def look() -> dict[str, Any] | None:
        _, pod, _ = cloud.call("GET", f"/v2/pods/{pod_id}")
        return pod if pod["status"] == "RUNNING" and pod["ssh"]["direct"] else None

    return cast("dict[str, Any]", cloud.wait(look, f"{pod_id} running"))


def shell(cloud: Cloud, pod: dict[str, Any], key: JobKey) -> ParamikoShell:
    """Return a shell on a running pod; its sshd may need a moment."""
    direct = pod["ssh"]["direct"]
    target = Target(direct["host"], direct["port"], direct["username"], key.file, None)

    def dial() -> ParamikoShell | None:
        try:
            return ParamikoShell.connect(target, on_first_use=lambda _: None)
        except ShellError:
            return None

    return cast("ParamikoShell", cloud.wait(dial, f"a shell on {pod['id']}"))


def said(remote: ParamikoShell, line: str) -> str:
    """Return what a shell line prints."""
    return remote.run(line, timeout_s=30).stdout.decode()
