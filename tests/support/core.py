"""Small makers for tests of the core: offers, jobs, stores in memory."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from orchestrator import events as ev
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.store import Store
from orchestrator.store_engine import Database
from orchestrator.store_migrate import bring_to_head
from providers.base import InstanceId, Offer, OfferKey, Traits

T0 = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
LABEL = "gpujob-ad2a0ab6-abc123-1-fedcba"
TRAITS = Traits(10.0, 300.0, 1.0, proves_absence=True, self_destruct="true")
M1, M2 = InstanceId("m-1"), InstanceId("m-2")


def offer(key: str = "a100", price: str = "1.80", **more: Any) -> Offer:
    """Return an offer of the fake provider."""
    return Offer("fake", OfferKey(key), "A100-80GB", 1, 80.0, Decimal(price), **more)


def new_job(job_id: str = "abc123", *offers: Offer, **caps: Any) -> NewJob:
    """Return a job with these offers, one by default."""
    return NewJob(
        job_id,
        "tone",
        {"name": "tone"},
        offers or (offer(),),
        LaunchSpec("ssh-ed25519 AAAA test", disk_gib=20),
        Caps(**caps),
        "/nonexistent/out",
        Decimal("2.5"),
    )


def opened(at: float = T0, **changes: Any) -> ev.Opened:
    """Return the intent of attempt 1."""
    values: dict[str, Any] = {
        "at": at,
        "job_id": "abc123",
        "number": 1,
        "label": LABEL,
        "provider": "fake",
        "offer": offer(),
        "disk_gib": 0,
        "billing_step_s": 1.0,
        "list_lag_s": TRAITS.list_lag_s,
        "deadline_at": at + 3600.0,
    }
    return ev.Opened(**{**values, **changes})


def launched(at: float = T0) -> list[ev.AttemptEvent]:
    """Return the events up to BOOTING, on machine M1."""
    return [
        opened(at),
        ev.LaunchAsked(at),
        ev.MachineSeen(at, M1, "answered"),
        ev.Launched(at, M1),
    ]


def memory_store() -> Store:
    """Return an empty store in memory."""
    database = Database("sqlite://")
    bring_to_head(database)
    return Store(database)
