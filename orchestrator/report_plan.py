"""What a person sees before anything is rented: the offer, the question, and the dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.memory_levers import levers
from jobs.plain import harmless
from orchestrator.managed import Managed, managed
from orchestrator.report import still_billing_lines
from orchestrator.report_json import document
from orchestrator.report_limits import limit_document, limit_words
from orchestrator.report_size import (
    change_bodies,
    footprint_body,
    lever_bodies,
    lever_lines,
    managed_body,
    managed_line,
    marks,
    memory_lines,
    offers_table,
    quote_body,
    requirement_body,
)
from orchestrator.report_text import Screen, clip, exact_money, money, wrap
from orchestrator.report_yours import yours_lines
from orchestrator.submit import SHOWN_REJECTED, Plan, at_most_usd, change_words
from orchestrator.views import JobView
from providers.base import BY_HAND, Offer, Tier
from providers.catalogue import span

SHOWN_QUOTES = 8
INCLUDED = (
    "Hours and cost include boot, environment, model download, evaluation and push; storage where "
    "it is billed apart."
)


def offer_lines(planned: Plan, screen: Screen) -> list[str]:
    """Return "support-tone   RTX 4090 24, runpod secure EU-RO-1, $0.74/h   budget $8.00"."""
    spec, offer = planned.spec, planned.best.offer
    parts = [harmless(spec.name), f"{machine(offer)}, {source(offer)}, {price(offer)}"]
    if spec.limits.budget_usd is not None:
        parts.append(f"budget {money(spec.limits.budget_usd)}")
    lines = wrap("   ".join(parts), screen.width)
    for said in planned.data_lines:
        lines += wrap(harmless(said), screen.width, "  ")
    lines += wrap(f"ends early when {limit_words(planned)}", screen.width, "  ")
    for note in planned.notes:
        lines += wrap(f"note: {note}", screen.width, "  ")
    for name, words in planned.unreachable.items():
        lines += wrap(f"{name} did not answer: {harmless(words)}", screen.width, "  ")
    if planned.keep_on_failure_s > 0:
        minutes = f"{planned.keep_on_failure_s / 60:g}"
        kept = f"note: a machine whose training failed is kept for {minutes} min"
        lines += wrap(f"{kept}, at {price(offer)}, then shut down", screen.width, "  ")
    size = short_size(planned)
    return [*lines, *wrap(size, screen.width, "  ")] if size else lines


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
    """Return the table of quotes, best first, and why each other offer lost."""
    return offers_table(
        planned.matching,
        screen,
        shown=SHOWN_QUOTES,
        shown_rejected=SHOWN_REJECTED,
        names=(machine, source),
    )


def size_lines(planned: Plan, screen: Screen) -> list[str]:
    """Return the memory picture, the assumptions, the quotes, the managed service's price."""
    sized = planned.sized
    lines: list[str] = []
    if sized is not None:
        need = sized.need()
        if not isinstance(need, str):
            assumptions = planned.need.assumptions if planned.need is not None else ()
            lines += [*memory_lines(need.footprint, screen), ""]
            lines += lever_lines(levers(sized.work), screen)
            lines += ["Assumed:"]
            for words in (*assumptions, *need.footprint.assumptions):
                lines += wrap(words, screen.width, "  ")
            lines.append("")
    lines += [*quote_lines(planned, screen), ""]
    if planned.listed:
        oldest, newest = span()
        lines += wrap(
            f"list prices of RunPod, copied {oldest} to {newest}: no provider with GPUs is set up "
            "here, so nothing of these is for hire now",
            screen.width,
        )
    price = managed_of(planned)
    if price is not None:
        lines += wrap(managed_line(price), screen.width)
    if sized is not None:
        lines += wrap(INCLUDED, screen.width)
    return lines


def short_size(planned: Plan) -> str:
    """Return one line for the submit's preview: memory and cost to finish. Empty if not known."""
    fit = planned.best.fit
    if fit is None:
        return ""
    found = fit.need.footprint
    words = (
        f"needs {found.device_gib:.1f} GiB a GPU ({found.low_gib:.1f} - {found.high_gib:.1f}), "
        f"has {fit.usable_gib:.1f}"
    )
    if fit.hours is None:
        return words
    cost = f", about {money(planned.best.expected_usd)}" if planned.best.expected_usd else ""
    return f"{words}; {fit.hours:.1f} h ({fit.low_h:.1f} - {fit.high_h:.1f}) to finish{cost}"


