"""List prices to plan with where no provider with GPUs is set up: dated, and nothing to rent.

`list_prices.csv`: one line a card, tier and kind, USD per hour for one GPU of RunPod's public price
list as copied on `date`. Spot prices are the oldest.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from functools import cache
from pathlib import Path

from providers.base import Offer, OfferKey, Tier
from providers.gpus import GPUS

TABLE = Path(__file__).with_name("list_prices.csv")
PROVIDER = "runpod"
# GPUs of one machine: a RunPod pod's price is the card's times their number.
COUNTS = (1, 2, 4, 8)


@cache
def list_offers() -> tuple[Offer, ...]:
    """Return the list as offers that cannot be launched; `region` says from when the price is."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(_offer(row, count) for row in rows for count in COUNTS)


def span() -> tuple[str, str]:
    """Return the oldest and the newest date of the list."""
    dates = sorted(offer.region.removeprefix("list ") for offer in list_offers())
    return dates[0], dates[-1]


def _offer(row: dict[str, str], count: int) -> Offer:
    spot = row["spot"] == "1"
    kind = "spot" if spot else "on-demand"
    return Offer(
        provider=PROVIDER,
        key=OfferKey(f"list:{count}x{row['gpu']}:{row['tier']}:{kind}"),
        gpu=row["gpu"],
        gpu_count=count,
        vram_gib=GPUS[row["gpu"]].vram_gib,
        price_usd_per_hour=Decimal(row["usd_per_hour"]) * count,
        interruptible=spot,
        region=f"list {row['date']}",
        tier=Tier(row["tier"]),
    )
