"""What a person sees before anything is rented: the offer, the question, and the dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.report import still_billing_lines
from orchestrator.report_json import document
from orchestrator.report_text import Column, Screen, clip, exact_money, harmless, money, table, wrap
from orchestrator.report_yours import yours_lines
from orchestrator.submit import SHOWN_REJECTED, Plan, at_most_usd
from orchestrator.views import JobView
from providers.base import BY_HAND, Offer, Tier

SHOWN_QUOTES = 8


def offer_lines(planned: Plan, screen: Screen) -> list[str]:
    """Return "support-tone   RTX 4090 24, runpod secure EU-RO-1, $0.74/h   budget $8.00"."""
    spec, offer = planned.spec, planned.best.offer
    parts = [harmless(spec.name), f"{machine(offer)}, {source(offer)}, {price(offer)}"]
    if spec.limits.budget_usd is not None:
        parts.append(f"budget {money(spec.limits.budget_usd)}")
    lines = wrap("   ".join(parts), screen.width)
    for said in planned.data_lines:
        lines += wrap(harmless(said), screen.width, "  ")
    for note in planned.notes:
        lines += wrap(f"note: {note}", screen.width, "  ")
    for name, words in planned.unreachable.items():
        lines += wrap(f"{name} did not answer: {harmless(words)}", screen.width, "  ")
    return lines


def question(planned: Plan) -> str:
    """Return the question before money is spent, with the most that it can come to."""
    most = money(at_most_usd(planned.spec, planned.best.offer))
    expected = planned.best.expected_usd
    known = f"expected {money(expected)}, " if expected is not None else ""
    if planned.best.offer.provider == BY_HAND:
        return f"  Use it?  {known}at most {most} by its end, then it is yours to close   [y/N] "
    return f"  Rent it?  {known}at most {most}, then it is shut down   [y/N] "


def machine(offer: Offer) -> str:
    """Return "2x RTX 4090 24": count, card, GiB of one."""
    count = f"{offer.gpu_count}x " if offer.gpu_count > 1 else ""
    size = f"{offer.vram_gib:.0f}"
    memory = f" {size}" if offer.vram_gib and size not in offer.gpu else ""
    return f"{count}{offer.gpu}{memory}"


def source(offer: Offer) -> str:
    """Return "runpod secure EU-RO-1", with "spot" where it may be called back."""
    tier = "" if offer.tier is Tier.OWN else str(offer.tier)
    words = [offer.provider, tier, offer.region, "spot" if offer.interruptible else ""]
    return " ".join(word for word in words if word)


def price(offer: Offer) -> str:
    """Return "$0.74/h", and says so where the price is made up."""
    notional = " notional, nobody bills it" if offer.price_is_notional else ""
    return f"{money(offer.price_usd_per_hour)}/h{notional}"


def quote_lines(planned: Plan, screen: Screen) -> list[str]:
    """Return the table of quotes, cheapest first, and why each other offer lost."""
    columns = (
        Column("", floor=1, keep=90),
        Column("GPU", floor=8, keep=95),
        Column("where", floor=12, keep=60),
        Column("$/h", right=True),
        Column("", floor=10, keep=50),
    )
    rows = [
        (
            "*" if i == 0 else "",
            machine(quote.offer),
            source(quote.offer),
            money(quote.offer.price_usd_per_hour).removeprefix("$"),
            "tried first" if i == 0 else "",
        )
        for i, quote in enumerate(planned.matching.quotes[:SHOWN_QUOTES])
    ]
    rows += [
        (
            "",
            machine(lost.offer),
            source(lost.offer),
            money(lost.offer.price_usd_per_hour).removeprefix("$"),
            lost.reason,
        )
        for lost in planned.matching.rejected[:SHOWN_REJECTED]
    ]
    return table(columns, rows, screen.width)


def dry_run_lines(planned: Plan, axolotl_yaml: str, screen: Screen) -> list[str]:
    """Return all that a submit would do, and the Axolotl file; nothing was started."""
    lines = offer_lines(planned, screen)
    most = money(at_most_usd(planned.spec, planned.best.offer))
    after = "yours to close" if planned.best.offer.provider == BY_HAND else "shut down"
    lines.append(clip(f"  at most {most}, then it is {after}", screen.width))
    lines += ["", *quote_lines(planned, screen), ""]
    lines.append("# Axolotl's configuration on the machine; <folder> is the attempt's own")
    lines += axolotl_yaml.rstrip("\n").splitlines()
    lines += ["", "nothing was started: this is a dry run."]
    return lines


def plan_document(planned: Plan, axolotl_yaml: str, now: float) -> dict[str, Any]:
    """Return the answer of `gpujob submit --dry-run --json`."""
    spec = planned.spec
    return document(
        "plan",
        now,
        name=spec.name,
        budget_usd=None if spec.limits.budget_usd is None else exact_money(spec.limits.budget_usd),
        at_most_usd=exact_money(at_most_usd(spec, planned.best.offer)),
        notes=list(planned.notes),
        data=dict(planned.data) or None,
        unreachable=dict(planned.unreachable),
        quotes=[
            {
                **offer_body(quote.offer),
                "expected_usd": None
                if quote.expected_usd is None
                else exact_money(quote.expected_usd),
            }
            for quote in planned.matching.quotes
        ],
        rejected=[
            {**offer_body(lost.offer), "reason": lost.reason} for lost in planned.matching.rejected
        ],
        axolotl_yaml=axolotl_yaml,
    )


def offer_body(offer: Offer) -> dict[str, Any]:
    """Return one offer as plain data."""
    return {
        "provider": offer.provider,
        "key": str(offer.key),
        "gpu": offer.gpu,
        "gpu_count": offer.gpu_count,
        "vram_gib": offer.vram_gib,
        "price_usd_per_hour": exact_money(offer.price_usd_per_hour),
        "price_is_notional": offer.price_is_notional,
        "interruptible": offer.interruptible,
        "region": offer.region,
        "tier": str(offer.tier),
    }


def billing_first(jobs: Sequence[JobView], now: float, screen: Screen) -> list[str]:
    """Return what still bills, above the offer: nobody should rent more without seeing it."""
    lines = still_billing_lines(jobs, now, screen) + yours_lines(jobs, now, screen)
    return [*lines, ""] if lines else []
