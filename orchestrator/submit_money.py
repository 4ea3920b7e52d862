"""What a submit asks about money before anything is rented: budget, balance, and today's price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.jobflow import storage_rate
from orchestrator.redact import told
from providers.base import Account, Offer, Provider
from providers.errors import ProviderError

if TYPE_CHECKING:
    from orchestrator.submit import Plan

# What a job needs before it has anything to show, on a machine that has to boot: estimates, not
# measured on a rented GPU. On `local`, where nothing boots, a small model trains after 40 s.
BOOT_S = 120.0
PREPARE_S = 120.0
TRAIN_S = 60.0
# Bringing the adapter home, ending the machine, and the two reads of the proof.
RESERVE_S = 180.0
MOST_RESERVED = Decimal("0.25")  # of the budget
CENT = Decimal("0.01")


def reserve_usd(offer: Offer, budget_usd: Decimal | None, disk_gib: int = 0) -> Decimal:
    """Return what of the budget is kept from the training, for the way home and the end."""
    if budget_usd is None:
        return Decimal(0)
    return min(_priced(offer, RESERVE_S, disk_gib), budget_usd * MOST_RESERVED)


def smallest_budget(offer: Offer, *, remote: bool, disk_gib: int = 0) -> Decimal:
    """Return the least USD with which the job can come to train at all, in whole cents."""
    before_s = BOOT_S + PREPARE_S if remote else 0.0
    return _priced(offer, before_s + TRAIN_S + RESERVE_S, disk_gib).quantize(CENT, ROUND_UP)


def preflight(planned: Plan, providers: Mapping[str, Provider]) -> Plan:
    """Return the plan with what is to be said of money; raises Refused. 0 or 1 call."""
    refuse_small_budget(planned, providers)
    return refuse_low_balance(planned, providers)


def refuse_small_budget(planned: Plan, providers: Mapping[str, Provider]) -> None:
    """Raise Refused where the budget ends before the training could begin."""
    budget, offer = planned.spec.limits.budget_usd, planned.best.offer
    provider = providers.get(offer.provider)
    if budget is None or provider is None or offer.price_usd_per_hour <= 0:
        return
    least = smallest_budget(offer, remote=provider.traits.remote)
    if budget < least:
        raise Refused(
            f"limits.budget_usd {budget}: at {offer.price_usd_per_hour} USD/h it would be used up "
            "before the training could begin",
            remedy=f"The smallest that works on this offer is {least}.",
        )


def refuse_low_balance(planned: Plan, providers: Mapping[str, Provider]) -> Plan:
    """Return the plan, a note added where the balance may not last; raises Refused, exit code 3.

    A balance that nobody can tell refuses nothing. 0 or 1 call.
    """
    offer = planned.best.offer
    provider = providers.get(offer.provider)
    if not isinstance(provider, Account) or offer.price_is_notional:
        return planned
    try:
        balance = provider.balance()
    except ProviderError as error:
        return _noted(planned, f"{offer.provider}: balance unknown ({told(error, kind=False)})")
    if balance is None:
        return planned
    least = smallest_budget(offer, remote=provider.traits.remote)
    needed = max(least, planned.best.expected_usd or Decimal(0))
    if balance < needed:
        raise Refused(
            f"{offer.provider}: the balance of ${balance:.2f} does not cover this job "
            f"(it needs about ${needed:.2f})",
            remedy="Add funds at the provider, or name a cheaper GPU.",
            code=Exit.NO_OFFER,
        )
    from orchestrator.submit import at_most_usd

    if balance < at_most_usd(planned.spec, offer):
        hours = balance / offer.price_usd_per_hour
        return _noted(planned, f"{offer.provider}: the balance of ${balance:.2f} "
                               f"lasts for {hours:.1f} h of this machine")  # fmt: skip
    return planned


def as_agreed(agreed: Plan, fresh: Plan) -> Plan:
    """Return the plan with the offers of now; raises Refused where the best became dearer."""
    old, new = agreed.best.offer, fresh.best.offer
    if new.price_usd_per_hour > old.price_usd_per_hour:
        raise Refused(
            f"the price rose from ${old.price_usd_per_hour}/h to ${new.price_usd_per_hour}/h "
            "while you were asked: your yes was for less, so nothing was rented.",
            remedy="Submit again to agree to the new price.",
            code=Exit.INTERRUPTED,
        )
    return replace(agreed, matching=fresh.matching)


def _noted(planned: Plan, note: str) -> Plan:
    return replace(planned, notes=(*planned.notes, note))


def _priced(offer: Offer, seconds: float, disk_gib: int) -> Decimal:
    rate = offer.price_usd_per_hour + storage_rate(offer, disk_gib)
    return rate * Decimal(str(seconds)) / 3600
