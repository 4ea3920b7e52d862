"""The v2 face: strict, in RunPod's words, late where it is late, and honest about money."""

from __future__ import annotations

import json
import urllib.request
from decimal import Decimal
from typing import Any

import pytest

from tests.support.cloud import READ_KEY, Cloud
from tests.support.pods import asked, create

BILLED = pytest.approx
pytestmark = pytest.mark.e2e


@pytest.fixture
def api(sim: Cloud) -> Cloud:
    """Without containers: what is asked here needs none."""
    sim.set(pods="none", list_lag_s=0.0, get_lag_s=0.0, quota_per_minute=0, balance_usd=10_000.0)
    return sim


def listed(api: Cloud) -> list[str]:
    return [pod["id"] for pod in api.call("GET", "/v2/pods")[1]["pods"]]


def test_errors_are_problems_and_success_of_delete_has_no_body(api: Cloud) -> None:
    status, body, headers = api.call("POST", "/v2/pods", {"name": "x", "spot": True})
    assert (status, headers["Content-Type"]) == (422, "application/problem+json")
    assert body["errors"] == ["$: additional properties 'spot' not allowed"]
    assert api.call("POST", "/v2/pods", {"name": "x"})[1]["errors"] == [
        "$: missing property 'image'"
    ]
    made = create(api, "gpujob-api")
    status, body, headers = api.call("DELETE", f"/v2/pods/{made['id']}")
    assert (status, body) == (204, None)
    assert "Content-Length" not in headers
    assert api.call("DELETE", f"/v2/pods/{made['id']}")[0] == 404
    assert api.call("GET", "/v1/pods")[0] == 410
    assert api.call("GET", "/v2/pods", key=None)[0] == 401
    assert api.call("GET", "/v2/pods", key="rpa_x")[0] == 401


def test_a_read_only_key_reads_everything_env_included_and_writes_nothing(api: Cloud) -> None:
    made = create(api, "gpujob-read", env={"SECRET": "seen"})
    assert api.call("GET", f"/v2/pods/{made['id']}", key=READ_KEY)[1]["env"] == {"SECRET": "seen"}
    assert api.call("DELETE", f"/v2/pods/{made['id']}", key=READ_KEY)[0] == 403
    assert api.call("POST", "/v2/pods", asked("gpujob-no"), key=READ_KEY)[0] == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"gpu": {"id": "NVIDIA A40"}, "cloud": "COMMUNITY"}, 400),
        ({"gpu": {"id": "NVIDIA L4", "minCudaVersion": "13.1"}}, 400),
        ({"gpu": {"id": "NVIDIA L4", "allowedCudaVersions": ["12.8"]}}, 400),
        ({"gpu": {"id": "NVIDIA L4", "count": 9}}, 400),
        ({"dataCenterIds": ["US-NO-1"]}, 400),
        ({"gpu": {"id": "NVIDIA L4", "minCudaVersion": "12.11"}}, 201),
        ({"gpu": {"id": "NVIDIA L4", "minVcpuCountPerGpu": 4}}, 201),
    ],
)
def test_the_rules_of_create(api: Cloud, change: dict[str, Any], status: int) -> None:
    assert api.call("POST", "/v2/pods", asked("gpujob-rule", **change))[0] == status


def test_a_new_pod_and_an_ended_one_are_late_in_the_list(api: Cloud) -> None:
    api.set(list_lag_s=30, get_lag_s=10)
    made = create(api, "gpujob-late")
    path = f"/v2/pods/{made['id']}"
    assert (listed(api), api.call("GET", path)[0], api.call("DELETE", path)[0]) == ([], 404, 404)
    api.jump(11)
    assert (listed(api), api.call("GET", path)[0]) == ([], 200)
    api.jump(20)
    assert listed(api) == [made["id"]]
    assert api.call("DELETE", path)[0] == 204
    assert (listed(api), api.call("GET", path)[0]) == ([made["id"]], 404)
    api.jump(31)
    assert listed(api) == []


def test_pages_are_followed_by_cursor(api: Cloud) -> None:
    made = {create(api, f"gpujob-{n}")["id"] for n in range(3)}
    api.fault("list_pages", times=0, size=2)
    first = api.call("GET", "/v2/pods")[1]
    second = api.call("GET", f"/v2/pods?cursor={first['pagination']['nextCursor']}")[1]
    assert second["pagination"] == {"hasNextPage": False, "nextCursor": None}
    assert {pod["id"] for pod in first["pods"] + second["pods"]} == made
    assert len(first["pods"]) == 2


