"""The provider that a simulated process sees: the fake cloud through the seed's faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.attempt import parse_label
from providers.base import Instance, InstanceId, InstanceState, LaunchRequest, Offer
from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.fake import FakeProvider, Fault, Phase, Verb

if TYPE_CHECKING:
    from tests.sim.world import World

LATE_S = (5.0, 1200.0)  # a machine that appears only then, after a create that seemed to fail


class SimProvider:
    """The Provider protocol; one per simulated process, all over one cloud."""

    def __init__(self, world: World, holder: str) -> None:
        self._world = world
        self._holder = holder
        self._inner = FakeProvider(world.cloud, faults=self._fault)
        self.name = self._inner.name
        self.traits = self._inner.traits

    def offers(self) -> Sequence[Offer]:
        return self._inner.offers()

    def launch(self, request: LaunchRequest) -> Instance:
        world = self._world
        self._note_fence("launch", request.label)
        world.check_window()
        if world.swarm.hits("launch_late"):
            delay_s = world.rng.uniform(*LATE_S)
            world.after(delay_s, lambda: world.create_late(request))
            raise Unavailable("launch: 502")
        try:
            with world.maybe_dearer():
                instance = self._inner.launch(request)
                if world.swarm.hits("launch_twice"):
                    self._inner.cloud.create(request)
        finally:
            world.note_machines()
        return self._mask(instance)

    def describe(self, instance_id: InstanceId) -> Instance:
        self._world.check_window()
        if self._world.swarm.hits("describe_404"):
            raise NotFound(f"describe {instance_id}: 404")
        return self._mask(self._inner.describe(instance_id))

    def find(self, label_prefix: str) -> Sequence[Instance]:
        self._world.check_window()
        return [self._mask(found) for found in self._inner.find(label_prefix)]

    def terminate(self, instance_id: InstanceId) -> None:
        self._note_fence("terminate", self._world.cloud.machines[instance_id].label)
        self._world.check_window()
        if self._world.in_window("terminate_window"):
            raise Unavailable("terminate: 500")
        self._inner.terminate(instance_id)

    def seen(self, instance_id: InstanceId) -> Instance:
        """Return the machine as its own host sees it: no fault, no lag."""
        cloud = self._world.cloud
        return self._mask(self._inner.view(cloud.machines[instance_id], cloud.clock.now()))

    def _note_fence(self, verb: str, label: str) -> None:
        """Note an effect asked by a process while another holds the job's lease."""
        parsed = parse_label(label)
        if parsed is None or self._world.asleep_after_check:
            return
        for job in self._world.store.journal.active():
            if job.id == parsed[1] and job.holder not in {None, self._holder}:
                self._world.unfenced.append(f"{verb} of {label} by {self._holder}")

    def _mask(self, instance: Instance) -> Instance:
        """Return the machine as the vendor shows it: one that never boots has no address."""
        box = self._world.boxes.get(instance.id)
        if box is None or "boot_never" not in box.faults:
            return instance
        state = instance.state
        if state is InstanceState.READY:
            state = InstanceState.STARTING
        return replace(instance, state=state, host=None, port=None, user=None)

    def _fault(self, verb: Verb, phase: Phase) -> Fault | None:
        name = self._world.swarm.first(*_BY_CALL.get((verb, phase), ()))
        return None if name is None else _FAULTS[name]


_RATE_LIMITED = Fault(error=RateLimited("429", retry_after_s=20.0))

_FAULTS: dict[str, Fault] = {
    "launch_no_capacity": Fault(error=NoCapacity("sold out")),
    "launch_quota": Fault(error=QuotaExceeded("limit")),
    "launch_auth": Fault(error=AuthFailed("401")),
    "launch_invalid": Fault(error=InvalidRequest("422")),
    "launch_rate_limited": _RATE_LIMITED,
    "launch_5xx": Fault(error=Unavailable("launch: 503")),
    "launch_lost_reply": Fault(error=Unavailable("launch: 500")),
    "launch_timeout": Fault(hang_s=30.0, error=Unavailable("launch: timeout")),
    "describe_5xx": Fault(error=Unavailable("describe: 500")),
    "describe_hang": Fault(hang_s=30.0, error=Unavailable("describe: timeout")),
    "describe_rate_limited": _RATE_LIMITED,
    "find_5xx": Fault(error=Unavailable("find: 500")),
    "find_hang": Fault(hang_s=30.0, error=Unavailable("find: timeout")),
    "find_omit": Fault(omit=True),
    "find_rate_limited": _RATE_LIMITED,
    "terminate_5xx": Fault(error=Unavailable("terminate: 500")),
    "terminate_lost_reply": Fault(error=Unavailable("terminate: reset")),
    "terminate_swallowed": Fault(swallow=True),
    "terminate_late": Fault(late_reads=3),
    "terminate_rate_limited": _RATE_LIMITED,
    "terminate_forbidden": Fault(error=AuthFailed("403")),
}

_BEFORE, _AFTER = Phase.BEFORE, Phase.AFTER
_BY_CALL: dict[tuple[Verb, Phase], tuple[str, ...]] = {
    (Verb.LAUNCH, _BEFORE): (
        "launch_no_capacity",
        "launch_quota",
        "launch_auth",
        "launch_invalid",
        "launch_rate_limited",
        "launch_5xx",
    ),
    (Verb.LAUNCH, _AFTER): ("launch_lost_reply", "launch_timeout"),
    (Verb.DESCRIBE, _BEFORE): ("describe_5xx", "describe_hang", "describe_rate_limited"),
    (Verb.FIND, _BEFORE): ("find_5xx", "find_hang", "find_rate_limited"),
    (Verb.FIND, _AFTER): ("find_omit",),
    (Verb.TERMINATE, _BEFORE): (
        "terminate_5xx",
        "terminate_swallowed",
        "terminate_late",
        "terminate_rate_limited",
        "terminate_forbidden",
    ),
    (Verb.TERMINATE, _AFTER): ("terminate_lost_reply",),
}
