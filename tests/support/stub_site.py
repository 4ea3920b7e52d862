"""A Site whose behaviour a test writes down: what each call answers, on whatever clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.site import AgentStatus, Collected, ExitReport, Kept, Rescued, SiteError
from orchestrator.site_order import SiteOrder
from orchestrator.states import Reason


class Stub:
    """The machine's side, shared by all sites made for it. Change the fields at any time."""

    def __init__(self, clock: Clock, *, work_s: float = 10.0, log: bytes = b"") -> None:
        self.clock = clock
        self.work_s = work_s
        self.log = log
        self.steps = ["folder", "agent", "order"]
        self.reason = Reason.SUCCEEDED
        self.files: tuple[tuple[str, int, str], ...] = (("adapter_model.safetensors", 3, "ab"),)
        self.error: Exception | None = None  # raised by every call
        self.errors: dict[str, Exception] = {}  # raised by one call
        self.block: threading.Event | None = None  # a blocked prepare step, until close
        self.started_at: float | None = None
        self.starts = 0
        self.stopped_at: float | None = None
        self.calls: list[str] = []
        self.orders: list[SiteOrder] = []
        self.alive = True
        self.on_call: Callable[[str], None] = lambda _: None

    def make(self, order: SiteOrder) -> StubSite:
        """The runner's factory."""
        self.orders.append(order)
        return StubSite(self, order)


class StubSite:
    """The Site protocol over a Stub."""

    def __init__(self, stub: Stub, order: SiteOrder) -> None:
        self._stub = stub
        self._order = order
        self._closed = threading.Event()

    def probe(self) -> None:
        self._meet("probe")

    def prepare_next(self) -> str | None:
        stub = self._stub
        self._meet("prepare")
        done = sum(1 for call in stub.calls if call == "step")
        if done >= len(stub.steps):
            return None
        if stub.block is not None:
            stub.block.set()
            if self._closed.wait(timeout=60.0):
                raise SiteError("closed while it waited")
        stub.calls.append("step")
        return stub.steps[done]

    def start_trainer(self) -> AgentStatus:
        self._meet("start")
        if self._stub.started_at is None:
            self._stub.starts += 1
            self._stub.started_at = self._stub.clock.now()
        return self._status()

    def status(self) -> AgentStatus:
        self._meet("status")
        return self._status()

    def pull(self, name: str, local: Path, offset: int) -> int:
        self._meet("pull")
        if name != "train.log":
            return offset
        local.parent.mkdir(parents=True, exist_ok=True)
        with local.open("r+b" if local.exists() else "w+b") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(self._stub.log[offset : offset + 1000])
        return min(len(self._stub.log), offset + 1000)

    def stop_trainer(self, *, now: bool) -> None:
        self._meet("stop")
        self._stub.stopped_at = self._stub.clock.now()

    def collect(self, folder: Path) -> Collected:
        self._meet("collect")
        return Collected(folder, self._stub.files)

    def keep_checkpoint(self, step: int, folder: Path) -> Kept | None:
        self._meet("checkpoint")
        return Kept(step, 1)

    def rescued(self, folder: Path) -> Rescued | None:
        return None

    def close(self) -> None:
        self._closed.set()

    def _meet(self, call: str) -> None:
        stub = self._stub
        stub.calls.append(call)
        stub.on_call(call)
        error = stub.errors.get(call) or stub.error
        if error is not None:
            raise error

    def _status(self) -> AgentStatus:
        stub = self._stub
        start, now = stub.started_at, stub.clock.now()
        if start is None:
            return AgentStatus("absent", False, None, 0, 0, None)
        size = len(stub.log)
        if stub.stopped_at is not None or now >= start + stub.work_s:
            reason = Reason.INTERRUPTED if stub.stopped_at is not None else stub.reason
            report = ExitReport(
                "failed", reason, "the last line", 0, None, start, now, 9, 9, stub.starts
            )
            return AgentStatus("done", False, 1.0, size, 0, report)
        return AgentStatus("training", stub.alive, 1.0, size, 0, None)
