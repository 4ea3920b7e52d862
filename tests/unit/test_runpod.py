"""The RunPod adapter over a scripted server: what is sent, and what each answer is taken for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.base import HostKey, InstanceId, InstanceState, LaunchRequest, OfferKey, Tier, Wish
from providers.errors import (
    InvalidRequest,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.runpod import RunPodProvider
from tests.support.clocks import VirtualClock
from tests.support.tiny_http import Answer, Asked, TinyServer, tiny_server

BODY = base64.b64encode(b"\x00\x00\x00\x0bssh-ed25519" + b"\x00\x00\x00 " + b"k" * 32).decode()
LABEL = "gpujob-abcdef01-1f2e3d-1-a1b2c3"


def gpu(gpu_id: str = "NVIDIA L4", **changes: Any) -> dict[str, Any]:
    return {
        "id": gpu_id,
        "name": "L4",
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": 24,
        "secure": True,
        "community": False,
        "price": {"secure": 0.43, "community": 0.5},
        "maxCount": {"secure": 8, "community": 1},
        "availability": "HIGH",
        "dataCenters": [
            {"id": "US-KS-2", "name": "", "availability": "LOW"},
            {"id": "EU-RO-1", "name": "", "availability": "HIGH"},
            {"id": "US-TX-3", "name": "", "availability": "NONE"},
        ],
        **changes,
    }


def pod(**changes: Any) -> dict[str, Any]:
    return {
        "id": "7h9k2m4n6p3q1",
        "name": LABEL,
        "status": "RUNNING",
        "cost": 0.43,
        "disk": 20,
        "mounts": {"persistent": {"size": 40, "path": "/workspace/data"}},
        "env": {
            "GPUJOB_POD_OWNER": "me",
            "GPUJOB_POD_DEADLINE_AT": "5000.25",
            "GPUJOB_POD_PRICE": "0.43",
            "GPUJOB_POD_WORKDIR": "/workspace/data",
        },
        "ssh": {
            "proxy": {"host": "ssh.runpod.io", "port": 22, "username": "x-y", "command": ""},
            "direct": {"host": "195.26.233.3", "port": 34446, "username": "root", "command": ""},
        },
        "createdAt": "1970-01-01T00:16:40Z",
        "startedAt": "1970-01-01T00:17:40Z",
        **changes,
    }


class World:
    """A server that answers by method and path; the last answer stays."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], list[Answer]] = {}

    def say(self, method: str, path: str, *answers: Answer) -> None:
        self.routes[method, path] = list(answers)

    def __call__(self, asked: Asked) -> Answer:
        answers = self.routes.get((asked.method, asked.path))
        if not answers:
            return Answer(404, {"title": "Not Found", "status": 404, "detail": "no such thing"})
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def server(world: World) -> Iterator[TinyServer]:
    with tiny_server(world) as tiny:
        yield tiny


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def runpod(server: TinyServer, clock: VirtualClock, tmp_path: Path) -> RunPodProvider:
    return RunPodProvider("rpa_key", server.url, clock, refused=tmp_path / "refused.json")


def catalogue(world: World, *gpus: dict[str, Any]) -> None:
    world.say("GET", "/v2/catalog/gpus", Answer(200, {"gpus": list(gpus)}))


@pytest.fixture
def request_(world: World, runpod: RunPodProvider, clock: VirtualClock) -> LaunchRequest:
    catalogue(world, gpu())
    offer = runpod.offers_for(Wish(tiers=(Tier.SECURE,)))[0]
    return LaunchRequest(LABEL, "me", offer, "ssh-ed25519 AAAA", clock.now() + 3600.0)


# ---------------------------------------------------------------- offers


def test_an_offer_is_a_gpu_in_a_tier_in_a_data_centre_with_stock(
    world: World, runpod: RunPodProvider, server: TinyServer
) -> None:
    catalogue(world, gpu())
    offers = runpod.offers_for(Wish(count=2, tiers=(Tier.SECURE,)))
    assert [(o.region, o.stock_rank) for o in offers] == [("US-KS-2", 2), ("EU-RO-1", 0)]
    first = offers[0]
    assert (first.provider, first.gpu, first.gpu_count, first.vram_gib) == ("runpod", "L4", 2, 24.0)
    assert first.price_usd_per_hour == Decimal("0.86")
    assert first.tier is Tier.SECURE
    (asked,) = server.asked
    assert asked.query == {
        "include": "AVAILABILITY",
        "product": "POD",
        "count": "2",
        "cloud": "SECURE",
        "minCudaVersion": "13.0",
    }


