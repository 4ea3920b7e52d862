"""RunPod's API v2 over the simulated cloud: below it the seed's faults, above it the real adapter.

Everything of the adapter is the real code but the sockets: requests as documents, statuses, words,
headers, pages, the host key in the log, what it remembers of its own creates. What goes wrong below
is a typed error of `SimProvider`; here it becomes one of the shapes in which RunPod was seen to
fail, and the adapter has to read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from providers.base import InstanceId, InstanceState, LaunchRequest
from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.fake_cloud import Machine
from providers.runpod import RunPodProvider
from providers.runpod_offers import STORAGE_USD_PER_GIB_HOUR
from providers.runpod_pods import STAMP
from providers.runpod_start import HOST_KEY_WORD
from tests.sim.adapter_bugs import ADAPTER_BUGS

if TYPE_CHECKING:
    from tests.sim.cloud import SimProvider
    from tests.sim.world import World

BASE_URL = "http://simulated.invalid"
WINDOW_S, WINDOW_REQUESTS = 60.0, 30  # of the rate limit, in worlds that have one
CALL_S = 25.0  # the adapter's own total deadline of a call
HTML = b"<html><title>Access denied</title>error code: 1010</html>"
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Reply:
    """What the adapter reads of a response."""

    status_code: int
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def iter_bytes(self) -> Iterator[bytes]:
        yield self.data

    def iter_lines(self) -> Iterator[str]:
        yield from self.data.decode().splitlines()


def problem(status: int, detail: str, **headers: str) -> Reply:
    """Return a problem document."""
    body = {"title": "Error", "status": status, "detail": detail}
    return Reply(status, json.dumps(body).encode(), headers)


# Every shape of "no clear answer": status and body; None is a cut connection.
UNCLEAR: dict[str, tuple[int, bytes] | None] = {
    "http_500": (500, b'{"title": "Internal Server Error", "status": 500}'),
    "http_502_html": (502, HTML),
    "http_503": (503, b'{"title": "Service Unavailable", "status": 503}'),
    "http_null": (500, b'{"data": null}'),
    "http_quiet": (500, b'{"message": "internal error"}'),
    "http_html": (403, HTML),
    "http_malformed": (200, b'{"pods": [{"id": "abc", '),
    "http_array": (200, b"[]"),
    "http_reset": None,
}
REFUSED: dict[type[ProviderError], tuple[int, str]] = {
    NoCapacity: (400, "There are no longer any instances available with these specifications"),
    QuotaExceeded: (402, "Your balance is too low"),
    AuthFailed: (401, "invalid api key"),
    InvalidRequest: (422, "$: unknown property"),
    NotFound: (404, "pod not found"),
}


class Wire:
    """One process's way to the API; in the place of `Api._asked`."""

    def __init__(self, world: World, below: SimProvider) -> None:
        self._world = world
        self._below = below

    @contextmanager
    def asked(
        self, verb: str, method: str, path: str, *, params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None = None, timeout: object = None,
    ) -> Iterator[Reply]:  # fmt: skip
        """Yield the response, as the adapter's HTTP client would; raise what it raises."""
        del timeout
        try:
            reply = self._answer(method, path, dict(params or {}), dict(body or {}))
        except ProviderError as error:
            reply = self._spoiled(verb, error)
        limit = self._world.quota.stamp()
        yield Reply(reply.status_code, reply.data, {**limit, **reply.headers})

    def _spoiled(self, verb: str, error: ProviderError) -> Reply:
        if isinstance(error, RateLimited):
            return problem(
                429, "too many requests", **{"retry-after": f"{error.retry_after_s:.0f}"}
            )
        for kind, (status, words) in REFUSED.items():
            if isinstance(error, kind):
                return problem(status, words)
        shape = self._world.rng.choice(sorted(UNCLEAR))
        self._world.swarm.counts[shape] += 1
        found = UNCLEAR[shape]
        if found is None or (verb == "terminate" and found[0] == 200):
            raise Unavailable(f"{verb}: the connection was reset")
        return Reply(*found)

    # ---------------------------------------------------------------- the calls
    def _answer(
        self, method: str, path: str, params: dict[str, str], body: dict[str, Any]
    ) -> Reply:
        self._world.quota.take(exempt=method == "DELETE")
        parts = path.strip("/").split("/")
        if path == "/billing/pods":
            return self._billing(params)
        if method == "POST":
            instance = self._below.launch(self._request(body))
            return self._pod(instance.id, 201)
        if len(parts) == 1:
            return self._list(params)
        instance_id = InstanceId(parts[1])
        if len(parts) == 3:
            return self._log(instance_id)
        if method == "DELETE":
            return self._delete(instance_id)
        self._below.describe(instance_id)
        return self._pod(instance_id, 200)

    def _request(self, body: dict[str, Any]) -> LaunchRequest:
        """Return what a create asks for. The pod's environment is all that it knows of us."""
        gpu, env = body["gpu"], body["env"]
        place = (body.get("dataCenterIds") or [""])[0]
        key = f"{gpu['id']}|{gpu['count']}|{body['cloud']}|{place}"
        offer = next(offer for offer in self._world.cloud.offers if offer.key == key)
        return LaunchRequest(
            body["name"], env[f"{STAMP}OWNER"], offer, env["PUBLIC_KEY"],
            float(env[f"{STAMP}DEADLINE_AT"]),
            disk_gib=body["disk"] + body["mounts"]["persistent"]["size"], env=env,
        )  # fmt: skip

    def _delete(self, instance_id: InstanceId) -> Reply:
        if instance_id not in self._world.cloud.machines:
            raise NotFound("terminate")
        if self._world.swarm.hits("terminate_404"):  # a 404 while it lives: propagation
            raise NotFound("terminate")
        self._below.terminate(instance_id)
        return Reply(204)

    def _list(self, params: dict[str, str]) -> Reply:
        shown = list(self._below.find(""))
        if self._world.swarm.hits("find_empty"):
            shown = []
        body: dict[str, Any] = {}
        if "list_pages" in self._world.swarm.rates:
            start = int(params.get("cursor", 0))
            more = len(shown) > start + 2
            cursor = str(start + 2) if more else None
            body["pagination"] = {"hasNextPage": more, "nextCursor": cursor}
            shown = shown[start : start + 2]
        body["pods"] = [self._document(found.id) for found in shown]
        return Reply(200, json.dumps(body).encode())

    def _log(self, instance_id: InstanceId) -> Reply:
        self._world.check_window()
        machine = self._world.cloud.machines[instance_id]
        key, box = machine.host_key, self._world.boxes[instance_id]
        line = f"{HOST_KEY_WORD} {machine.label} {key.type} {key.base64}"
        if "log_silent" in box.faults:
            line = "the image's own words"
        return Reply(200, f"data: {json.dumps({'line': line})}\n\n".encode())

    def _billing(self, params: dict[str, str]) -> Reply:
        if "billing_off" in self._world.swarm.rates:
            raise Unavailable("billing: 500")
        cloud, records = self._world.cloud, []
        start, end = (
            datetime.fromisoformat(params[name]).timestamp() for name in ("startTime", "endTime")
        )
        for hour in range(int(start), int(end), HOUR_S):
            pod = InstanceId(params["podId"])
            usd = cloud.bill(pod, hour + HOUR_S) - cloud.bill(pod, max(hour, _made(cloud, pod)))
            if usd > 0:
                records.append({"podId": pod, "totalAmount": float(usd)})
        return Reply(200, json.dumps({"records": records}).encode())

    # ---------------------------------------------------------------- documents
    def _pod(self, instance_id: InstanceId, status: int) -> Reply:
        return Reply(status, json.dumps(self._document(instance_id)).encode())

    def _document(self, instance_id: InstanceId) -> dict[str, Any]:
        machine = self._world.cloud.machines[instance_id]
        status, direct = self._status(machine)
        env = {} if machine.owner is None else {f"{STAMP}OWNER": machine.owner}
        if machine.deadline_at is not None:  # ours, by an earlier life of the database
            env[f"{STAMP}DEADLINE_AT"] = repr(machine.deadline_at)
            env[f"{STAMP}PRICE"] = str(machine.offer.price_usd_per_hour)
        if machine.request is not None:
            env |= machine.request.env
        cost: Decimal = machine.price_usd_per_hour
        if "cost_with_disks" in self._world.swarm.rates:
            cost += machine.storage_usd_per_hour
        return {
            "id": machine.id,
            "name": machine.label,
            "status": status,
            "cost": None if status == "EXITED" else float(cost),
            "createdAt": datetime.fromtimestamp(machine.created_at, UTC).isoformat(),
            "startedAt": None if status == "PROVISIONING" else "2027-01-01T00:00:00Z",
            "env": env,
            "ssh": {"direct": direct},
            "disk": 20,
            "mounts": {"persistent": {"size": 10, "path": "/workspace/data"}},
        }

    def _status(self, machine: Machine) -> tuple[str, dict[str, Any] | None]:
        """Return the pod's status as RunPod words it, and its way in."""
        number = int(machine.id[-2:], 16)  # a pod's own chance, the same at each look
        if machine.deleted_at is not None and number % 2:
            return "TERMINATED", None  # still shown, late: and it says so in half of the cases
        if machine.stopped_at is not None:
            return ("EXITED", "ERROR")[number // 2 % 2], None
        found = self._below.seen(machine.id)
        if found.state is not InstanceState.READY:
            stuck = ("PROVISIONING", "STARTING", "RUNNING")[number % 3]
            return ("STARTING" if found.host else stuck), None
        return "RUNNING", {"host": found.host, "port": found.port, "username": "root"}


def _made(cloud: Any, pod: InstanceId) -> float:
    return float(cloud.machines[pod].created_at)


@dataclass(slots=True)
class Quota:
    """The account's rate limit: a window of requests, in worlds that have one."""

    now: Callable[[], float]
    on: bool = False
    begun: float = 0.0
    used: int = 0
    refused: int = 0

    def take(self, *, exempt: bool) -> None:
        """Count a request; raises RateLimited. A DELETE is counted, and answered."""
        if not self.on:
            return
        if self.now() >= self.begun + WINDOW_S:
            self.begun, self.used = self.now(), 0
        self.used += 1
        if self.used > WINDOW_REQUESTS and not exempt:
            self.refused += 1
            raise RateLimited("429", retry_after_s=self.begun + WINDOW_S - self.now())

    def stamp(self) -> dict[str, str]:
        """Return the headers of an answer."""
        if not self.on:
            return {}
        left = max(0, WINDOW_REQUESTS - self.used)
        until = max(1, round(self.begun + WINDOW_S - self.now()))
        return {"ratelimit": f'"default";r={left};t={until}'}


def adapter(world: World, below: SimProvider) -> RunPodProvider:
    """Return the real adapter over the simulated wire."""
    settings = world.cloud.settings
    found = RunPodProvider(
        "rpa_simulated", BASE_URL, world.clock, list_lag_s=settings.list_lag_s,
        boot_timeout_s=settings.boot_timeout_s, balance=lambda *_: None,
    )  # fmt: skip
    wire = Wire(world, below)
    for api in (found._api, found._log_api):
        api._asked = wire.asked  # type: ignore[assignment,method-assign]
    if world.adapter_bug is not None:
        ADAPTER_BUGS[world.adapter_bug](found, world)
    return found


def offer_key(gpu: str, count: int) -> str:
    return f"{gpu}|{count}|SECURE|EU-RO-1"


STORAGE_RATE = STORAGE_USD_PER_GIB_HOUR
