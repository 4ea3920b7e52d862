"""What RunPod charged and what is left: closed hours only, and nothing by GraphQL is ever fatal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from providers import runpod_money
from providers.base import InstanceId
from providers.errors import Unavailable
from providers.runpod import RunPodProvider
from tests.support.clocks import VirtualClock
from tests.support.tiny_http import Answer, TinyServer, tiny_server

ID = InstanceId("7h9k2m4n6p3q1")


def bill(*amounts: float) -> Answer:
    return Answer(200, {"records": [{"podId": ID, "totalAmount": amount} for amount in amounts]})


def test_a_bill_is_of_closed_hours() -> None:
    with tiny_server(lambda _: bill(0.1, 0.25)) as server:
        _closed_hours(server)


def _closed_hours(server: TinyServer) -> None:
    clock = VirtualClock()
    runpod = RunPodProvider("rpa_key", server.url, clock)
    begin = (clock.now() // 3600 + 1) * 3600
    clock.sleep(begin + 7200 - clock.now())
    assert runpod.billed(ID, begin + 10, begin + 3700) is None  # its last hour is not settled
    assert server.asked == []
    clock.sleep(900.0)
    assert runpod.billed(ID, begin + 10, begin + 3700) == Decimal("0.35")
    query = server.asked[-1].query
    assert (query["podId"], query["bucketSize"]) == (ID, "hour")
    assert query["startTime"].endswith(":00:00Z")
    assert query["endTime"].endswith(":00:00Z")
    server.answer = lambda _: bill()
    assert runpod.billed(ID, begin, begin + 3700) is None  # not told yet is not "nothing"
    server.answer = lambda _: Answer(200, {"records": [{}]})
    with pytest.raises(Unavailable):
        runpod.billed(ID, begin, begin + 3700)


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """Put a module in the place of the vendor's, whose import takes seconds."""

    def install(run: Callable[[str], Any]) -> SimpleNamespace:
        seen = SimpleNamespace(queries=[], keys=[], bases=[])
        names = ("runpod", "runpod.api", "runpod.api.graphql")
        top, _, graphql = modules = [ModuleType(name) for name in names]
        vars(top)["api_key"] = None

        def run_graphql_query(query: str) -> Any:
            import os

            seen.queries.append(query)
            seen.keys.append(vars(top)["api_key"])
            seen.bases.append(os.environ.get("RUNPOD_API_BASE_URL"))
            return run(query)

        vars(graphql)["run_graphql_query"] = run_graphql_query
        for module in modules:
            monkeypatch.setitem(sys.modules, module.__name__, module)
        seen.module = top
        return seen

    return install


def test_the_balance_comes_by_the_sdk_with_our_key_and_address(sdk: Any) -> None:
    import os

    seen = sdk(lambda _: {"data": {"myself": {"clientBalance": 12.34}}})
    assert runpod_money.balance("rpa_k", "http://127.0.0.1:9") == Decimal("12.34")
    assert (seen.keys, seen.bases) == (["rpa_k"], ["http://127.0.0.1:9"])
    assert seen.module.api_key is None
    assert "RUNPOD_API_BASE_URL" not in os.environ


@pytest.mark.parametrize(
    "answer",
    [
        {"data": {"myself": None}},
        {"data": None},
        {"data": {"myself": {"clientBalance": None}}},
        {"data": {"myself": {"clientBalance": float("nan")}}},
        {"data": {"myself": {"clientBalance": 5.0}}, "errors": [{"message": "x"}]},
        {},
        None,
        [],
    ],
)
def test_a_balance_that_is_not_told_is_unknown(sdk: Any, answer: object) -> None:
    sdk(lambda _: answer)
    assert runpod_money.balance("k", "http://127.0.0.1:9") is None


@pytest.mark.parametrize("error", [KeyError("data"), TypeError("x"), ValueError("1010"), OSError()])
def test_whatever_the_sdk_raises_the_balance_is_unknown(sdk: Any, error: Exception) -> None:
    def fail(_: str) -> Any:
        raise error

    sdk(fail)
    assert runpod_money.balance("k", "http://127.0.0.1:9") is None


def test_a_hanging_sdk_is_left_behind(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    stuck = threading.Event()
    sdk(lambda _: stuck.wait(5))
    monkeypatch.setattr(runpod_money, "SDK_S", 0.1)
    assert runpod_money.balance("k", "http://127.0.0.1:9") is None
    stuck.set()


def test_the_sdk_starts_no_process_that_would_inherit_our_environment() -> None:
    program = (
        "import subprocess, sys\n"
        "started = []\n"
        "subprocess.Popen.__init__ = lambda *words, **named: started.append(words[1:])\n"
        "from providers import runpod_money\n"
        "runpod_money.graphql('query { a }', 'k', 'http://127.0.0.1:9')\n"
        "print(started, 'runpod' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[] True\n", done.stderr