@pytest.mark.parametrize(
    "entry",
    [
        gpu(secure=False),
        gpu(price={"secure": 0, "community": 0}),
        gpu(price={"secure": None}),
        gpu(price=None),
        gpu(maxCount={"secure": 1}),
        gpu(manufacturer="AMD"),
        gpu(memory=None),
        gpu(id=None),
        gpu(availability="NONE", dataCenters=[]),
        gpu(dataCenters=[{"id": "X", "availability": "NONE"}]),
        gpu(dataCenters=None, availability=None),
    ],
)
def test_what_cannot_be_rented_is_no_offer(
    world: World, runpod: RunPodProvider, entry: dict[str, Any]
) -> None:
    catalogue(world, entry, gpu("NVIDIA A40", dataCenters=None))
    (only,) = runpod.offers_for(Wish(count=2, tiers=(Tier.SECURE,)))
    assert (only.gpu, only.region) == ("A40", "")


def test_the_community_tier_is_asked_only_where_wished(
    world: World, runpod: RunPodProvider, server: TinyServer
) -> None:
    catalogue(world, gpu(community=True))
    offers = runpod.offers_for(Wish(tiers=(Tier.COMMUNITY,)))
    assert {(o.tier, o.price_usd_per_hour) for o in offers} == {(Tier.COMMUNITY, Decimal("0.5"))}
    assert [asked.query["cloud"] for asked in server.asked] == ["COMMUNITY"]


def test_an_open_count_is_asked_for_in_the_usual_shapes(
    world: World, runpod: RunPodProvider, server: TinyServer
) -> None:
    catalogue(world, gpu(maxCount={"secure": 4}, dataCenters=None))
    offers = runpod.offers_for(Wish(count=None, tiers=(Tier.SECURE,)))
    assert [(o.gpu_count, o.price_usd_per_hour) for o in offers] == [
        (1, Decimal("0.43")), (2, Decimal("0.86")), (4, Decimal("1.72")),
    ]  # fmt: skip
    assert [asked.query["count"] for asked in server.asked] == ["1", "2", "4", "8"]


@pytest.mark.parametrize("body", [{}, {"gpus": None}, {"gpus": {}}])
def test_a_catalogue_that_is_none_is_an_error(
    world: World, runpod: RunPodProvider, body: object
) -> None:
    world.say("GET", "/v2/catalog/gpus", Answer(200, body))
    with pytest.raises(Unavailable):
        runpod.offers()


# ---------------------------------------------------------------- launch


def test_a_create_call_asks_for_what_was_quoted(
    world: World, runpod: RunPodProvider, server: TinyServer, request_: LaunchRequest
) -> None:
    world.say("POST", "/v2/pods", Answer(201, pod(status="PROVISIONING", cost=0)))
    made = runpod.launch(replace(request_, disk_gib=100, budget_usd=Decimal("0.2")))
    body = server.asked[-1].body
    assert body["name"] == LABEL
    assert body["gpu"] == {"id": "NVIDIA L4", "count": 1, "minCudaVersion": "13.0"}
    assert (body["cloud"], body["dataCenterIds"]) == ("SECURE", ["US-KS-2"])
    assert body["ports"] == ["22/tcp"]
    assert body["disk"] + body["mounts"]["persistent"]["size"] == 100
    assert body["mounts"]["persistent"]["path"] == "/workspace/data"
    env = body["env"]
    assert env["PUBLIC_KEY"] == "ssh-ed25519 AAAA"
    assert env["JUPYTER_DISABLE"] == "1"
    assert env["RUNPOD_API_BASE_URL"] == server.url
    assert float(env["GPUJOB_POD_DEADLINE_AT"]) == request_.deadline_at
    # 0.20 USD at 0.43 + 100 GB x 0.000137 an hour: the budget ends before the deadline.
    assert int(env["GPUJOB_POD_END_IN_S"]) == int(0.2 / (0.43 + 0.0137) * 3600)
    assert all(isinstance(value, str) for value in env.values())
    assert "rpa_key" not in json.dumps(body)
    assert None not in body.values()
    assert (made.id, made.label, made.owner) == ("7h9k2m4n6p3q1", LABEL, "me")
    assert (made.state, made.host, made.price_usd_per_hour) == (InstanceState.STARTING, None, None)
    assert made.deadline_at == request_.deadline_at


