"""Checkpoints on their way to a store: granted, sent, looked at, published; and what goes wrong."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

import pytest

from orchestrator.artifacts.push import PushFault
from orchestrator.remote import Completed, Shell
from orchestrator.shipping import ROUNDS, Fetching, Shipping
from orchestrator.site import Kept, SiteError, SiteRefused
from orchestrator.states import Reason
from tests.support.clocks import VirtualClock

NAMES = ("adapter_config.json", "adapter_model.safetensors", "trainer_state.json")
DOCUMENT = {
    "files": [
        {"path": name, "bytes": 9, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name in NAMES
    ]
}


class Host:
    """An instance whose carrier sends at once what is granted, but for the names in `lost`."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.there: set[str] = set()
        self.lost: set[str] = set()
        self.grants: list[dict[str, Any]] = []
        self.argvs: list[list[str]] = []

    def call(self, script: str, argv: list[str]) -> dict[str, Any]:
        assert (script, argv) == ("agent.py", ["carried", "/w"])
        return dict(self.state)

    def python(self, _: str, argv: list[str], *, timeout_s: float, stdin: bytes) -> Completed:
        assert timeout_s
        grants = json.loads(stdin)
        self.argvs.append(argv)
        self.grants.append(grants)
        for item in grants["items"]:
            name = item["path"].rpartition("/")[2]
            if name not in self.lost:
                self.there.add(name)
        self.state = {"id": grants["id"], "over": True, "code": "", "said": ""}
        return Completed(0, b"{}", b"")

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        missing = [f["path"] for f in more["files"] if f["path"] not in self.there]
        if do == "grant":
            assert more["url_s"] == 500
            items = [{"path": name, "bytes": 9, "url": "https://x"} for name in missing]
            return {"whole": False, "items": items}
        return {"whole": not missing, "missing": missing}


def shipping(host: Host, **changes: Any) -> Shipping:
    clock = VirtualClock()
    plain: dict[str, Any] = {
        "ask": host.ask, "clock": clock, "adapter": True, "keep_newest": 2,
        "deadline_at": clock.now() + 500, "bytes_per_s": 5e6,
    }  # fmt: skip
    return Shipping(**{**plain, **changes})


def keep(ship: Shipping, host: Host, document: Any = DOCUMENT) -> Kept | None:
    return ship.keep(cast("Shell", host), "agent.py", "/w", 10, lambda: document)


def test_granted_sent_and_published() -> None:
    host = Host()
    ship = shipping(host)
    assert keep(ship, host) is None
    assert keep(ship, host) == Kept(10, 27)
    assert host.argvs == [["carry", "/w"]], "no URL in an argument"
    assert host.grants[0]["bytes_per_s"] == 5e6
    assert {item["path"] for item in host.grants[0]["items"]} == {
        f"out/checkpoint-10/{name}" for name in NAMES
    }


def test_while_it_is_sent_nobody_is_asked() -> None:
    host = Host()
    host.state = {"id": "checkpoint-5", "over": False, "alive": True}
    ship = shipping(host, ask=lambda *_, **__: pytest.fail("asked"))
    assert keep(ship, host) is None


def test_only_what_is_missing_is_granted_again_and_not_for_ever() -> None:
    host = Host()
    host.lost = {"trainer_state.json"}
    ship = shipping(host)
    for _ in range(ROUNDS):
        assert keep(ship, host) is None
    with pytest.raises(SiteRefused, match="does not become whole"):
        keep(ship, host)
    assert [len(grants["items"]) for grants in host.grants] == [3] + [1] * (ROUNDS - 1)


def test_one_that_was_pruned_meanwhile_is_let_go() -> None:
    host = Host()
    assert keep(shipping(host), host, {"files": []}) == Kept(10, 0)
    ship = shipping(host)
    host.lost = {"trainer_state.json"}
    keep(ship, host)
    host.state["code"] = "absent"
    assert keep(ship, host) == Kept(10, 0)


@pytest.mark.parametrize("retry", [True, False])
def test_a_store_that_is_away_passes_and_a_refusal_does_not(retry: bool) -> None:
    def ask(_: str, **__: Any) -> dict[str, Any]:
        raise PushFault("the store says no", retry=retry)

    host = Host()
    with pytest.raises(SiteError if retry else SiteRefused, match="says no"):
        keep(shipping(host, ask=ask), host)


def test_hashes_of_parts_that_are_none_are_refused() -> None:
    bad = {"files": [{**file, "parts": ["x"]} for file in DOCUMENT["files"]]}
    host = Host()
    with pytest.raises(SiteRefused, match="hashes of its parts") as caught:
        keep(shipping(host), host, bad)
    assert caught.value.reason is Reason.ARTIFACTS_REFUSED


def test_a_fetch_that_fails_costs_the_checkpoint_not_the_attempt() -> None:
    class Process:
        answers: list[Any] = [None, {"step": 10, "passed_over": ["checkpoint 20: broken"]}]  # noqa: RUF012

        def poll(self) -> Any:
            return self.answers.pop(0)

    said: list[str] = []
    fetching = Fetching(Process, said.append)
    assert [fetching.done(), fetching.done()] == [False, True]
    assert said == ["passed over: checkpoint 20: broken"]

    def refused() -> Any:
        raise PushFault("no key")

    assert Fetching(refused, said.append).done()
    assert "no key" in said[-1]
