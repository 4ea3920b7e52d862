"""Every switch commits the fault that it names, and only as often as it was armed."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.remote import ShellError
from orchestrator.ssh_keys import JobKey
from tests.cloud import switches
from tests.support.cloud import Cloud, cloud
from tests.support.pods import asked, create, running, said, shell

pytestmark = pytest.mark.e2e
BROKEN = (OSError, http.client.HTTPException, urllib.error.URLError)


@pytest.fixture
def api(sim: Cloud) -> Cloud:
    sim.set(pods="none", restart_s=0.05)
    return sim


@pytest.fixture
def real(sim: Cloud) -> Cloud:
    sim.set(pods="real", restart_s=0.05)
    return sim


def outcome(api: Cloud, method: str, path: str, body: Any = None) -> str:
    """Return the status, or "broken" where no answer came."""
    try:
        status, found, _ = api.call(method, path, body, timeout=0.5)
    except BROKEN:
        return "broken"
    return str(status) if status != 200 or isinstance(found, dict) else "garbled"


@pytest.mark.parametrize("done", ["", "_done"])
@pytest.mark.parametrize("mode", switches.MODES)
def test_a_spoiled_create(api: Cloud, mode: str, done: str) -> None:
    api.fault(f"create_{mode}{done}")
    expected = {"null": "500", "quiet": "500", "html": "403", "malformed": "garbled",
                "hang": "broken", "drip": "broken", "reset": "broken"}  # fmt: skip
    answered = outcome(api, "POST", "/v2/pods", asked("gpujob-spoiled"))
    assert answered == expected.get(mode, mode)
    assert [pod["name"] for pod in api.pods()] == ["gpujob-spoiled"] * bool(done)
    assert outcome(api, "POST", "/v2/pods", asked("gpujob-next")) == "201"


@pytest.mark.parametrize("done", ["", "_done"])
@pytest.mark.parametrize("mode", ["404", "429", "500", "reset", "hang"])
def test_a_spoiled_delete(api: Cloud, mode: str, done: str) -> None:
    made = create(api, "gpujob-spoiled")
    api.fault(f"delete_{mode}{done}", skip=1, times=1)
    other = create(api, "gpujob-other")
    assert outcome(api, "DELETE", f"/v2/pods/{other['id']}") == "204"
    answered = outcome(api, "DELETE", f"/v2/pods/{made['id']}")
    assert answered == (mode if mode.isdigit() else "broken")
    assert api.pod(made["id"])["living"] is not bool(done)


@pytest.mark.parametrize("call", ["list", "get", "catalog", "billing", "logs", "stop", "any"])
def test_each_call_can_be_spoiled_alone(api: Cloud, call: str) -> None:
    made = create(api, "gpujob-each")
    action = f"/v2/pods/{made['id']}/action"
    calls = {
        "list": ("GET", "/v2/pods"),
        "get": ("GET", f"/v2/pods/{made['id']}"),
        "catalog": ("GET", "/v2/catalog/gpus"),
        "billing": ("GET", "/v2/billing/pods"),
        "logs": ("GET", f"/v2/pods/{made['id']}/logs"),
        "stop": ("POST", action),
        "any": ("GET", "/v2/catalog/datacenters"),
    }
    other = next(pair for name, pair in calls.items() if name not in (call, "logs", "stop"))
    api.fault(f"{call}_503", times=2)
    method, path = calls[call]
    body = {"action": "stop"} if call == "stop" else None
    if call != "any":
        assert outcome(api, *other) == "200"
    assert [outcome(api, method, path, body) for _ in range(2)] == ["503", "503"]
    assert api.state()["armed"] == []


# ---------------------------------------------------------------- special ones, by the API alone
def no_capacity(api: Cloud) -> None:
    api.fault("create_no_capacity", times=2)
    answers = [api.call("POST", "/v2/pods", asked("gpujob-full")) for _ in range(3)]
    assert [status for status, _, _ in answers] == [400, 400, 201]
    assert "no longer any instances" in answers[0][1]["detail"]


def no_disk(api: Cloud) -> None:
    api.fault("create_no_disk")
    assert "disk space" in api.call("POST", "/v2/pods", asked("gpujob-disk"))[1]["detail"]


def dear(api: Cloud) -> None:
    api.fault("create_dear", factor=3)
    assert create(api, "gpujob-dear")["cost"] == pytest.approx(1.47)


def twice(api: Cloud) -> None:
    api.fault("create_twice")
    create(api, "gpujob-twin")
    assert [pod["name"] for pod in api.pods()] == ["gpujob-twin"] * 2


def late(api: Cloud) -> None:
    api.fault("create_late", seconds=60)
    assert outcome(api, "POST", "/v2/pods", asked("gpujob-late")) == "500"
    assert api.call("GET", "/v2/pods")[1]["pods"] == []
    assert len(api.pods()) == 1, "it is billed although nobody sees it"
    api.jump(61)
    assert len(api.call("GET", "/v2/pods")[1]["pods"]) == 1


def booted(name: str, status: str, **options: Any) -> Callable[[Cloud], None]:
    def act(api: Cloud) -> None:
        api.fault(name, **options)
        made = create(api, "gpujob-boot")
        api.jump(5)
        api.wait(lambda: api.pod(made["id"])["status"] == status, status)
        api.jump(60)
        pod = api.call("GET", f"/v2/pods/{made['id']}")[1]
        assert pod["status"] == status
        assert pod["ssh"]["direct"] is None

    return act


def uptime_zero(api: Cloud) -> None:
    api.fault("boot_uptime_zero")
    made = create(api, "gpujob-zero")
    api.wait(lambda: api.pod(made["id"])["status"] == "RUNNING", "RUNNING")
    api.jump(100)
    pod = api.call("GET", f"/v2/pods/{made['id']}")[1]
    assert (pod["status"], pod["runtime"]["uptime"], pod["cost"]) == ("RUNNING", 0, 0.49)


def vanish(api: Cloud) -> None:
    made = create(api, "gpujob-vanish")
    api.set(list_lag_s=100)
    api.hurt(made["id"], "run_vanish")
    assert outcome(api, "GET", f"/v2/pods/{made['id']}") == "404"
    api.set(list_lag_s=0)
    assert api.call("GET", "/v2/pods")[1]["pods"] == []


def exited(api: Cloud) -> None:
    made = create(api, "gpujob-exited")
    api.fault("run_exited", after_s=0)
    api.hurt(made["id"], "run_exited")
    assert api.call("GET", f"/v2/pods/{made['id']}")[1]["status"] == "EXITED"


def broke(api: Cloud) -> None:
    create(api, "gpujob-broke")
    api.set(balance_usd=100)
    api.hurt("*", "run_broke")
    assert api.pods() == []
    assert outcome(api, "POST", "/v2/pods", asked("gpujob-none")) == "402"
    api.set(balance_usd=10_000)


def down(api: Cloud) -> None:
    api.fault("api_down", seconds=50)
    assert [outcome(api, "GET", "/v2/pods") for _ in range(3)] == ["502"] * 3
    api.jump(51)
    assert outcome(api, "GET", "/v2/pods") == "200"


def omits(api: Cloud) -> None:
    create(api, "gpujob-omitted")
    for name in ("list_omits", "list_empty"):
        api.fault(name)
        seen = [len(api.call("GET", "/v2/pods")[1]["pods"]) for _ in range(2)]
        assert seen == [0, 1], name


def pages(api: Cloud) -> None:
    create(api, "gpujob-1")
    create(api, "gpujob-2")
    api.fault("list_pages")
    assert api.call("GET", "/v2/pods")[1]["pagination"]["hasNextPage"]


def lie(api: Cloud) -> None:
    made = create(api, "gpujob-lie")
    api.fault("delete_lie")
    path = f"/v2/pods/{made['id']}"
    assert (outcome(api, "DELETE", path), outcome(api, "GET", path)) == ("204", "200")
    assert (outcome(api, "DELETE", path), outcome(api, "GET", path)) == ("204", "404")


BY_API: dict[str, Callable[[Cloud], None]] = {
    "create_no_capacity": no_capacity,
    "create_no_disk": no_disk,
    "create_dear": dear,
    "create_twice": twice,
    "create_late": late,
    "boot_stuck": booted("boot_stuck", "PROVISIONING"),
    "boot_no_runtime": booted("boot_no_runtime", "STARTING"),
    "boot_error": booted("boot_error", "ERROR"),
    "boot_pull_error": booted("boot_pull_error", "STARTING"),
    "boot_slow": booted("boot_slow", "STARTING", seconds=100),
    "boot_no_direct": booted("boot_no_direct", "RUNNING"),
    "boot_uptime_zero": uptime_zero,
    "run_vanish": vanish,
    "run_exited": exited,
    "run_broke": broke,
    "api_down": down,
    "list_omits": omits,
    "list_empty": omits,
    "list_pages": pages,
    "delete_lie": lie,
}


@pytest.mark.parametrize("name", BY_API)
def test_a_special_switch(api: Cloud, name: str) -> None:
    BY_API[name](api)


# ---------------------------------------------------------------- those that need a real pod
INSIDE = {
    "boot_zero_gpus": ("nvidia-smi -L", "No devices were found"),
    "boot_other_gpu": ("nvidia-smi -L", "RTX A4000"),
    "boot_old_driver": ("nvidia-smi", "CUDA Version: 12.4"),
    "boot_small_disk": ("df -m / | tail -1 | awk '{print $2}'", "64"),
}


def test_what_a_pod_finds_inside_itself(real: Cloud, key: JobKey) -> None:
    for name, (line, words) in INSIDE.items():
        real.fault(name)
        pod = create(real, "gpujob-inside", key)
        remote = shell(real, running(real, pod["id"]), key)
        assert words in said(remote, line), name
        remote.close()


def test_a_key_that_never_arrives_is_a_refused_login(real: Cloud, key: JobKey) -> None:
    real.fault("boot_ssh_denied")
    pod = running(real, create(real, "gpujob-denied", key)["id"])
    refusals: list[str] = []

    def refused() -> bool:
        try:
            shell_once(pod, key)
        except ShellError as error:
            refusals.append(type(error).__name__)
        return "AuthRefused" in refusals

    real.wait(refused, "a refused login")


def shell_once(pod: dict[str, Any], key: JobKey) -> None:
    from orchestrator.paramiko_shell import ParamikoShell
    from orchestrator.remote import Target

    direct = pod["ssh"]["direct"]
    target = Target(direct["host"], direct["port"], "root", key.file, None)
    ParamikoShell.connect(target, on_first_use=lambda _: None).close()


def test_ssh_refused_for_a_time(real: Cloud, key: JobKey) -> None:
    real.fault("boot_ssh_refused", seconds=500)
    pod = running(real, create(real, "gpujob-refused", key)["id"])
    with pytest.raises(ShellError):
        shell_once(pod, key)
    real.jump(501)
    shell(real, pod, key).close()


def test_harm_to_a_running_pod(real: Cloud, key: JobKey) -> None:
    made = create(real, "gpujob-harm", key)
    pod = running(real, made["id"])
    remote = shell(real, pod, key)
    reach = f"curl -s -o /dev/null -m 3 -w '%{{http_code}}' {real.url}/v2/pods; true"
    assert said(remote, reach) == "401"
    real.hurt(pod["id"], "run_no_api")
    assert said(remote, reach) == "000"
    real.hurt(pod["id"], "run_gpu_lost")
    assert "GPU is lost" in said(remote, "nvidia-smi -L; true")
    real.hurt(pod["id"], "run_disk_full")
    full = said(remote, "head -c 100000 /dev/zero > ~/more 2>&1; cat ~/more | wc -c")
    assert int(full) < 100_000
    real.hurt(pod["id"], "run_ssh_drop")
    with pytest.raises(ShellError):
        said(remote, "true")
    real.hurt(pod["id"], "run_ssh_gone", seconds=1000)
    with pytest.raises(ShellError):
        shell_once(pod, key)
    real.jump(1001)
    shell(real, pod, key).close()


def test_a_restart_by_the_host_moves_the_port_and_a_killed_command_does_not(
    real: Cloud, key: JobKey
) -> None:
    pod = running(real, create(real, "gpujob-moved", key)["id"])
    shell(real, pod, key).close()
    real.hurt(pod["id"], "run_container_restart")
    real.wait(lambda: real.pod(pod["id"])["boots"] == 2, "the second boot")
    assert real.pod(pod["id"])["port"] == pod["ssh"]["direct"]["port"]
    shell(real, pod, key).close()
    real.hurt(pod["id"], "run_port_change")
    real.wait(lambda: real.pod(pod["id"])["boots"] == 3, "the third boot")
    moved = running(real, pod["id"])
    assert moved["ssh"]["direct"]["port"] != pod["ssh"]["direct"]["port"]
    shell(real, moved, key).close()


def test_a_spot_kill_gives_term_and_then_the_end(real: Cloud, key: JobKey) -> None:
    trap = "sh -c 'trap \"echo told\" TERM; echo armed; while :; do sleep 0.1; done'"
    pod = running(real, create(real, "gpujob-spot", key, args=trap)["id"])
    shell(real, pod, key).close()
    real.hurt(pod["id"], "run_spot_kill", notice_s=1)
    real.wait(lambda: real.pod(pod["id"])["status"] == "EXITED", "EXITED")
    stopped = real.call("GET", f"/v2/pods/{pod['id']}")[1]
    assert (stopped["runtime"], stopped["ssh"]["direct"]) == (None, None)


def test_a_frozen_connection_carries_nothing(real: Cloud, key: JobKey) -> None:
    pod = running(real, create(real, "gpujob-frozen", key)["id"])
    shell(real, pod, key).close()
    real.hurt(pod["id"], "run_ssh_freeze", seconds=1000)
    place = (pod["ssh"]["direct"]["host"], pod["ssh"]["direct"]["port"])
    with socket.create_connection(place, timeout=0.7) as silent, pytest.raises(TimeoutError):
        silent.recv(1)
    real.jump(1001)
    shell(real, pod, key).close()


TESTED_ABOVE = {
    "boot_ssh_refused", "boot_ssh_denied", "run_no_api", "run_gpu_lost", "run_disk_full",
    "run_ssh_drop", "run_ssh_gone", "run_ssh_freeze", "run_port_change", "run_container_restart",
    "run_spot_kill",
}  # fmt: skip


def test_no_switch_is_without_a_test() -> None:
    assert set(switches.SPECIAL) == set(BY_API) | set(INSIDE) | TESTED_ABOVE


def test_a_switch_can_be_set_at_the_start_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    flags = ("--fault=create_429,times=2", "--fault=run_exited,after_s=0.2")
    with cloud(tmp_path / "armed", *flags, pods="none") as armed:
        answers = [armed.call("POST", "/v2/pods", asked("gpujob-armed")) for _ in range(3)]
        assert [status for status, _, _ in answers] == [429, 429, 201]
        assert answers[0][2]["Retry-After"] == "2"
        armed.wait(lambda: armed.pods()[0]["status"] == "EXITED", "the armed event")
        assert armed.call("POST", "/_sim/faults", {"name": "no_such"})[0] == 400
        fired = [line["name"] for line in armed.lines("fault")]
        assert fired == ["create_429", "create_429", "run_exited"]
        assert json.loads(armed.log.read_text().splitlines()[0])["event"] == "fault"