@pytest.mark.parametrize(
    ("image", "template", "sent"),
    [
        (None, None, {"image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"}),
        ("me/mine:1", None, {"image": "me/mine:1"}),
        (None, "tmpl1", {"templateId": "tmpl1"}),
        ("me/mine:1", "tmpl1", {"image": "me/mine:1", "templateId": "tmpl1"}),
    ],
)
def test_the_image_or_the_template_is_the_users(  # noqa: PLR0917
    world: World,
    runpod: RunPodProvider,
    server: TinyServer,
    request_: LaunchRequest,
    image: str | None,
    template: str | None,
    sent: dict[str, str],
) -> None:
    world.say("POST", "/v2/pods", Answer(201, pod()))
    runpod.launch(replace(request_, image=image, template=template))
    body = server.asked[-1].body
    assert {name: body[name] for name in ("image", "templateId") if name in body} == sent


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, {"title": "Internal", "detail": "after the insert"}),
        Answer(502, b"<html>"),
        Answer(201, {}),
        Answer(201, b"null"),
        Answer(200, pod(id=None)),
        Answer(201, pod(id="../x")),
        Answer(201, pod(name="another")),
        Answer(raw=lambda _: None),
    ],
)
def test_an_unclear_launch_is_unknown_and_asked_once(
    world: World,
    runpod: RunPodProvider,
    server: TinyServer,
    request_: LaunchRequest,
    answer: Answer,
) -> None:
    world.say("POST", "/v2/pods", answer)
    with pytest.raises(Unavailable) as caught:
        runpod.launch(request_)
    assert caught.value.outcome_unknown
    assert server.paths().count(("POST", "/v2/pods")) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(402, {"title": "Payment Required", "detail": "x"}), QuotaExceeded),
        (Answer(422, {"title": "Unprocessable", "errors": ["$: bogus"]}), InvalidRequest),
        (Answer(429, {"title": "Too Many"}, {"Retry-After": "9"}), RateLimited),
    ],
)
def test_a_clean_refusal_is_definite(
    world: World,
    runpod: RunPodProvider,
    request_: LaunchRequest,
    answer: Answer,
    kind: type[Exception],
) -> None:
    world.say("POST", "/v2/pods", answer)
    with pytest.raises(kind):
        runpod.launch(request_)


def test_a_refused_candidate_cools_down_for_all_processes(  # noqa: PLR0917
    world: World,
    runpod: RunPodProvider,
    server: TinyServer,
    request_: LaunchRequest,
    clock: VirtualClock,
    tmp_path: Path,
) -> None:
    world.say("POST", "/v2/pods", Answer(400, {"detail": "no longer any instances available"}))
    with pytest.raises(NoCapacity):
        runpod.launch(request_)
    other = RunPodProvider("rpa_key", server.url, clock, refused=tmp_path / "refused.json")
    for provider in (runpod, other):
        assert [o.region for o in provider.offers_for(Wish(tiers=(Tier.SECURE,)))] == ["EU-RO-1"]
    clock.sleep(301.0)
    assert len(other.offers_for(Wish(tiers=(Tier.SECURE,)))) == 2


