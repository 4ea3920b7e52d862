"""The bootstrap's decisions, without a machine."""

from dataclasses import replace
from typing import Any, cast

import pytest

from orchestrator.axolotl_env import EnvBuilding, EnvReady
from orchestrator.bootstrap import BUILD_STEP_S, Bootstrap, Composed, Payload
from orchestrator.remote import Shell, Survey
from orchestrator.site import SiteRefused
from orchestrator.states import Reason
from tests.support.clocks import VirtualClock

READY = EnvReady("/envs/a/bin/axolotl", "/envs/a/bin/python", "built", {"axolotl": "0.21.0"})
SURVEY = Survey("/w/label", made=False, python=(3, 8), executable="/usr/bin/python3",
                free_bytes=1 << 40, gpus=0, hashes={}, shown={})  # fmt: skip


class Environment:
    """Builds for so many looks."""

    def __init__(self, looks: int) -> None:
        self.shell = cast("Shell", None)
        self.looks = looks

    def ensure(self) -> EnvReady | EnvBuilding:
        self.looks -= 1
        return READY if self.looks < 0 else EnvBuilding("torch", 12 - self.looks, 96, 1000, 5.0)


class Host:
    """Answers a survey, and keeps what is written."""

    def __init__(self, survey: Survey) -> None:
        self.answer = survey
        self.written: list[Any] = []

    def survey(self, *_: object, **__: object) -> Survey:
        return self.answer

    def write(self, _: str, parcels: tuple[Any, ...]) -> None:
        self.written.append([parcel.path for parcel in parcels])


def bootstrap(looks: int = 0, clock: VirtualClock | None = None) -> Bootstrap:
    clock = clock or VirtualClock()
    composed = Composed(b"config", ("axolotl",), {})
    load = Payload("job", 1, "label", "token", clock.now() + 100, lambda _: composed)
    environment = Environment(looks)
    return Bootstrap(load, "w/label", lambda *_: environment, clock)


def host(**changes: Any) -> tuple[Host, Shell]:
    it = Host(replace(SURVEY, **changes))
    return it, cast("Shell", it)


def test_a_build_is_told_now_and_then_and_waited_for() -> None:
    clock = VirtualClock()
    boot, (_, shell) = bootstrap(looks=14, clock=clock), host()
    said = []
    while (step := boot.next(shell)) is not None:
        said.append(step)
    assert said == [
        "environment (torch, 4 of 96)",
        "environment (torch, 10 of 96)",
        "environment",
        "order",
    ]
    assert 2 * BUILD_STEP_S <= clock.monotonic() < 3 * BUILD_STEP_S
    assert boot.machine is not None
    assert boot.machine.axolotl == READY


def test_what_is_ready_is_no_step() -> None:
    boot, (it, shell) = bootstrap(), host(made=True)
    assert boot.next(shell) == "folder"
    assert boot.next(shell) == "order"
    assert boot.next(shell) is None
    assert it.written == [["gpujob_agent.py", "gpujob_plugin.py", "config.yml", "order.json"]]


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"python": (3, 7)}, Reason.PREPARE_FAILED, "3.7"),
        ({"python": (2, 7)}, Reason.PREPARE_FAILED, "2.7"),
        ({"free_bytes": 1 << 30}, Reason.DISK_FULL, "1.1 GB free"),
        ({"shown": {"claim": '{"token": "other"}'}}, Reason.INTERNAL, "another attempt"),
        ({"shown": {"claim": "torn"}}, Reason.INTERNAL, "another attempt"),
    ],
)
def test_a_machine_that_cannot_is_refused(
    changes: dict[str, Any], reason: Reason, words: str
) -> None:
    boot, (_, shell) = bootstrap(), host(**changes)
    with pytest.raises(SiteRefused, match=words) as caught:
        boot.next(shell)
    assert caught.value.reason is reason


def test_our_own_claim_means_that_all_was_done() -> None:
    boot, (it, shell) = bootstrap(), host(shown={"claim": '{"token": "token"}'})
    assert boot.next(shell) is None
    assert it.written == []
