"""The fake cloud's truth: which machines exist, since when, and what each costs.

`providers/fake.py` is the adapter that sees this cloud through lag and faults; tests and the
simulation read the truth here. Everything happens on the clock that is passed in, all chance comes
from the `random.Random` that is passed in, and one lock makes it safe for many threads.
"""

from __future__ import annotations

import base64
import math
import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum

from providers.base import HostKey, InstanceId, LaunchRequest, Offer, OfferKey
from providers.clock import Clock
from providers.errors import InvalidRequest, NoCapacity, ProviderError, QuotaExceeded

HOUR_S = Decimal(3600)


class EventKind(StrEnum):
    """What the cloud itself recorded."""

    CREATED = "created"
    REFUSED = "refused"
    TERMINATE_ASKED = "terminate_asked"
    STOPPED = "stopped"
    DELETED = "deleted"
    BILLED = "billed"


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One line of the truth log. `usd` is set on BILLED only: the machine's final bill."""

    at: float
    kind: EventKind
    id: InstanceId | None
    label: str
    detail: str = ""
    usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class FakeSettings:
    """How this cloud behaves. All delays in seconds.

    list_lag_s, describe_lag_s: how long the read shows the state before a creation or a deletion.
    boot_delay_s: creation to READY with host and port; ssh_delay_s: from there to the first SSH.
    price_factor: what is billed, as a multiple of the catalogue's price ("dearer than quoted").
    enforces_deadline: whether the machine ends itself at the request's `deadline_at`.
    unique_labels: refuse a second machine of a living label; real clouds do not.
    settle_s: how long after a machine's end its bill stays unsettled (None from `billed`).
    """

    list_lag_s: float = 0.0
    describe_lag_s: float = 0.0
    boot_delay_s: float = 0.0
    ssh_delay_s: float = 0.0
    boot_timeout_s: float = 600.0
    billing_step_s: float = 1.0
    price_factor: Decimal = Decimal(1)
    enforces_deadline: bool = True
    proves_absence: bool = True
    unique_labels: bool = False
    settle_s: float = 0.0
    self_destruct: str | None = "true"


@dataclass(slots=True)
class Machine:
    """One machine's truth. `deleted_at` None: it exists and is billed."""

    id: InstanceId
    label: str
    owner: str | None
    offer: Offer
    price_usd_per_hour: Decimal
    storage_usd_per_hour: Decimal
    created_at: float
    deadline_at: float | None
    host: str
    port: int
    host_key: HostKey
    request: LaunchRequest | None  # None: a foreign machine
    stopped_at: float | None = None
    deleted_at: float | None = None
    ended_by: str = ""  # terminate | deadline | self | preempted | ...
    terminate_calls: int = 0
    ends_after_reads: int | None = None  # a terminate that takes effect only after so many reads

    @property
    def foreign(self) -> bool:
        """Return whether it is somebody else's."""
        return self.request is None


# Prices are round figures of the right order, chosen here; nothing depends on their truth.
DEFAULT_OFFERS: tuple[Offer, ...] = tuple(
    Offer("fake", OfferKey(key), gpu, count, vram_gib, Decimal(price), interruptible=spot)
    for key, gpu, count, vram_gib, price, spot in (
        ("rtx4090", "RTX4090", 1, 24.0, "0.40", False),
        ("a6000", "A6000", 1, 48.0, "0.50", False),
        ("a100", "A100-80GB", 1, 80.0, "1.60", False),
        ("a100-spot", "A100-80GB", 1, 80.0, "0.80", True),
        ("h100", "H100-80GB", 1, 80.0, "2.90", False),
        ("h100x2", "H100-80GB", 2, 80.0, "5.80", False),
    )
)