@pytest.mark.parametrize(
    "key", ["", "no-such-offer", "a|0|SECURE|x", "a|1|ALL|x", "a|1|SECURE|x y"]
)
def test_a_key_that_is_none_of_ours_is_refused_unasked(
    runpod: RunPodProvider, server: TinyServer, request_: LaunchRequest, key: str
) -> None:
    offer = replace(request_.offer, key=OfferKey(key))
    before = len(server.asked)
    with pytest.raises(InvalidRequest):
        runpod.launch(replace(request_, offer=offer))
    with pytest.raises(InvalidRequest):
        runpod.launch(replace(request_, label="no label"))
    with pytest.raises(InvalidRequest):
        runpod.launch(replace(request_, deadline_at=0.0))
    assert len(server.asked) == before


# ---------------------------------------------------------------- describe, find, terminate


def log(world: World, *lines: str) -> None:
    def write(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for line in lines:
            handler.wfile.write(f"data: {json.dumps({'line': line})}\n\n".encode())

    world.say("GET", "/v2/pods/7h9k2m4n6p3q1/logs", Answer(raw=write))


ID = InstanceId("7h9k2m4n6p3q1")


def test_a_pod_is_reachable_when_its_host_key_is_vouched_for(
    world: World, runpod: RunPodProvider, server: TinyServer
) -> None:
    world.say("GET", f"/v2/pods/{ID}", Answer(200, pod()))
    log(world, "starting", f"gpujob: host key other ssh-ed25519 {BODY}")
    held = runpod.describe(ID)
    assert (held.state, held.host, held.host_key) == (InstanceState.STARTING, None, None)
    log(world, f"gpujob: host key {LABEL} ssh-ed25519 {BODY}")
    seen = runpod.describe(ID)
    assert seen.state is InstanceState.READY
    assert (seen.host, seen.port, seen.user) == ("195.26.233.3", 34446, "root")
    assert seen.host_key == HostKey("ssh-ed25519", BODY)
    assert (seen.owner, seen.deadline_at, seen.created_at) == ("me", 5000.25, 1000.0)
    assert (seen.workdir, seen.price_usd_per_hour) == ("/workspace/data", Decimal("0.43"))
    asked = len(server.asked)
    assert runpod.describe(ID) == seen
    assert len(server.asked) == asked + 1  # the key is remembered
    moved = pod(ssh={"direct": {"host": "195.26.233.3", "port": 1, "username": "root"}})
    world.say("GET", f"/v2/pods/{ID}", Answer(200, moved))
    assert runpod.describe(ID).port == 1
    assert len(server.asked) == asked + 3  # a new address may mean a new key


def test_a_pod_whose_log_tells_nothing_is_let_through_unvouched_in_the_end(
    world: World, runpod: RunPodProvider, clock: VirtualClock
) -> None:
    world.say("GET", f"/v2/pods/{ID}", Answer(200, pod()))
    assert runpod.describe(ID).state is InstanceState.STARTING
    clock.sleep(61.0)
    seen = runpod.describe(ID)
    assert (seen.state, seen.host_key) == (InstanceState.READY, None)
    assert "nobody vouches" in seen.detail


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"status": "PROVISIONING"}, InstanceState.STARTING),
        ({"status": "STARTING"}, InstanceState.STARTING),
        ({"ssh": {"proxy": {"host": "h"}, "direct": None}}, InstanceState.STARTING),
        ({"ssh": None}, InstanceState.STARTING),
        ({"status": "EXITED", "cost": 0.0}, InstanceState.STOPPED),
        ({"status": "ERROR"}, InstanceState.STOPPED),
        ({"status": "TERMINATED", "cost": 0.0}, InstanceState.GONE),
        ({"status": "RESTARTING"}, InstanceState.UNKNOWN),
        ({"status": None}, InstanceState.UNKNOWN),
    ],
)
def test_a_status_is_a_state_and_the_unlisted_is_unknown(
    world: World, runpod: RunPodProvider, changes: dict[str, Any], state: InstanceState
) -> None:
    world.say("GET", f"/v2/pods/{ID}", Answer(200, pod(**changes)))
    world.say("GET", "/v2/pods", Answer(200, {"pods": [pod(**changes)]}))
    seen = runpod.describe(ID)
    assert (seen.state, seen.host) == (state, None)
    assert list(runpod.find("gpujob-")) == [seen]
    if changes.get("cost") == 0.0:
        assert seen.price_usd_per_hour is None  # "0 while stopped" is no price: its disk bills


