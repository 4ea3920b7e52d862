"""Every fault that the simulator can commit, by name, and which of them are armed.

`<call>_<mode>` spoils the answer of a call; with `_done` the call is first carried out, without it
nothing happens. Calls: create list get delete stop catalog logs billing graphql any. Modes: a
status (400 401 402 403 404 409 422 429 500 502 503), `null` (HTTP 500, data null), `quiet` (500,
its JSON without `errors`), `html` (Cloudflare's 403 page), `malformed`, `hang`, `drip`, `reset`.
The others stand in SPECIAL with what they do. Arming takes `times` (default 1, 0 for ever), `skip`
(let the first ones pass) and what the fault itself knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CALLS = ("create", "list", "get", "delete", "stop", "catalog", "logs", "billing", "graphql", "any")
STATUSES = ("400", "401", "402", "403", "404", "409", "422", "429", "500", "502", "503")
MODES = (*STATUSES, "null", "quiet", "html", "malformed", "hang", "drip", "reset")

SPECIAL = {
    "create_no_capacity": "400 with RunPod's words for no capacity; nothing is made",
    "create_no_disk": "400: no machine with enough disk space",
    "create_dear": "the pod costs `factor` (2) times the catalogue's price",
    "create_twice": "two pods of the same name come of one call",
    "create_late": "500, and the pod appears `seconds` (300) later",
    "boot_stuck": "PROVISIONING for ever",
    "boot_no_runtime": "STARTING for ever: runtime null",
    "boot_uptime_zero": "RUNNING with uptime 0, no container, and billing",
    "boot_no_direct": "RUNNING without ssh.direct",
    "boot_ssh_refused": "nothing answers on the public port for `seconds` (90)",
    "boot_ssh_denied": "the container does not get PUBLIC_KEY",
    "boot_zero_gpus": "nvidia-smi finds no devices",
    "boot_other_gpu": "nvidia-smi shows a smaller GPU",
    "boot_old_driver": "nvidia-smi shows a driver for CUDA 12.4",
    "boot_error": "status ERROR before the container starts",
    "boot_pull_error": "the image cannot be pulled: system log, then STARTING for ever",
    "boot_slow": "STARTING lasts `seconds` (30) more",
    "boot_small_disk": "the container disk holds `mb` (64) only",
    "run_spot_kill": "TERM to PID 1, KILL `notice_s` (5) later, then EXITED",
    "run_vanish": "the pod is gone from every answer, and so is its bill",
    "run_exited": "the host stops the pod: EXITED",
    "run_port_change": "the host restarts the pod: new port, new container disk",
    "run_container_restart": "the container's first process is killed; the host restarts it",
    "run_ssh_drop": "every SSH connection is cut",
    "run_ssh_gone": "the public port goes dead for `seconds` (0: for ever)",
    "run_ssh_freeze": "SSH connections stay open and carry nothing for `seconds` (0: for ever)",
    "run_disk_full": "no byte more fits on the container disk",
    "run_gpu_lost": "nvidia-smi fails: GPU has fallen off the bus",
    "run_no_api": "the pod cannot reach the API for `seconds` (0: for ever)",
    "run_broke": "the balance falls to 0",
    "api_down": "502 to every call for `seconds` (10)",
    "list_omits": "the list leaves out one living pod",
    "list_empty": "the list is empty",
    "list_pages": "the list comes in pages of `size` (1)",
    "delete_lie": "204, and nothing is done",
}
ON_RUNNING = tuple(name for name in SPECIAL if name.startswith("run_"))


class UnknownFault(ValueError):  # noqa: N818 - an answer to the user
    """The name is in no table."""


@dataclass(slots=True)
class Armed:
    name: str
    times: int = 1
    skip: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    fired: int = 0

    def number(self, option: str, default: float) -> float:
        return float(self.options.get(option, default))


def spoiled(name: str) -> tuple[str, str, bool] | None:
    """Return call, mode and whether it is carried out, of a `<call>_<mode>[_done]`."""
    done = name.endswith("_done")
    call, _, mode = name.removesuffix("_done").partition("_")
    return (call, mode, done) if call in CALLS and mode in MODES else None


def from_text(text: str) -> Armed:
    """Return what `--fault name,key=value,...` arms; raises UnknownFault."""
    name, *pairs = text.split(",")
    return from_dict({"name": name} | dict(pair.split("=", 1) for pair in pairs))


def from_dict(given: dict[str, Any]) -> Armed:
    name = str(given.get("name"))
    if name not in SPECIAL and spoiled(name) is None:
        raise UnknownFault(f"no fault is called {name!r}")
    options = {k: v for k, v in given.items() if k not in ("name", "times", "skip")}
    return Armed(name, int(given.get("times", 1)), int(given.get("skip", 0)), options)


class Switches:
    """The armed faults. `tell` is called with each one that fires."""

    def __init__(self, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self._armed: list[Armed] = []
        self._lock = threading.Lock()
        self._tell = tell

    def arm(self, fault: Armed) -> None:
        with self._lock:
            self._armed.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()

    def names(self) -> list[str]:
        with self._lock:
            return [fault.name for fault in self._armed]

    def take(self, *names: str) -> Armed | None:
        """Return the first armed fault of one of these names that is due now, counted as fired."""
        return self._take(lambda fault: fault.name in names)

    def take_spoiled(self, call: str) -> tuple[Armed, str, bool] | None:
        """Return what spoils this call's answer: fault, mode, whether to carry the call out."""

        def meant(fault: Armed) -> bool:
            found = spoiled(fault.name)
            return found is not None and found[0] in (call, "any")

        fault = self._take(meant)
        if fault is None:
            return None
        found = spoiled(fault.name)
        assert found is not None
        return fault, found[1], found[2]

    def _take(self, meant: Callable[[Armed], bool]) -> Armed | None:
        with self._lock:
            for fault in self._armed:
                if not meant(fault):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.fired += 1
                if fault.times and fault.fired >= fault.times:
                    self._armed.remove(fault)
                break
            else:
                return None
        self._tell(fault.name, fault.options)
        return fault
