"""The instances' own truth: what a trainer really did on each machine, whoever looked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.site import (
    AgentStatus,
    Collected,
    ExitReport,
    Kept,
    Rescued,
    SiteError,
    SiteRefused,
)
from orchestrator.site_order import SiteOrder
from orchestrator.states import Reason
from providers.base import InstanceId

if TYPE_CHECKING:
    from tests.sim.world import World

STEPS = ("folder", "agent", "data", "order")
LOG_BYTES_PER_S = 100


@dataclass(slots=True)
class Box:
    """One machine from the inside. `faults`: those drawn for it when it was created."""

    machine_id: InstanceId
    label: str
    faults: frozenset[str]
    work_s: float
    done: int = 0  # steps of STEPS
    claim: str | None = None
    trainer_started_at: float | None = None
    trainer_starts: int = 0
    dies_at: float | None = None
    killed_at: float | None = None
    collected: bool = False

    def exit_at(self) -> float | None:
        """Return when the trainer ends by itself."""
        if self.trainer_started_at is None or "trainer_hangs" in self.faults:
            return None
        return self.trainer_started_at + self.work_s

    def agent_dead(self, now: float) -> bool:
        """Return whether the agent died in mid-training, leaving no verdict."""
        start = self.trainer_started_at
        return "agent_dies" in self.faults and start is not None and now >= start + self.work_s / 2

    def succeeded(self, now: float) -> bool:
        """Return whether the training is really complete."""
        end = self.exit_at()
        return (
            end is not None
            and now >= end
            and "trainer_fails" not in self.faults
            and not (self.agent_dead(now))
            and (self.killed_at is None or self.killed_at >= end)
        )


class SimSite:
    """The Site protocol over a Box; unreachable exactly when the world says so."""

    def __init__(self, world: World, order: SiteOrder) -> None:
        self._world = world
        self._order = order

    def probe(self) -> None:
        self._reach()

    def prepare_next(self) -> str | None:
        box = self._reach()
        if self._world.swarm.hits("prepare_refused"):
            raise SiteRefused(Reason.PREPARE_FAILED, "no python3")
        if "prepare_hangs" in box.faults and box.done == 2:
            raise SiteError("the upload does not move")
        if box.done == len(STEPS):
            return None
        number = box.done  # another process may do the same step meanwhile
        self._world.clock.sleep(self._world.rng.uniform(0.5, 8.0))
        box.done = max(box.done, number + 1)
        return STEPS[number]

    def start_trainer(self) -> AgentStatus:
        box = self._reach()
        if box.claim not in {None, self._order.claim_token}:
            raise SiteRefused(Reason.PREPARE_FAILED, "claimed by another")
        if box.claim is None or self._world.agent_has_no_claim:
            box.claim = self._order.claim_token
            box.trainer_starts += 1
            box.trainer_started_at = self._world.clock.now()
        return self._status(box)

    def status(self) -> AgentStatus:
        return self._status(self._reach())

    def pull(self, name: str, local: Path, offset: int) -> int:
        box = self._reach()
        return max(offset, self._log_bytes(box) if name == "train.log" else 0)

    def stop_trainer(self, *, now: bool) -> None:
        box = self._reach()
        if box.killed_at is None:
            box.killed_at = self._world.clock.now()

    def collect(self, folder: Path) -> Collected:
        box = self._reach()
        if "collect_never" in box.faults or self._world.swarm.hits("collect_error"):
            raise SiteError("the transfer broke")
        if self._world.swarm.hits("collect_refused"):
            raise SiteRefused(Reason.ARTIFACTS_REFUSED, "a pickle")
        self._world.clock.sleep(self._world.rng.uniform(0.5, 20.0))
        box = self._reach()
        if not box.succeeded(self._world.clock.now()) and not self._world.collect_is_blind:
            raise SiteRefused(Reason.ARTIFACTS_REFUSED, "no adapter")
        box.collected = True
        return Collected(folder, (("adapter_model.safetensors", 1, "00"),))

    def keep_checkpoint(self, step: int, folder: Path) -> Kept | None:
        self._reach()
        return Kept(step, 1)

    def rescued(self, folder: Path) -> Rescued | None:
        return None

    def close(self) -> None:
        return

    def _reach(self) -> Box:
        world = self._world
        if world.swarm.hits("ssh_hang"):
            world.clock.sleep(20.0)
            raise SiteError("no answer within 20 s")
        if world.swarm.hits("ssh_error") or world.in_window("ssh_window"):
            raise SiteError("connection reset")
        box = world.box_at(self._order.host)
        if box is None or "ssh_never" in box.faults or not world.cloud.reachable(box.machine_id):
            raise SiteError("connection refused")
        return box

    def _log_bytes(self, box: Box) -> int:
        start = box.trainer_started_at
        if start is None:
            return 0
        now = self._world.clock.now()
        ends = [at for at in (box.exit_at(), box.killed_at, now) if at is not None]
        return int((min(ends) - start) * LOG_BYTES_PER_S)

    def _status(self, box: Box) -> AgentStatus:
        now = self._world.clock.now()
        start, end = box.trainer_started_at, box.exit_at()
        if start is None:
            return AgentStatus("absent", False, None, 0, 0, None)
        size = self._log_bytes(box)
        if box.agent_dead(now):
            return AgentStatus("training", False, 99.0, size, 0, None)
        if box.killed_at is not None:
            return AgentStatus("done", False, 1.0, size, 0, _report(box, Reason.INTERRUPTED, now))
        if end is None or now < end:
            return AgentStatus("training", True, 1.0, size, 0, None)
        failed = "trainer_fails" in box.faults
        reason = Reason.OUT_OF_MEMORY if failed else Reason.SUCCEEDED
        return AgentStatus("done", False, 1.0, size, 0, _report(box, reason, end))


def _report(box: Box, reason: Reason, ended: float) -> ExitReport:
    verdict = "succeeded" if reason is Reason.SUCCEEDED else "failed"
    return ExitReport(
        verdict, reason, "", 0, None, box.trainer_started_at or 0.0, ended, 1, 1,
        box.trainer_starts,
    )  # fmt: skip


MakeSite = Callable[[SiteOrder], SimSite]