@pytest.mark.parametrize(
    ("cost", "price"),
    [
        ("0.43", "0.43"),
        ("0.40", "0.40"),
        ("0.44", "0.43"),  # 60 GB of disks are 0.0082 an hour, shown in whole cents
        ("0.4382", "0.43"),
        ("0.4401", "0.4401"),
        ("0.50", "0.50"),
    ],
)
def test_a_price_above_the_quote_by_its_disks_alone_is_the_quote(
    world: World, runpod: RunPodProvider, cost: str, price: str
) -> None:
    text = json.dumps(pod()).replace('"cost": 0.43', f'"cost": {cost}').encode()
    world.say("GET", f"/v2/pods/{ID}", Answer(200, text))
    assert runpod.describe(ID).price_usd_per_hour == Decimal(price)


def test_find_filters_by_name_and_needs_a_whole_list(world: World, runpod: RunPodProvider) -> None:
    pods = [pod(), pod(id="other", name="my own pod", env=None), pod(id="x2", name=f"{LABEL}9")]
    world.say("GET", "/v2/pods", Answer(200, {"pods": pods}))
    assert [it.id for it in runpod.find(LABEL)] == [ID, "x2"]
    assert [it.owner for it in runpod.find("my own")] == [None]
    bad: list[Any] = [{"pods": [pod(), {"id": "y"}]}, {"pods": [pod(id=None)]}, {"errors": []}]
    for broken in bad:
        world.say("GET", "/v2/pods", Answer(200, broken))
        with pytest.raises(Unavailable):
            runpod.find(LABEL)


def test_a_404_right_after_create_proves_nothing(
    world: World, runpod: RunPodProvider, request_: LaunchRequest, clock: VirtualClock
) -> None:
    world.say("POST", "/v2/pods", Answer(201, pod()))
    runpod.launch(request_)
    with pytest.raises(Unavailable):
        runpod.describe(ID)
    with pytest.raises(Unavailable):
        runpod.terminate(ID)
    world.say("DELETE", f"/v2/pods/{ID}", Answer(204))
    runpod.terminate(ID)
    with pytest.raises(NotFound):
        runpod.describe(ID)
    del world.routes["DELETE", f"/v2/pods/{ID}"]
    runpod.terminate(ID)


@pytest.mark.parametrize("verb", ["describe", "find"])
def test_a_404_of_what_was_seen_is_an_answer(
    world: World, runpod: RunPodProvider, request_: LaunchRequest, verb: str
) -> None:
    world.say("POST", "/v2/pods", Answer(201, pod()))
    runpod.launch(request_)
    world.say("GET", f"/v2/pods/{ID}", Answer(200, pod(status="STARTING")))
    world.say("GET", "/v2/pods", Answer(200, {"pods": [pod()]}))
    runpod.describe(ID) if verb == "describe" else runpod.find("")
    del world.routes["GET", f"/v2/pods/{ID}"]
    with pytest.raises(NotFound):
        runpod.describe(ID)


def test_a_404_later_on_is_an_answer(
    world: World, runpod: RunPodProvider, request_: LaunchRequest, clock: VirtualClock
) -> None:
    world.say("POST", "/v2/pods", Answer(201, pod()))
    runpod.launch(request_)
    clock.sleep(120.0)
    runpod.terminate(ID)
    with pytest.raises(NotFound):
        runpod.describe(ID)


def test_an_answer_about_another_pod_is_none(world: World, runpod: RunPodProvider) -> None:
    world.say("GET", f"/v2/pods/{ID}", Answer(200, pod(id="another")))
    with pytest.raises(Unavailable):
        runpod.describe(ID)


@pytest.mark.parametrize("odd", ["", ".", "../x", "a/b", "a?b", "a b", "x" * 5000, "nul\0"])
def test_odd_ids_are_never_sent(runpod: RunPodProvider, server: TinyServer, odd: str) -> None:
    with pytest.raises(NotFound):
        runpod.describe(InstanceId(odd))
    with pytest.raises(InvalidRequest):
        runpod.terminate(InstanceId(odd))
    assert server.asked == []
