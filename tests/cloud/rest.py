"""The REST v2 face: strict requests, answers held against the contract's table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.cloud import catalog, contract, logstream, money
from tests.cloud.answers import NO_CAPACITY, NO_DISK, Answer, Refused, problem
from tests.cloud.pod import ACTIONS, Pod
from tests.cloud.world import World

ENV_MAX = 50
POD = re.compile(r"/v2/pods/([^/]+)(/action|/logs)?")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]
    key: str | None


def call_of(request: Request) -> str:
    """Return the name of the call for the switches."""
    if request.path.startswith("/graphql"):
        return "graphql"
    pod = POD.fullmatch(request.path)
    if pod and pod[2] == "/logs":
        return "logs"
    if pod and pod[2] == "/action":
        action = (request.body or {}).get("action") if isinstance(request.body, dict) else ""
        return "delete" if action == "terminate" else "stop"
    if pod:
        return {"GET": "get", "DELETE": "delete"}.get(request.method, "other")
    if request.path == "/v2/pods":
        return {"GET": "list", "POST": "create"}.get(request.method, "other")
    part = request.path.removeprefix("/v2/").split("/")[0]
    return part if part in ("catalog", "billing") else "other"


def answer(world: World, request: Request) -> Answer:
    """Return the answer of /v2; raises Refused."""
    scope = authorise(world, request)
    path, method = request.path, request.method
    pod = POD.fullmatch(path)
    if path == "/v2/pods" and method == "GET":
        return listed(world, request, scope)
    if path == "/v2/pods" and method == "POST":
        return created(world, request, scope)
    if pod and pod[2] == "/logs" and method == "GET":
        return logstream.answer(world, owned(world, pod[1], scope, "read"), request)
    if pod and pod[2] == "/action" and method == "POST":
        return acted(world, pod[1], request, scope)
    if pod and pod[2] is None and method == "GET":
        found = owned(world, pod[1], scope, "read")
        return checked(("GET", "/v2/pods/{id}"), found.v2(world.clock.now()))
    if pod and pod[2] is None and method == "DELETE":
        return deleted(world, pod[1], scope)
    if pod and pod[2] is None and method == "PATCH":
        return patched(world, pod[1], request, scope)
    if scope not in ("account", "read"):
        raise Refused(403)
    return reading(world, request)


def checked(call: tuple[str, str], body: Any) -> Answer:
    """Return the answer after holding it against the table: the simulator's own lies are bugs."""
    _, status, shape = contract.CALLS[call]
    wrong = contract.check(body, shape) if shape else []
    if wrong:
        raise AssertionError(f"the simulator breaks the contract at {call}: {wrong}")
    return Answer(status, body)


def valid(request: Request, shape: str) -> dict[str, Any]:
    if not isinstance(request.body, dict):
        raise Refused(400, "the body is no JSON object")
    wrong = contract.check(request.body, shape)
    if wrong:
        raise Refused(422, errors=wrong)
    return request.body


# ---------------------------------------------------------------- who may do what
def authorise(world: World, request: Request) -> str:
    """Return `account`, `read` or the id of the pod whose key this is; raises Refused 401."""
    key = request.key
    if key == world.settings.key:
        return "account"
    if key == world.settings.read_key:
        if request.method != "GET":
            raise Refused(403)
        return "read"
    for pod in world.living():
        if key == pod.key:
            return pod.id
    raise Refused(401, None if key is None else "invalid api key")


def owned(world: World, pod_id: str, scope: str, want: str) -> Pod:
    """Return the pod if this key may `want` it (read, stop, end); raises Refused 403 or 404."""
    if scope not in ("account", "read"):
        allowed = {"full": ("read", "stop", "end"), "stop": ("read", "stop"), "denied": ()}
        if scope != pod_id or want not in allowed[world.settings.pod_key]:
            raise Refused(403)
    found = world.seen(pod_id)
    if found is None:
        raise Refused(404, "pod not found")
    return found


# ---------------------------------------------------------------- pods
def listed(world: World, request: Request, scope: str) -> Answer:
    if scope not in ("account", "read"):
        raise Refused(403)
    pods = world.listed()
    if world.switches.take("list_empty"):
        pods = []
    if pods and world.switches.take("list_omits"):
        pods = pods[:-1]
    now = world.clock.now()
    body: dict[str, Any] = {"pods": [pod.v2(now) for pod in pods]}
    paged = world.switches.take("list_pages")
    if paged:
        size, start = int(paged.number("size", 1)), int(request.query.get("cursor", 0))
        body["pods"] = body["pods"][start : start + size]
        more = start + size < len(pods)
        body["pagination"] = {
            "hasNextPage": more,
            "nextCursor": str(start + size) if more else None,
        }
    return checked(("GET", "/v2/pods"), body)


def created(world: World, request: Request, scope: str) -> Answer:
    if scope != "account":
        raise Refused(403)
    asked = with_defaults(valid(request, "CreatePodRequest"))
    pod = make(world, asked)
    return checked(("POST", "/v2/pods"), pod.v2(world.clock.now()))


