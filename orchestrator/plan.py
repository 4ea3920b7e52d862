"""What a submit stores: the job, its offers best first, and its caps. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from orchestrator.states import Reason
from providers.base import Offer


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What every launch of the job asks for, whatever the offer.

    public_key: one OpenSSH line, the only key that may log in. env: never secrets.
    """

    public_key: str
    image: str | None = None
    template: str | None = None
    disk_gib: int = 0
    start_script: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    lease_s: float = 0.0  # the machine ends itself when nobody renewed its lease for so long


@dataclass(frozen=True, slots=True)
class Caps:
    """Where the job ends at the latest.

    budget_usd: a hard total over all attempts, compute and storage.
    max_s: from the first attempt's intent to the deadline that every machine of it carries itself.
    boot_timeout_s: None: the provider's trait.
    reserve_usd: kept for bringing the adapter home; not spent on training.
    max_machines: attempts that got a machine; refusals do not count.
    keep_on_failure_s: how long a machine whose training failed is left for its owner to look at.
    keep_checkpoints: how many are brought home and kept while it trains; 0: none.
    """

    budget_usd: Decimal | None = None
    max_s: float = 86_400.0
    boot_timeout_s: float | None = None
    reserve_usd: Decimal = Decimal(0)
    max_machines: int = 3
    keep_checkpoints: int = 0
    keep_on_failure_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as submitted. `offers` are tried in order, each once. `spec` holds no secret."""

    id: str
    name: str
    spec: dict[str, Any]
    offers: tuple[Offer, ...]
    launch: LaunchSpec
    caps: Caps
    output_folder: str
    expected_usd: Decimal | None = None
    pushes: tuple[str, ...] = ()  # where the result goes from the output folder


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the runner needs it: the plan, and what has been asked of it since."""

    new: NewJob
    created_at: float
    cancel: Reason | None = None
    closed_at: float | None = None
