"""What is for hire against what is wanted: quotes, best first, and one reason for each that lost.

Pure. The order of the offers never changes the answer; ties are broken by provider and key.
Offers of one kind (all that the reasons depend on) are judged once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from orchestrator.sized import Fit, Sized
from providers.base import Offer, Tier
from providers.gpus import canonical

CPU = "CPU"  # the `gpu` of an offer without one
Prefer = Literal["cost", "time", "balanced"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job asks of a machine. An empty tuple means "any".

    providers, types: as in the job file's `gpu` section. tiers: empty for "any".
    count: GPUs of one machine; None: as many as it takes. spot: whether machines that may be called
    back will do. max_price_usd_per_hour: for the whole machine. sized: the job's memory and speed;
    without it offers are ranked by price and nothing is known of their memory. budget_usd,
    max_hours: an offer whose expected cost or time is above them loses.
    """

    providers: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    count: int | None = 1
    max_price_usd_per_hour: Decimal | None = None
    tiers: tuple[Tier, ...] = ()
    spot: bool = False
    sized: Sized | None = None
    prefer: Prefer = "cost"
    budget_usd: Decimal | None = None
    max_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """An offer that will do, and what the whole job may cost on it (None: not yet known)."""

    offer: Offer
    expected_usd: Decimal | None = None
    fit: Fit | None = None

    @property
    def hours(self) -> float | None:
        """Return the expected hours of the whole job."""
        if self.fit is None:
            return None
        return self.fit.spot_h if self.offer.interruptible else self.fit.hours


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

    @property
    def cheapest(self) -> Quote | None:
        """Return the quote of the lowest expected cost."""
        known = [quote for quote in self.quotes if quote.expected_usd is not None]
        return min(known, key=_by_cost, default=None)

    @property
    def fastest(self) -> Quote | None:
        """Return the quote of the fewest hours."""
        known = [quote for quote in self.quotes if quote.hours is not None]
        return min(known, key=_by_time, default=None)

    @property
    def balanced(self) -> Quote | None:
        """Return the quote of the smallest product of cost and hours."""
        known = [quote for quote in self.quotes if quote.hours is not None]
        return min(known, key=_by_both, default=None)


def match(requirement: Requirement, offers: Iterable[Offer]) -> Matching:
    """Return the offers that will do, best first, and why each other one will not."""
    kinds: dict[tuple[object, ...], _Kind] = {}
    quotes: list[Quote] = []
    rejected: list[Rejected] = []
    limit, budget = requirement.max_price_usd_per_hour, requirement.budget_usd
    for offer in offers:
        key = (
            offer.gpu, offer.gpu_count, offer.vram_gib, offer.provider, offer.tier,
            offer.interruptible, offer.disk_gib, offer.host_ram_gib,
            offer.storage_usd_per_gib_hour,
        )  # fmt: skip
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _kind(requirement, offer)
        price = offer.price_usd_per_hour
        reason, expected = kind.reason, None
        if reason is None and limit is not None and price > limit:
            reason = f"costs ${price}/h, above gpu.max_price_usd_per_hour ${limit}"
        if reason is None and kind.hours is not None:
            expected = (price + kind.storage_usd_per_hour) * kind.hours
            if budget is not None and expected > budget and not offer.price_is_notional:
                reason = f"would cost about ${expected:.2f}, above limits.budget_usd ${budget}"
        if reason is None:
            quotes.append(Quote(offer, expected, kind.fit))
        else:
            rejected.append(Rejected(offer, reason))
    order = {"cost": _by_cost, "time": _by_time, "balanced": _by_both}[requirement.prefer]
    quotes.sort(key=order)
    rejected.sort(key=lambda lost: _rank(lost.offer))
    return Matching(tuple(quotes), tuple(rejected))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is true of all offers of one kind: the reason against them, or how the job runs."""

    reason: str | None
    fit: Fit | None = None
    hours: Decimal | None = None  # that are paid
    storage_usd_per_hour: Decimal = Decimal(0)


def _kind(need: Requirement, offer: Offer) -> _Kind:
    for check in (_provider, _gpu, _count, _tier, _spot):
        reason = check(need, offer)
        if reason is not None:
            return _Kind(reason)
    if need.sized is None or offer.gpu == CPU:  # a rehearsal on a CPU is nobody's expense
        return _Kind(None)
    fit = _machine(need.sized, offer)
    if isinstance(fit, str):
        return _Kind(fit)
    paid = fit.spot_h if offer.interruptible else fit.hours
    if paid is None:
        return _Kind(None, fit)
    if need.max_hours is not None and paid > need.max_hours:
        return _Kind(f"would take about {paid:.1f} h, above limits.hours {need.max_hours:g}")
    storage = offer.storage_usd_per_gib_hour if offer.disk_gib is None else Decimal(0)
    return _Kind(None, fit, _decimal(paid), storage * round(fit.need.disk_gib))


def why_not(requirement: Requirement, offer: Offer) -> str | None:
    """Return the first reason against an offer, in words; None where it will do."""
    lost = match(requirement, [offer]).rejected
    return lost[0].reason if lost else None


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


def _by_cost(quote: Quote) -> tuple[object, ...]:
    """Known costs first; equal ones by time, then by price and name."""
    offer, fit, expected = quote.offer, quote.fit, quote.expected_usd
    if expected is None or fit is None:
        return (1, Decimal(0), 0.0, *_rank(offer))
    hours = fit.spot_h if offer.interruptible else fit.hours
    return (0, expected, hours, offer.price_usd_per_hour, offer.provider, offer.key)


def _by_time(quote: Quote) -> tuple[object, ...]:
    if quote.hours is None:
        return (1, 0.0, Decimal(0), *_rank(quote.offer))
    return (0, quote.hours, quote.expected_usd, *_rank(quote.offer))


def _by_both(quote: Quote) -> tuple[object, ...]:
    if quote.expected_usd is None or quote.hours is None:
        return (1, Decimal(0), *_rank(quote.offer))
    return (0, quote.expected_usd * _decimal(quote.hours), *_rank(quote.offer))


def _machine(sized: Sized, offer: Offer) -> str | Fit:
    found = sized.fit(offer.gpu, offer.gpu_count, offer.vram_gib)
    if isinstance(found, str):
        return found
    if offer.disk_gib is not None and offer.disk_gib < found.need.disk_gib:
        return f"has {offer.disk_gib:.0f} GiB of disk, the job needs {found.need.disk_gib:.0f}"
    ram = found.need.host_ram_gib
    if offer.host_ram_gib is not None and offer.host_ram_gib < ram:
        return f"has {offer.host_ram_gib:.0f} GiB of main memory, the job needs {ram:.0f}"
    return found


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
    wanted = need.count
    if wanted is None:
        if need.sized is not None or offer.gpu_count <= 1:
            return None
        return f"has {offer.gpu_count} GPUs, gpu.count: {offer.gpu_count} asks for them"
    if offer.gpu != CPU and offer.gpu_count != wanted:
        return f"has {offer.gpu_count} GPU{'s' * (offer.gpu_count != 1)}, gpu.count is {wanted}"
    if offer.gpu == CPU and wanted > 1:
        return f"has no GPU, gpu.count is {wanted}"
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


def _decimal(hours: float) -> Decimal:
    """Return hours as money is multiplied: to the tenth of a second, so that ties are ties."""
    return Decimal(str(round(hours, 5)))


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(names)