def make(world: World, asked: dict[str, Any]) -> Pod:
    """Return a new pod, under the rules and armed faults of create; raises Refused."""
    may_create(world, asked)
    dear = world.switches.take("create_dear")
    late = world.switches.take("create_late")
    factor = dear.number("factor", 2) if dear else 1.0
    late_s = late.number("seconds", 300) if late else 0.0
    if world.switches.take("create_twice"):
        world.lives.make(asked, factor=factor)
    pod = world.lives.make(asked, factor=factor, late_s=late_s)
    if late:
        raise Refused(500)
    return pod


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    mounts = {k: v for k, v in (given.get("mounts") or {}).items() if v}
    base = {"image": "", "args": "", "disk": 10, "env": {}, "ports": [], "cloud": "SECURE"}
    return base | given | {"mounts": mounts}


def may_create(world: World, asked: dict[str, Any]) -> None:
    """Refuse what RunPod refuses."""
    if not asked["image"] and not asked.get("templateId"):
        raise Refused(422, errors=["$: missing property 'image'"])
    if asked.get("gpu") and asked.get("cpu"):
        raise Refused(400, "gpu and cpu are mutually exclusive")
    if len(asked["mounts"]) > 1:
        raise Refused(400, "persistent and network mounts are mutually exclusive")
    if len(asked["env"]) > ENV_MAX:
        raise Refused(400, f"at most {ENV_MAX} environment variables")
    unknown = [d for d in asked.get("dataCenterIds", []) if d not in catalog.DATA_CENTERS]
    if unknown:
        raise Refused(400, f"unknown data center {unknown[0]}")
    if world.switches.take("create_no_disk"):
        raise Refused(400, NO_DISK)
    wanted = asked.get("gpu")
    if wanted:
        gpu = catalog.GPUS.get(wanted["id"])
        if gpu is None:
            raise Refused(400, "unknown gpu type")
        price = gpu.secure_usd if asked["cloud"] == "SECURE" else gpu.community_usd
        fits = catalog.cuda_fits(wanted) and wanted.get("count", 1) <= gpu.max_count
        if not price or not fits or world.settings.stock == "NONE":
            raise Refused(400, NO_CAPACITY)
        if world.balance() < price * wanted.get("count", 1):
            raise Refused(402)
    if world.switches.take("create_no_capacity"):
        raise Refused(400, NO_CAPACITY)


def deleted(world: World, pod_id: str, scope: str) -> Answer:
    pod = owned(world, pod_id, scope, "end")
    if not world.switches.take("delete_lie"):
        world.lives.end(pod, cause_of(scope))
    return Answer(204)


def cause_of(scope: str) -> str:
    return "api" if scope == "account" else "own key"


def acted(world: World, pod_id: str, request: Request, scope: str) -> Answer:
    action = valid(request, "PodActionRequest")["action"]
    pod = owned(world, pod_id, scope, {"terminate": "end"}.get(action, "stop"))
    if action not in ACTIONS[pod.status] or (pod.locked and action in ("stop", "restart")):
        raise Refused(409)
    if action == "terminate":
        return deleted(world, pod_id, scope)
    if action == "stop":
        world.lives.stop(pod, cause_of(scope))
    elif action == "start":
        world.lives.start(pod)
    else:
        world.lives.restart(pod, cause_of(scope))
    return checked(("POST", "/v2/pods/{id}/action"), pod.v2(world.clock.now()))


def patched(world: World, pod_id: str, request: Request, scope: str) -> Answer:
    pod = owned(world, pod_id, scope, "end")
    given = valid(request, "UpdatePodRequest")
    pod.name = given.pop("name", pod.name)
    pod.locked = given.pop("locked", pod.locked)
    pod.asked.update(given)
    return checked(("PATCH", "/v2/pods/{id}"), pod.v2(world.clock.now()))


# ---------------------------------------------------------------- the rest
def reading(world: World, request: Request) -> Answer:
    path, query = request.path, request.query
    if request.method not in ("GET", "PUT"):
        raise Refused(405)
    if path == "/v2/account/ssh-keys":
        if request.method == "PUT":
            world.ssh_keys = list(valid(request, "SshKeys")["keys"])
        return checked(("GET", path), {"keys": world.ssh_keys})
    if path == "/v2/billing/pods":
        return money.answer(world, query)
    if path == "/v2/catalog/datacenters":
        found = [catalog.data_center_entry(name) for name in catalog.DATA_CENTERS]
        return checked(("GET", path), {"dataCenters": found})
    if path.startswith("/v2/catalog/gpus"):
        return gpus(world, path, query)
    return problem(404)


def gpus(world: World, path: str, query: dict[str, str]) -> Answer:
    availability = "AVAILABILITY" in query.get("include", "")
    if availability and "POD" not in query.get("product", ""):
        raise Refused(400, "include=AVAILABILITY needs product=POD")
    entries = [
        catalog.gpu_entry(gpu, world.settings.stock, availability=availability)
        for gpu in catalog.GPUS.values()
    ]
    wanted = path.removeprefix("/v2/catalog/gpus").lstrip("/")
    if not wanted:
        return checked(("GET", path), {"gpus": entries})
    for entry in entries:
        if entry["id"] == wanted:
            return checked(("GET", "/v2/catalog/gpus/{id}"), entry)
    raise Refused(404)
