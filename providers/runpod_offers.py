"""RunPod's catalogue as offers: GPU x tier x data centre, those without stock left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Any

from providers.base import Offer, OfferKey, Tier
from providers.errors import InvalidRequest, Unavailable
from providers.gpus import canonical

NAME = "runpod"
ANYWHERE = ""  # the scheduler chooses the data centre
# USD per GB and month of 730 h, container and volume disk of a running pod: docs, pods/pricing.
STORAGE_USD_PER_GIB_HOUR = (Decimal("0.10") / 730).quantize(Decimal("0.000001"), ROUND_UP)
CONTAINER_GIB = 20  # of the container's own disk, wiped at each restart; the rest is the volume
LEAST_VOLUME_GIB = 10  # the service's own floor
STOCK = {"HIGH": 0, "MEDIUM": 1, "LOW": 2}
CLOUDS = {Tier.SECURE: "SECURE", Tier.COMMUNITY: "COMMUNITY"}
_PRICES = {Tier.SECURE: "secure", Tier.COMMUNITY: "community"}
_KEY = re.compile(r"([^|]{1,120})\|(\d{1,2})\|(SECURE|COMMUNITY)\|([A-Za-z0-9-]*)(\|spot)?")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a create call asks for: one GPU type, one tier, one data centre."""

    gpu_id: str
    count: int
    tier: Tier
    data_center: str = ANYWHERE
    spot: bool = False

    @property
    def key(self) -> OfferKey:
        """Return the offer's key."""
        cloud = CLOUDS[self.tier]
        tail = "|spot" if self.spot else ""
        return OfferKey(f"{self.gpu_id}|{self.count}|{cloud}|{self.data_center}{tail}")


def candidate_of(key: OfferKey) -> Candidate:
    """Return what a key stands for; raises InvalidRequest."""
    match = _KEY.fullmatch(key)
    if match is None or int(match[2]) < 1:
        raise InvalidRequest(f"launch: {key!r} is no offer of {NAME}")
    tier = next(tier for tier, cloud in CLOUDS.items() if cloud == match[3])
    return Candidate(match[1], int(match[2]), tier, match[4], bool(match[5]))


def offers_of(gpus: object, tier: Tier, count: int) -> list[Offer]:
    """Return the offers of one catalogue read for `count` GPUs of a tier.

    gpus: the read's list. An entry that lacks what it must have is left out; no list at all is
    Unavailable.
    """
    if not isinstance(gpus, list):
        raise Unavailable("offers: the catalogue has no list of GPUs")
    return [
        offer for gpu in gpus if isinstance(gpu, dict) for offer in _offers_of_gpu(gpu, tier, count)
    ]


def _offers_of_gpu(gpu: Mapping[str, Any], tier: Tier, count: int) -> Iterator[Offer]:
    name = _PRICES[tier]
    gpu_id, memory = gpu.get("id"), gpu.get("memory")
    price = money((gpu.get("price") or {}).get(name))
    most = (gpu.get("maxCount") or {}).get(name)
    # A tier that a type does not have shows a made-up price: only its flag counts.
    if gpu.get(name) is not True or price is None or price <= 0 or not isinstance(gpu_id, str):
        return
    if "|" in gpu_id or not isinstance(memory, (int, Decimal)) or memory <= 0:
        return
    if str(gpu.get("manufacturer", "")).upper() == "AMD":  # the locked environment is CUDA's
        return
    if isinstance(most, int) and count > most:
        return
    for place, rank in _places(gpu):
        yield Offer(
            provider=NAME,
            key=Candidate(gpu_id, count, tier, place).key,
            gpu=canonical(gpu_id) or canonical(str(gpu.get("name"))) or gpu_id,
            gpu_count=count,
            vram_gib=float(memory),
            price_usd_per_hour=price * count,
            region=place,
            tier=tier,
            storage_usd_per_gib_hour=STORAGE_USD_PER_GIB_HOUR,
            stock_rank=rank,
            least_disk_gib=CONTAINER_GIB + LEAST_VOLUME_GIB,
        )


def _places(gpu: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the data centres with stock; where none is named, the scheduler's choice."""
    named = False
    for center in gpu.get("dataCenters") or ():
        place = center.get("id") if isinstance(center, dict) else None
        if isinstance(place, str) and re.fullmatch(r"[A-Za-z0-9-]+", place):
            named = True
            rank = STOCK.get(str(center.get("availability")))
            if rank is not None:
                yield place, rank
    rank = STOCK.get(str(gpu.get("availability")))
    if not named and rank is not None:
        yield ANYWHERE, rank


def money(value: object) -> Decimal | None:
    """Return a JSON number as money; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    amount = Decimal(value)
    return amount if amount.is_finite() else None
