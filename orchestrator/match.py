"""What is for hire against what is wanted: quotes by price, and one reason for each that lost.

Pure. The order of the offers never changes the answer; ties are broken by provider and key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from providers.base import Offer, Tier
from providers.gpus import canonical

CPU = "CPU"  # the `gpu` of an offer without one


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job asks of a machine. An empty tuple means "any".

    providers, types: as in the job file's `gpu` section. tiers: empty for "any".
    count: GPUs of one machine. spot: whether machines that may be called back will do.
    max_price_usd_per_hour: for the whole machine.
    """

    providers: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    count: int = 1
    max_price_usd_per_hour: Decimal | None = None
    tiers: tuple[Tier, ...] = ()
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Quote:
    """An offer that will do, and what the whole job may cost on it (None: not yet known)."""

    offer: Offer
    expected_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An offer that will not do, and the one reason that a person should read first."""

    offer: Offer
    reason: str


@dataclass(frozen=True, slots=True)
class Matching:
    """Every offer is in exactly one of the two."""

    quotes: tuple[Quote, ...]
    rejected: tuple[Rejected, ...]


def match(requirement: Requirement, offers: Iterable[Offer]) -> Matching:
    """Return the offers that will do, cheapest first, and why each other one will not."""
    quotes: list[Quote] = []
    rejected: list[Rejected] = []
    for offer in sorted(offers, key=_rank):
        reason = why_not(requirement, offer)
        if reason is None:
            quotes.append(Quote(offer))
        else:
            rejected.append(Rejected(offer, reason))
    return Matching(tuple(quotes), tuple(rejected))


def why_not(requirement: Requirement, offer: Offer) -> str | None:
    """Return the first reason against an offer, in words; None where it will do."""
    for check in (_provider, _gpu, _count, _tier, _spot, _price):
        reason = check(requirement, offer)
        if reason is not None:
            return reason
    return None


def same_gpu(wanted: str, have: str) -> bool:
    """Return whether a person's word means a card: "rtx 4090", "A100 80", or "A100" for all.

    A word that is a card's own name means that card alone: "H200" is not "H200-NVL".
    """
    known = canonical(wanted)
    if known is not None:
        return known == (canonical(have) or have)
    if _plain(wanted) == _plain(have):
        return True
    family, dash, _shape = have.partition("-")
    return bool(dash) and _plain(wanted) == _plain(family)


def _plain(name: str) -> str:
    kept = "".join(char for char in name.casefold() if char.isalnum())
    return kept.removesuffix("gb")


def _rank(offer: Offer) -> tuple[Decimal, int, str, str]:
    return (offer.price_usd_per_hour, offer.stock_rank, offer.provider, offer.key)


def _provider(need: Requirement, offer: Offer) -> str | None:
    if need.providers and offer.provider not in need.providers:
        return f"gpu.providers asks for {_any_of(need.providers)}"
    return None


def _gpu(need: Requirement, offer: Offer) -> str | None:
    if need.types:
        if any(same_gpu(wanted, offer.gpu) for wanted in need.types):
            return None
        return f"gpu.types asks for {_any_of(need.types)}"
    # A free CPU would win every ranking by price, and train for weeks: it must be asked for.
    if offer.gpu == CPU and need.providers != (offer.provider,):
        return f"has no GPU; gpu.types: [CPU] or gpu.providers: [{offer.provider}] asks for it"
    return None


def _count(need: Requirement, offer: Offer) -> str | None:
    if offer.gpu != CPU and offer.gpu_count != need.count:
        return f"has {offer.gpu_count} GPU{'s' * (offer.gpu_count != 1)}, gpu.count is {need.count}"
    if offer.gpu == CPU and need.count > 1:
        return f"has no GPU, gpu.count is {need.count}"
    return None


def _tier(need: Requirement, offer: Offer) -> str | None:
    # A machine of one's own is no cloud tier: asking for it by name is enough.
    if need.tiers and offer.tier not in need.tiers and offer.tier is not Tier.OWN:
        return f"is {offer.tier}, gpu.tier asks for {_any_of(need.tiers)}"
    return None


def _spot(need: Requirement, offer: Offer) -> str | None:
    if offer.interruptible and not need.spot:
        return "may be called back (spot), gpu.spot does not allow it"
    return None


def _price(need: Requirement, offer: Offer) -> str | None:
    limit = need.max_price_usd_per_hour
    if limit is not None and offer.price_usd_per_hour > limit:
        return f"costs ${offer.price_usd_per_hour}/h, above gpu.max_price_usd_per_hour ${limit}"
    return None


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(names)