def test_the_quota_is_told_and_held(api: Cloud) -> None:
    api.set(quota_per_minute=3)
    headers = [api.call("GET", "/v2/pods")[2] for _ in range(2)]
    assert headers[1]["RateLimit"].startswith('"minute";r=1;t=')
    assert '"minute";q=3;w=60' in headers[0]["RateLimit-Policy"]
    api.call("GET", "/v2/pods")
    status, body, limited = api.call("GET", "/v2/pods")
    assert (status, body["detail"]) == (429, "rate limit exceeded for the minute window")
    assert 0 < int(limited["Retry-After"]) <= 60
    api.jump(61)
    assert api.call("GET", "/v2/pods")[0] == 200


def test_the_bill_is_by_the_second_and_its_records_add_up(api: Cloud) -> None:
    before = api.bill()
    made = create(api, "gpujob-bill", gpu={"id": "NVIDIA L4", "count": 2})
    api.jump(5400)
    api.call("POST", f"/v2/pods/{made['id']}/action", {"action": "stop"})
    api.jump(3600)
    api.call("DELETE", f"/v2/pods/{made['id']}")
    # 1.5 h of 2 x 0.49 and of 40 GB at 0.10 a month, then 1 h of 20 GB at 0.20 a month.
    expected = Decimal("1.47") + Decimal(40) * Decimal("0.10") / 730 * Decimal("1.5")
    expected += Decimal(20) * Decimal("0.20") / 730
    mine = api.bill() - before
    assert abs(mine - expected) < Decimal("0.002")
    query = f"/v2/billing/pods?podId={made['id']}&bucketSize=hour"
    answer = api.call("GET", query)[1]
    total = sum(Decimal(str(record["totalAmount"])) for record in answer["records"])
    assert float(total) == BILLED(float(mine), abs=1e-6)
    assert answer["metadata"]["totals"]["totalAmount"] == BILLED(float(mine), abs=1e-6)
    assert len(answer["records"]) >= 3
    api.set(billing="off")
    assert api.call("GET", query)[0] == 500
    api.set(billing="on")


def test_too_little_money_for_an_hour_is_402_and_none_at_all_ends_every_pod(api: Cloud) -> None:
    spent = float(api.state()["spent_usd"])
    api.set(balance_usd=spent + 0.4)
    assert api.call("POST", "/v2/pods", asked("gpujob-no"))[0] == 402
    api.set(balance_usd=spent + 0.6)
    made = create(api, "gpujob-poor")
    api.jump(3600)
    assert api.pod(made["id"])["living"]
    api.jump(3600)
    api.wait(lambda: not api.pod(made["id"])["living"], "the end of the money")
    assert api.pod(made["id"])["end_cause"] == "balance"


def test_the_log_stream_resumes_after_the_last_event(api: Cloud) -> None:
    made = create(api, "gpujob-log")
    api.wait(lambda: api.pod(made["id"])["status"] == "RUNNING", "RUNNING")
    lines = events(api, made["id"], {"tail": "2"})
    assert [line["line"] for line in lines.values()][-1] == "start container"
    first = next(iter(lines))
    assert list(events(api, made["id"], {}, first)) == list(lines)[1:]
    assert events(api, made["id"], {"source": "container"}) == {}
    assert api.call("GET", f"/v2/pods/{made['id']}/logs?source=x")[0] == 400
    assert api.call("GET", f"/v2/pods/{made['id']}/logs?tail=6000")[0] == 400


def events(api: Cloud, pod_id: str, query: dict[str, str], last: str = "") -> dict[str, Any]:
    """Return the events that come at once, by id."""
    words = "&".join(f"{name}={value}" for name, value in query.items())
    request = urllib.request.Request(f"{api.url}/v2/pods/{pod_id}/logs?{words}")
    request.add_header("Authorization", f"Bearer {api.key}")
    if last:
        request.add_header("Last-Event-ID", last)
    found: dict[str, Any] = {}
    event = ""
    with urllib.request.urlopen(request, timeout=0.7) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        try:
            for line in stream:
                if line.startswith(b"id: "):
                    event = line[4:].decode().strip()
                elif line.startswith(b"data: "):
                    found[event] = json.loads(line[6:])
        except TimeoutError:
            pass
    return found


def test_the_catalogue_shows_prices_stock_and_placeholders(api: Cloud) -> None:
    plain = {g["id"]: g for g in api.call("GET", "/v2/catalog/gpus")[1]["gpus"]}
    assert plain["NVIDIA A40"]["price"] == {"secure": 0.44, "community": 0.5}
    assert plain["NVIDIA A40"]["community"] is False
    assert "availability" not in plain["NVIDIA A40"]
    assert api.call("GET", "/v2/catalog/gpus?include=AVAILABILITY")[0] == 400
    api.set(stock="LOW")
    full = api.call("GET", "/v2/catalog/gpus/NVIDIA%20L4?include=AVAILABILITY&product=POD")[1]
    assert full["availability"] == "LOW"
    assert {d["availability"] for d in full["dataCenters"]} == {"LOW"}
    api.set(stock="HIGH")
