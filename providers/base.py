"""The provider interface: five verbs, limits as data, and the nouns that pass through it.

No verb waits, retries or prices a job, and none blocks longer than one HTTP timeout. Times are UNIX
seconds (float), money is `Decimal` USD, memory is GiB (2**30 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import NewType, Protocol, runtime_checkable

InstanceId = NewType("InstanceId", str)
OfferKey = NewType("OfferKey", str)

BY_HAND = "ssh"  # the provider whose machines only their owner can end
HANDED_ON = "handed_on"  # `Ended.by` where a later attempt has the machine, and counts it


class InstanceState(StrEnum):
    """What a provider says of a machine. Only GONE is free; STOPPED and UNKNOWN count as billed."""

    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    GONE = "gone"
    UNKNOWN = "unknown"


class Tier(StrEnum):
    """Who runs the host: a data centre, a private person, or the user."""

    SECURE = "secure"
    COMMUNITY = "community"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Traits:
    """What differs between providers and matters to the runner: limits are data, not subclasses.

    list_lag_s: how long a created machine may be missing from `find`, or a deleted one present.
    boot_timeout_s: launch to first SSH, at the most.
    billing_step_s: billed time is rounded up to a multiple of this.
    proves_absence: False for a machine rented by hand, whose end no call can prove.
    self_destruct: a shell line by which a machine ends itself; None where it cannot.
    remote: False when the instance is this very machine (nothing leaves the user's host).
    knows_labels: describe also takes a label, and says GONE of a machine that lived under it; its
        NotFound then proves that none ever did.
    """

    list_lag_s: float
    boot_timeout_s: float
    billing_step_s: float
    proves_absence: bool
    self_destruct: str | None
    remote: bool = True
    knows_labels: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing for hire: `price_usd_per_hour` for the whole machine, `vram_gib` for one GPU."""

    provider: str
    key: OfferKey
    gpu: str  # canonical name of providers/gpus.py, or "CPU"
    gpu_count: int
    vram_gib: float
    price_usd_per_hour: Decimal
    interruptible: bool = False
    region: str = ""
    tier: Tier = Tier.SECURE
    price_is_notional: bool = False  # a made-up price, shown as such (local quickstart)
    storage_usd_per_gib_hour: Decimal = Decimal(0)
    disk_gib: float | None = None  # None: as asked for
    least_disk_gib: int = 0  # ... and no less is rented, or billed, than this
    billing_step_s: float | None = None  # None: the provider's trait
    host_ram_gib: float | None = None
    stock_rank: int = 0  # lower first among equal prices: how plentiful it is


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job wants, for a provider whose catalogue must be asked by it.

    count: GPUs of one machine; None: any number. tiers (): any.
    """

    count: int | None = 1
    tiers: tuple[Tier, ...] = ()
    spot: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that a launch needs. The instance enforces `deadline_at` from its first moment.

    label: unique name of this attempt, stored before the call; `find` looks for its prefix.
    public_key: one OpenSSH line ("ssh-ed25519 AAAA..."); the only key that may log in.
    """

    label: str
    owner: str
    offer: Offer
    public_key: str
    deadline_at: float
    budget_usd: Decimal | None = None
    image: str | None = None
    template: str | None = None  # the vendor's own id of a set of container settings
    disk_gib: int = 0
    start_script: str | None = None
    env: dict[str, str] = field(default_factory=dict)  # never secrets
    lease_s: float = 0.0  # it ends itself when its lease was not renewed so long; 0: no lease


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key learnt over a channel we trust: OpenSSH type and base64 body, without comment."""

    type: str
    base64: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the provider describes it; host, port, user are None until it is reachable."""

    id: InstanceId
    label: str
    state: InstanceState
    host: str | None = None
    port: int | None = None
    user: str | None = None
    host_key: HostKey | None = None
    owner: str | None = None
    price_usd_per_hour: Decimal | None = None
    quoted_usd_per_hour: Decimal | None = None  # at its launch, where it bears that stamp
    disk_gib: int = 0  # rented with it, at the price below
    storage_usd_per_gib_hour: Decimal = Decimal(0)
    created_at: float | None = None
    deadline_at: float | None = None  # as stamped on the machine, where the provider can tell
    workdir: str | None = None  # folder on the instance that is ours, where the provider fixes it
    key_file: str | None = None  # our private key's path where it is not the job's own; its content
    # is never stored
    axolotl_env: str | None = None  # a ready Axolotl environment on the instance, as its owner says
    detail: str = ""  # the vendor's own word for the state, for logs


class Provider(Protocol):
    """The five verbs. All raise only `providers.errors.ProviderError` subclasses."""

    name: str
    traits: Traits

    def offers(self) -> Sequence[Offer]:
        """Return all for hire now, unfiltered. n calls."""
        ...

    def launch(self, request: LaunchRequest) -> Instance:
        """Ask for a machine, return at once; host and port may be None. 1 call, never repeated."""
        ...

    def describe(self, instance_id: InstanceId) -> Instance:
        """Return the machine as it is; raises NotFound if the vendor knows no such id. 1 call."""
        ...

    def find(self, label_prefix: str) -> Sequence[Instance]:
        """Return all machines whose label starts so, known to our store or not. n calls."""
        ...

    def terminate(self, instance_id: InstanceId) -> None:
        """Ask for the end. Idempotent: absent is success. Returning is not proof. 1 call."""
        ...


@runtime_checkable
class Selective(Protocol):
    """Optional: a provider that is asked for offers by what a job wants."""

    def offers_for(self, wish: Wish) -> Sequence[Offer]:
        """Return what is for hire for the wish; a superset of it will do. n calls."""
        ...


@runtime_checkable
class Billing(Protocol):
    """Optional: what the provider charged."""

    def billed(self, instance_id: InstanceId, start: float, end: float) -> Decimal | None:
        """Return USD charged in [start, end), None while the provider has not settled it."""
        ...


@runtime_checkable
class Account(Protocol):
    """Optional: the account's balance."""

    def balance(self) -> Decimal | None:
        """Return USD left, None when unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job asks of a machine that is there already. egress: (host, port) it must reach.

    environment_gib: more, where the machine has no Axolotl environment yet. wished: what it is good
    to reach; told where it can't be, and no reason to refuse the machine.
    """

    disk_gib: float = 0.0
    environment_gib: float = 0.0
    egress: tuple[tuple[str, int], ...] = ()
    wished: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at before the launch; `remedy` where it is not as it must be."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A word that a machine is gone, beyond what the provider's reads can show.

    at: when it ended. by: "owner", or "check_command": the owner's own means of looking; or
    HANDED_ON: it lives, and a later attempt of ours has it and its meter.
    """

    at: float
    by: str


@runtime_checkable
class ByHand(Protocol):
    """Optional: machines that a person rented and only a person can end."""

    def shown_key(self, offer: Offer) -> tuple[HostKey, bool]:
        """Return the host key that the machine shows, and whether it is trusted. 1 connection."""
        ...

    def trust(self, offer: Offer, key: HostKey) -> None:
        """Remember the key: from here on the machine must show it."""
        ...

    def check(self, offer: Offer, needs: Needs) -> tuple[Check, ...]:
        """Return what was looked at on the machine, before anything is launched. 1 connection."""
        ...

    def declare_ended(self, instance_id: InstanceId, at: float) -> None:
        """Take the owner's word that the machine ended then; NotFound, InvalidRequest."""
        ...

    def ended(self, instance_id: InstanceId) -> Ended | None:
        """Return such a word, None where there is none. No call."""
        ...

    def handed_on(self) -> Sequence[InstanceId]:
        """Return the attempts whose machine a later one has, until `noted`. No call."""
        ...

    def noted(self, instance_id: InstanceId) -> None:
        """Take that the hand-over is written down: it is not told again."""
        ...
