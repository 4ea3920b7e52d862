"""The `fake` provider: an adapter over a cloud in memory, seen through lag and injected faults.

A full citizen: the contract suite, the simulation and rehearsals use it. Give many `FakeProvider`s
one `FakeCloud` to act as many processes with one account. Faults come from one hook, asked twice a
call:

    def faults(verb: Verb, phase: Phase) -> Fault | None: ...

`BEFORE`: nothing was done yet. `AFTER`: the call took effect, and the fault decides what the caller
sees of it; `Fault(error=Unavailable(...))` after a launch is the lost reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from providers.base import Instance, InstanceId, InstanceState, LaunchRequest, Offer, Traits
from providers.clock import Clock
from providers.errors import NotFound, ProviderError
from providers.fake_cloud import (
    DEFAULT_OFFERS,
    CloudEvent,
    EventKind,
    FakeCloud,
    FakeSettings,
    Machine,
    billed_seconds,
)

__all__ = [
    "DEFAULT_OFFERS",
    "CloudEvent",
    "EventKind",
    "FakeCloud",
    "FakeProvider",
    "FakeSettings",
    "Fault",
    "Faults",
    "Machine",
    "Phase",
    "Verb",
    "billed_seconds",
]


class Verb(StrEnum):
    """The five."""

    OFFERS = "offers"
    LAUNCH = "launch"
    DESCRIBE = "describe"
    FIND = "find"
    TERMINATE = "terminate"


class Phase(StrEnum):
    """Of a call: before or after its effect."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call.

    hang_s: the clock moves on by so much first; with `error`, a timeout; alone, a slow success.
    error: raised. Garbage and null answers are `Unavailable`, as a real adapter reports them.
    swallow: terminate only, BEFORE: answers success and does nothing.
    late_reads: terminate only, BEFORE: answers success, the machine ends after so many more reads.
    omit: find only, AFTER: one living machine is left out of a well-formed answer.
    """

    error: ProviderError | None = None
    hang_s: float = 0.0
    swallow: bool = False
    late_reads: int | None = None
    omit: bool = False


Faults = Callable[[Verb, Phase], Fault | None]
_NO_FAULT = Fault()


class FakeProvider:
    """The five verbs, Billing and Account over a `FakeCloud`; `faults` may be replaced any time."""

    def __init__(
        self, cloud: FakeCloud, *, name: str = "fake", faults: Faults | None = None
    ) -> None:
        self.name = name
        self.cloud = cloud
        self.faults = faults
        settings = cloud.settings
        self.traits = Traits(
            list_lag_s=settings.list_lag_s,
            boot_timeout_s=settings.boot_timeout_s,
            billing_step_s=settings.billing_step_s,
            proves_absence=settings.proves_absence,
            self_destruct=settings.self_destruct,
        )

    def offers(self) -> Sequence[Offer]:
        """Return the catalogue, sold-out offers among it, as real lists have them."""
        self._meet(Verb.OFFERS, Phase.BEFORE)
        with self.cloud.lock:
            answer = tuple(self.cloud.offers)
        self._meet(Verb.OFFERS, Phase.AFTER)
        return answer

    def launch(self, request: LaunchRequest) -> Instance:
        """Create a machine and return it, STARTING. Two launches of one label are two machines."""
        self._meet(Verb.LAUNCH, Phase.BEFORE)
        with self.cloud.lock:
            machine = self.cloud.create(request)
            answer = self.view(machine, machine.created_at)
        self._meet(Verb.LAUNCH, Phase.AFTER)
        return answer

    def describe(self, instance_id: InstanceId) -> Instance:
        """Return the machine as the cloud shows it after `describe_lag_s`; else NotFound."""
        self._meet(Verb.DESCRIBE, Phase.BEFORE)
        with self.cloud.lock:
            now = self.cloud.settle()
            machine = self.cloud.machines.get(instance_id)
            if machine is not None:
                self._count_read(machine)
            lag_s = self.cloud.settings.describe_lag_s
            if machine is None or not _shown(machine, now, lag_s):
                raise NotFound(f"describe {instance_id}: no such machine")
            answer = self.view(machine, now)
        self._meet(Verb.DESCRIBE, Phase.AFTER)
        return answer

    def find(self, label_prefix: str) -> Sequence[Instance]:
        """Return the machines of that label prefix as the list shows them after `list_lag_s`."""
        self._meet(Verb.FIND, Phase.BEFORE)
        with self.cloud.lock:
            now = self.cloud.settle()
            matching = [m for m in self.cloud.machines.values() if m.label.startswith(label_prefix)]
            for machine in matching:
                self._count_read(machine)
            lag_s = self.cloud.settings.list_lag_s
            shown = [m for m in matching if _shown(m, now, lag_s)]
        fault = self._meet(Verb.FIND, Phase.AFTER)
        with self.cloud.lock:
            living = [m for m in shown if m.deleted_at is None]
            if fault.omit and living:
                shown.remove(self.cloud.rng.choice(living))
            return tuple(self.view(m, now) for m in shown)

    def terminate(self, instance_id: InstanceId) -> None:
        """End the machine. Absent is success."""
        fault = self._meet(Verb.TERMINATE, Phase.BEFORE)
        with self.cloud.lock:
            self.cloud.settle()
            machine = self.cloud.machines.get(instance_id)
            if machine is not None:
                machine.terminate_calls += 1
                self.cloud.log.append(
                    CloudEvent(
                        self.cloud.clock.now(),
                        EventKind.TERMINATE_ASKED,
                        machine.id,
                        machine.label,
                        "swallowed" if fault.swallow else "",
                    )
                )
                if fault.late_reads is not None:
                    machine.ends_after_reads = fault.late_reads
                elif not fault.swallow:
                    self.cloud.end(instance_id, "terminate")
        self._meet(Verb.TERMINATE, Phase.AFTER)

    def billed(self, instance_id: InstanceId, start: float, end: float) -> Decimal | None:
        """Return USD charged in [start, end); None until the machine's end is settled."""
        with self.cloud.lock:
            now = self.cloud.settle()
            machine = self.cloud.machines.get(instance_id)
            if machine is None:
                raise NotFound(f"billed {instance_id}: no such machine")
            if (
                machine.deleted_at is None
                or now < machine.deleted_at + self.cloud.settings.settle_s
            ):
                return None
            return self.cloud.bill(instance_id, end) - self.cloud.bill(instance_id, start)

    def balance(self) -> Decimal | None:
        """Return the credit less all bills so far; None where the cloud has no credit limit."""
        with self.cloud.lock:
            credit = self.cloud.credit_usd
            return None if credit is None else credit - self.cloud.total_bill()

    # ---------------------------------------------------------------- helpers

    def _meet(self, verb: Verb, phase: Phase) -> Fault:
        """Ask the hook, outside the cloud's lock: a hanging call must not stop the others."""
        fault = (self.faults and self.faults(verb, phase)) or _NO_FAULT
        if fault.hang_s > 0:
            self.cloud.clock.sleep(fault.hang_s)
        if fault.error is not None:
            raise fault.error
        return fault

    def _count_read(self, machine: Machine) -> None:
        if machine.ends_after_reads is None or machine.deleted_at is not None:
            return
        if machine.ends_after_reads <= 0:
            self.cloud.end(machine.id, "terminate")
        else:
            machine.ends_after_reads -= 1

    def view(self, machine: Machine, now: float) -> Instance:
        """Return the machine as a read at `now` shows it, without lag or fault."""
        booted = now >= machine.created_at + self.cloud.settings.boot_delay_s
        if machine.stopped_at is not None:
            state = InstanceState.STOPPED
        else:
            state = InstanceState.READY if booted else InstanceState.STARTING
        return Instance(
            id=machine.id,
            label=machine.label,
            state=state,
            host=machine.host if booted else None,
            port=machine.port if booted else None,
            user="root" if booted else None,
            host_key=machine.host_key,
            owner=machine.owner,
            price_usd_per_hour=machine.price_usd_per_hour,
            disk_gib=machine.request.disk_gib if machine.request is not None else 0,
            storage_usd_per_gib_hour=machine.offer.storage_usd_per_gib_hour,
            created_at=machine.created_at,
            deadline_at=machine.deadline_at,
            workdir="/workspace",
            detail=str(state),
        )


def _shown(machine: Machine, now: float, lag_s: float) -> bool:
    """Return whether a read that lags by `lag_s` shows the machine: it tells of the state then."""
    appeared = now >= machine.created_at + lag_s
    vanished = machine.deleted_at is not None and now >= machine.deleted_at + lag_s
    return appeared and not vanished


def rehearsal(clock: Clock, seed: int = 0) -> FakeProvider:
    """Return a `fake` of its own cloud with default offers, for rehearsals and demonstrations."""
    return FakeProvider(FakeCloud(clock, random.Random(seed)))  # noqa: S311 - chance, not secrecy
