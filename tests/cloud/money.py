"""GET /v2/billing/pods: records by pod and bucket, late by the billing's lag."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.cloud import bill, contract
from tests.cloud.answers import Answer, Refused
from tests.cloud.clock import from_iso, iso
from tests.cloud.world import World

SIZES_S = {"hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
EXACT = Decimal("0.000000000001")


def answer(world: World, query: dict[str, str]) -> Answer:
    if world.settings.billing == "off":
        raise Refused(500)
    size = query.get("bucketSize", "day")
    if size not in SIZES_S:
        raise Refused(400, "bucketSize is not known")
    upto = world.clock.now() - world.settings.billing_lag_s
    start, end = span(world, query, SIZES_S[size])
    records = []
    with world.lock:
        for pod in world.pods.values():
            if query.get("podId", pod.id) != pod.id:
                continue
            for first, last in bill.buckets(max(start, pod.created_at), end, SIZES_S[size]):
                gpu, disk = bill.total(pod.stretches, first, min(last, upto))
                if gpu or disk:
                    times = {"startTime": iso(first), "endTime": iso(last)}
                    records.append({"podId": pod.id} | times | amounts(gpu, disk))
    gpu = sum((Decimal(str(r["gpuAmount"])) for r in records), Decimal(0))
    disk = sum((Decimal(str(r["diskAmount"])) for r in records), Decimal(0))
    asked = {"startTime": iso(start), "endTime": iso(end), "bucketSize": size}
    body: dict[str, Any] = {
        "records": records,
        "metadata": {
            "query": asked | {"podId": query.get("podId")},
            "recordCount": len(records),
            "uniquePodCount": len({r["podId"] for r in records}),
            "totals": amounts(gpu, disk),
        },
    }
    wrong = contract.check(body, "ListPodBillingResponse")
    assert not wrong, wrong
    return Answer(200, body)


def span(world: World, query: dict[str, str], size_s: int) -> tuple[float, float]:
    now = world.clock.now()
    try:
        if "lastN" in query:
            return now - int(query["lastN"]) * size_s, now
        start = from_iso(query["startTime"]) if "startTime" in query else now - 30 * 86400
        return start, from_iso(query["endTime"]) if "endTime" in query else now
    except ValueError:
        raise Refused(400, "a time that is no RFC 3339 time") from None


def amounts(gpu: Decimal, disk: Decimal) -> dict[str, float]:
    return {
        "totalAmount": float((gpu + disk).quantize(EXACT)),
        "gpuAmount": float(gpu.quantize(EXACT)),
        "cpuAmount": 0.0,
        "diskAmount": float(disk.quantize(EXACT)),
    }