@dataclass(slots=True)
class FakeCloud:
    """A cloud in memory: read `machines` and `log` for the truth, call the effects to act on it."""

    clock: Clock
    rng: random.Random
    settings: FakeSettings = field(default_factory=FakeSettings)
    offers: Sequence[Offer] = DEFAULT_OFFERS
    credit_usd: Decimal | None = None
    machines: dict[InstanceId, Machine] = field(default_factory=dict)
    log: list[CloudEvent] = field(default_factory=list)
    sold_out: set[OfferKey] = field(default_factory=set)  # still listed: the list is always stale
    lock: threading.RLock = field(default_factory=threading.RLock)

    # ---------------------------------------------------------------- effects

    def create(self, request: LaunchRequest) -> Machine:
        """Return a new machine, billed from now.

        Raises NoCapacity, QuotaExceeded, InvalidRequest.
        """
        with self.lock:
            self.settle()
            offer = next((o for o in self.offers if o.key == request.offer.key), None)
            if offer is None:
                raise self._refused(request, InvalidRequest(f"no offer {request.offer.key!r}"))
            if offer.key in self.sold_out:
                raise self._refused(request, NoCapacity(f"{offer.key} is sold out"))
            if self.credit_usd is not None and self.credit_usd <= self.total_bill():
                raise self._refused(request, QuotaExceeded("the balance is used up"))
            if self.settings.unique_labels and any(
                m.label == request.label and m.deleted_at is None for m in self.machines.values()
            ):
                raise self._refused(request, InvalidRequest(f"label {request.label!r} is taken"))
            gib = request.disk_gib if offer.disk_gib is None else 0
            price = offer.price_usd_per_hour * self.settings.price_factor
            offer = replace(offer, price_usd_per_hour=price)
            storage = offer.storage_usd_per_gib_hour * gib
            return self._add(request.label, request.owner, offer, storage, request)

    def add_foreign(self, label: str, *, owner: str | None = None) -> Machine:
        """Return a new machine of somebody else: same account, not ours to touch."""
        with self.lock:
            self.settle()
            return self._add(label, owner, self.offers[0], Decimal(0), None)

    def stop(self, instance_id: InstanceId) -> None:
        """Stop without deleting: compute is free from now, storage is not."""
        with self.lock:
            now = self.settle()
            machine = self.machines[instance_id]
            if machine.deleted_at is None and machine.stopped_at is None:
                machine.stopped_at = now
                self._note(now, EventKind.STOPPED, machine)

    def end(self, instance_id: InstanceId, by: str) -> None:
        """End a machine now: `by` says who ("self", "preempted", ...). Absent or ended: nothing."""
        with self.lock:
            now = self.settle()
            machine = self.machines.get(instance_id)
            if machine is not None and machine.deleted_at is None:
                self._delete(machine, now, by)

    def settle(self) -> float:
        """Apply every deadline that has passed and return the present (UNIX s)."""
        with self.lock:
            now = self.clock.now()
            if self.settings.enforces_deadline:
                for machine in self.machines.values():
                    due = machine.deadline_at
                    if machine.deleted_at is None and due is not None and due <= now:
                        self._delete(machine, max(due, machine.created_at), "deadline")
            return now

    # ---------------------------------------------------------------- truth

    def living(self) -> list[Machine]:
        """Return the machines that exist and are billed now, foreign ones among them."""
        with self.lock:
            self.settle()
            return [m for m in self.machines.values() if m.deleted_at is None]

    def reachable(self, instance_id: InstanceId) -> bool:
        """Return whether an SSH login would succeed now."""
        with self.lock:
            now = self.settle()
            machine = self.machines.get(instance_id)
            if machine is None or machine.deleted_at is not None or machine.stopped_at is not None:
                return False
            delay = self.settings.boot_delay_s + self.settings.ssh_delay_s
            return now >= machine.created_at + delay

    def bill(self, instance_id: InstanceId, now: float | None = None) -> Decimal:
        """Return USD for one machine from its creation to its real end, or to `now`. Exact."""
        with self.lock:
            present = self.settle() if now is None else now
            machine = self.machines[instance_id]
            step = self.settings.billing_step_s
            end = min(present, _or(machine.deleted_at, present))
            worked = billed_seconds(
                machine.created_at, min(end, _or(machine.stopped_at, end)), step
            )
            kept = billed_seconds(machine.created_at, end, step)
            return (
                machine.price_usd_per_hour * worked + machine.storage_usd_per_hour * kept
            ) / HOUR_S

    def total_bill(
        self, now: float | None = None, ids: Iterable[InstanceId] | None = None
    ) -> Decimal:
        """Return USD for the machines named, all but the foreign ones by default."""
        with self.lock:
            chosen = [i for i, m in self.machines.items() if not m.foreign] if ids is None else ids
            return sum((self.bill(i, now) for i in chosen), Decimal(0))

    # ---------------------------------------------------------------- helpers

    def _add(
        self,
        label: str,
        owner: str | None,
        offer: Offer,
        storage_usd_per_hour: Decimal,
        request: LaunchRequest | None,
    ) -> Machine:
        now = self.clock.now()
        number = len(self.machines) + 1
        machine = Machine(
            id=InstanceId(f"fake-{number:04d}-{self.rng.getrandbits(24):06x}"),
            label=label,
            owner=owner,
            offer=offer,
            price_usd_per_hour=offer.price_usd_per_hour,
            storage_usd_per_hour=storage_usd_per_hour,
            created_at=now,
            deadline_at=None if request is None else request.deadline_at,
            host=f"fake-{number}.invalid",
            port=20000 + number,
            host_key=_host_key(self.rng),
            request=request,
        )
        self.machines[machine.id] = machine
        self._note(now, EventKind.CREATED, machine)
        return machine

    def _delete(self, machine: Machine, at: float, by: str) -> None:
        machine.deleted_at = at
        machine.ended_by = by
        self._note(at, EventKind.DELETED, machine, by)
        usd = self.bill(machine.id, at)
        self.log.append(CloudEvent(at, EventKind.BILLED, machine.id, machine.label, by, usd))

    def _note(self, at: float, kind: EventKind, machine: Machine, detail: str = "") -> None:
        self.log.append(CloudEvent(at, kind, machine.id, machine.label, detail))

    def _refused(self, request: LaunchRequest, error: ProviderError) -> ProviderError:
        event = CloudEvent(self.clock.now(), EventKind.REFUSED, None, request.label, str(error))
        self.log.append(event)
        return error


def billed_seconds(start: float, end: float, step_s: float) -> Decimal:
    """Return the seconds billed for [start, end): up to a multiple of `step_s` (0: exact)."""
    lasted = max(0.0, end - start)
    if step_s <= 0:
        return Decimal(str(round(lasted, 6)))
    return math.ceil(round(lasted / step_s, 9)) * Decimal(str(step_s))


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _host_key(rng: random.Random) -> HostKey:
    # RFC 8709: string "ssh-ed25519", string of 32 bytes; each with a 4-byte length.
    name = b"ssh-ed25519"
    body = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + rng.randbytes(32)
    return HostKey(name.decode(), base64.b64encode(body).decode())
