"""What RunPod charged, and what is left: closed hours of v2 billing, and the balance by GraphQL."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

from providers.errors import Unavailable
from providers.runpod_api import Api
from providers.runpod_offers import money
from providers.runpod_settings import API_BASE_URL

HOUR_S = 3600.0
# The billing job runs every five minutes (docs, pods/pricing): an hour is whole a while after it.
SETTLED_AFTER_S = 900.0
SDK_S = 60.0  # of one SDK call: it has no total deadline of its own; a drip held it for 85 s
BASE_VARIABLE = "RUNPOD_API_BASE_URL"
BALANCE = "query { myself { clientBalance } }"
_sdk = threading.Lock()  # its key and its address are global to the process


def billed(api: Api, pod_id: str, start: float, end: float, now: float) -> Decimal | None:
    """Return USD charged in the hours that [start, end) touches; None until all are settled."""
    first = start // HOUR_S * HOUR_S
    last = -(-end // HOUR_S) * HOUR_S
    if now < last + SETTLED_AFTER_S or last <= first:
        return None
    params = {
        "podId": pod_id,
        "startTime": _stamp(first),
        "endTime": _stamp(last),
        "bucketSize": "hour",
    }
    answer = api.read("billed", "/billing/pods", params)
    records = answer.get("records")
    if not isinstance(records, list):
        raise Unavailable(f"billed {pod_id}: the answer has no list of records")
    amounts = []
    for record in records:
        amount = money(record.get("totalAmount")) if isinstance(record, dict) else None
        if amount is None:
            raise Unavailable(f"billed {pod_id}: a record without its amount")
        if record.get("podId") in {None, pod_id}:
            amounts.append(amount)
    return sum(amounts, Decimal(0)) if amounts else None


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def balance(key: str, base_url: str) -> Decimal | None:
    """Return USD left on the account; None when it cannot be known, for whatever reason.

    By the vendor's SDK, whose GraphQL face is the only one that knows and is to be retired: it must
    never stand between a person and a job. An account that is not ours (`myself: null`) is None.
    """
    answer = graphql(BALANCE, key, base_url)
    me = (answer or {}).get("myself")
    left = me.get("clientBalance") if isinstance(me, dict) else None
    if isinstance(left, bool) or not isinstance(left, (int, float)):
        return None
    amount = Decimal(str(left))
    return amount if amount.is_finite() else None


def graphql(query: str, key: str, base_url: str) -> dict[str, Any] | None:
    """Return the `data` of a GraphQL answer; None for errors, silence, garbage and refusals.

    The SDK's errors are dropped on purpose: they carry the whole query, and its sort of error says
    nothing (a Cloudflare page is a ValueError). query: without any text of a user.
    """
    found = _within(SDK_S, lambda: _ask(query, key, base_url))
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict) or (isinstance(found, dict) and found.get("errors")):
        return None
    return data


def _ask(query: str, key: str, base_url: str) -> Any:
    with _sdk:
        try:
            with _no_cpuinfo():
                import runpod  # seconds, and it may fail: it reads a configuration of its own
                from runpod.api.graphql import run_graphql_query
        except Exception:  # noqa: BLE001 - a broken ~/.runpod/config.toml is a KeyError
            return None
        before, key_before = os.environ.get(BASE_VARIABLE), runpod.api_key
        if base_url != API_BASE_URL:
            os.environ[BASE_VARIABLE] = base_url  # read at each call
        runpod.api_key = key  # the environment's is not read
        try:
            return run_graphql_query(query)
        except Exception:  # noqa: BLE001
            return None
        finally:
            runpod.api_key = key_before
            if base_url != API_BASE_URL:
                if before is None:
                    os.environ.pop(BASE_VARIABLE, None)
                else:
                    os.environ[BASE_VARIABLE] = before


@contextmanager
def _no_cpuinfo() -> Iterator[None]:
    """Keep the SDK's import from starting a process, with all of our environment, for a CPU's name.

    Its serverless side asks py-cpuinfo, which asks a child of its own; nothing here needs either.
    """
    stand_in = ModuleType("cpuinfo")
    stand_in.get_cpu_info = lambda: {"brand_raw": "not asked"}  # type: ignore[attr-defined]
    kept = sys.modules.get("cpuinfo")
    sys.modules["cpuinfo"] = kept or stand_in
    try:
        yield
    finally:
        if kept is None:
            sys.modules.pop("cpuinfo", None)


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what `call` does within the time; None later. What hangs is left to its thread."""
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None