def managed_of(planned: Plan) -> Managed | None:
    """Return what a managed service would charge; None where the tokens are not known."""
    sized = planned.sized
    if sized is None or sized.tokens is None:
        return None
    tokens = sized.tokens.data + sized.tokens.evaluated
    return managed(sized.work.architecture.params, tokens, full=sized.work.method == "full")


def dry_run_lines(planned: Plan, axolotl_yaml: str, screen: Screen) -> list[str]:
    """Return all that a submit would do, and the Axolotl file; nothing was started."""
    lines = offer_lines(planned, screen)
    most = money(at_most_usd(planned.spec, planned.best.offer))
    after = "yours to close" if planned.best.offer.provider == BY_HAND else "shut down"
    lines.append(clip(f"  at most {most}, then it is {after}", screen.width))
    lines += ["", *quote_lines(planned, screen), "", *axolotl_lines(axolotl_yaml)]
    lines += ["nothing was started: this is a dry run."]
    return lines


def axolotl_lines(axolotl_yaml: str) -> list[str]:
    """Return the Axolotl file as a screen shows it."""
    head = "# Axolotl's configuration on the machine; <folder> is the attempt's own"
    return [head, *axolotl_yaml.rstrip("\n").splitlines(), ""]


def plan_lines(planned: Plan, screen: Screen) -> list[str]:
    """Return the answer of `gpujob plan`."""
    spec = planned.spec
    head = f"{harmless(spec.name)}   {spec.method} of {harmless(spec.model)}"
    lines = wrap(head, screen.width)
    for said in planned.data_lines:
        lines += wrap(harmless(said), screen.width, "  ")
    for note in planned.notes:
        lines += wrap(f"note: {harmless(note)}", screen.width, "  ")
    for name, words in planned.unreachable.items():
        lines += wrap(f"{name} did not answer: {harmless(words)}", screen.width, "  ")
    lines += wrap(f"ends early when {limit_words(planned)}", screen.width, "  ")
    lines += ["", *size_lines(planned, screen)]
    if not planned.matching.quotes:
        lines += ["", screen.accent("no offer fits this job.")]
        for change in planned.changes:
            lines += wrap(f"would fit with {change_words(change)}", screen.width, "  ")
    return lines


def plan_document(
    planned: Plan, axolotl_yaml: str | None, now: float, *, exact_gib: float | None = None
) -> dict[str, Any]:
    """Return the answer of `gpujob plan --json` and of `gpujob submit --dry-run --json`."""
    spec = planned.spec
    first = planned.matching.quotes[0].offer if planned.matching.quotes else None
    return document(
        "plan",
        now,
        name=spec.name,
        budget_usd=None if spec.limits.budget_usd is None else exact_money(spec.limits.budget_usd),
        at_most_usd=None if first is None else exact_money(at_most_usd(spec, first)),
        limits=limit_document(planned),
        notes=list(planned.notes),
        data=dict(planned.data) or None,
        unreachable=dict(planned.unreachable),
        **size_body(planned, exact_gib),
        axolotl_yaml=axolotl_yaml,
    )


def size_body(planned: Plan, exact_gib: float | None = None) -> dict[str, Any]:
    """Return the keys that `plan` and `size` have in common."""
    sized, matching = planned.sized, planned.matching
    marked = marks(matching)
    need = None if sized is None else sized.need()
    assumptions = planned.need.assumptions if planned.need is not None else ()
    return {
        "list_prices": planned.listed,
        "footprint": None
        if need is None or isinstance(need, str)
        else footprint_body(need.footprint, exact_gib),
        "requirement": None if sized is None else requirement_body(sized, assumptions),
        "quotes": [
            {**offer_body(quote.offer), **quote_body(quote, marked.get(id(quote), ""))}
            for quote in matching.quotes
        ],
        "rejected": [
            {**offer_body(lost.offer), "reason": lost.reason} for lost in matching.rejected
        ],
        "levers": [] if sized is None else lever_bodies(sized),
        "changes": change_bodies(planned.changes),
        "managed": managed_body(managed_of(planned)),
    }


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
