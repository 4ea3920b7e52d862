"""A job's size for people and for programs: the memory picture, the quotes, what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.memory import Footprint
from jobs.memory_levers import Lever, levers
from jobs.throughput import BANDS
from orchestrator.managed import Managed
from orchestrator.match import Matching, Quote
from orchestrator.report_text import Column, Screen, exact_money, money, number, table, wrap

if TYPE_CHECKING:
    from orchestrator.planning import Change
    from orchestrator.sized import Fit, Sized

SHOWN_LEVERS = 5
BAR_COLUMNS = 28


def memory_lines(found: Footprint, screen: Screen, title: str = "one GPU") -> list[str]:
    """Return the peak on one GPU, part by part of the moment that decides it, as bars."""
    head = f"Memory on {title}"
    peak = f"peak {found.device_gib:.1f} GiB ({found.low_gib:.1f} - {found.high_gib:.1f})"
    lines = [f"{head}   {peak}", f"  decided by the {found.binding.replace('_', ' ')} phase:"]
    parts = [(part.name, part.gib) for part in found.components]
    parts.append(("allocator", max(0.0, found.reserved_gib - found.allocated_gib)))
    parts.append(("CUDA context", max(0.0, found.device_gib - found.reserved_gib)))
    parts = [(name, gib) for name, gib in parts if gib >= 0.05]
    most = max(gib for _, gib in parts)
    width = max(4, min(BAR_COLUMNS, screen.width - 36))
    for name, gib in parts:
        lines.append(f"  {name:22} {gib:6.1f}  {'#' * max(1, round(width * gib / most))}")
    return lines


def lever_lines(found: Sequence[Lever], screen: Screen) -> list[str]:
    """Return what would lower the peak, the largest effect first."""
    lines = []
    for lever in found[:SHOWN_LEVERS]:
        kept = "" if lever.same_result else "; changes the result"
        lines += wrap(
            f"{lever.name}: peak {lever.device_gib:.1f} GiB, saves {lever.saves_gib:.1f} "
            f"({lever.costs}{kept})",
            screen.width,
            "  ",
        )
    return ["What would lower it:", *lines] if lines else []


def marks(matching: Matching) -> dict[int, str]:
    """Return id of a quote -> "cheapest", "fastest", "balanced", or several of them."""
    found: dict[int, list[str]] = {}
    for word in ("cheapest", "fastest", "balanced"):
        quote = getattr(matching, word)
        if quote is not None:
            found.setdefault(id(quote), []).append(word)
    return {key: ", ".join(words) for key, words in found.items()}


def band(fit: Fit | None) -> str:
    """Return "2,500 ±25 %": tokens per second of the whole machine with its band."""
    if fit is None or fit.tokens_per_s is None:
        return "-"
    if fit.confidence not in BANDS:
        return number(fit.tokens_per_s)
    low, high = BANDS[fit.confidence]
    return f"{fit.tokens_per_s:,.0f} ±{50 * (high - low):.0f} %"


def fits_words(quote: Quote) -> str:
    """Return "20.1 of 23.5": the band's upper figure, and what the card has to give."""
    if quote.fit is None:
        return "?"
    return f"{quote.fit.need.vram_gib:.1f} of {quote.fit.usable_gib:.1f}"


def cost_words(quote: Quote) -> str:
    """Return the expected cost to finish."""
    return "-" if quote.expected_usd is None else money(quote.expected_usd)


def hours_words(quote: Quote) -> str:
    """Return the expected hours to finish."""
    return "-" if quote.hours is None else f"{quote.hours:.1f}"


COLUMNS = (
    Column("", floor=1, keep=92),
    Column("GPU", floor=11, keep=95),
    Column("where", floor=22, keep=50),
    Column("GiB a GPU", floor=14, keep=55),
    Column("tokens/s", right=True, keep=60),
    Column("hours", right=True, keep=80),
    Column("$/h", right=True, keep=70),
    Column("cost", right=True),
    Column("", floor=18, keep=65),
)


def offers_table(
    matching: Matching, screen: Screen, *, shown: int, shown_rejected: int, names: Any
) -> list[str]:
    """Return the quotes best first with their marks, and below them why the others lost.

    names: (machine, source), two functions of an offer. Marked quotes are always shown.
    """
    machine, source = names
    marked = marks(matching)
    rows = []
    for at, quote in enumerate(matching.quotes):
        if at >= shown and id(quote) not in marked:
            continue
        tried = "tried first" if at == 0 and id(quote) not in marked else ""
        rows.append(
            (
                "*" if at == 0 else "",
                machine(quote.offer),
                source(quote.offer),
                fits_words(quote),
                band(quote.fit),
                hours_words(quote),
                money(quote.offer.price_usd_per_hour).removeprefix("$"),
                cost_words(quote),
                marked.get(id(quote), tried),
            )
        )
    lines = table(COLUMNS, rows, screen.width) if rows else []
    return [*lines, *rejected_lines(matching, screen, shown_rejected, machine)]


def rejected_lines(matching: Matching, screen: Screen, shown: int, machine: Any) -> list[str]:
    """Return why the others lost: one line a reason, with the cards it holds for."""
    reasons: dict[str, list[str]] = {}
    for lost in matching.rejected:
        reasons.setdefault(lost.reason, []).append(machine(lost.offer))
    lines = []
    for reason, cards in list(reasons.items())[:shown]:
        names = list(dict.fromkeys(cards))
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines += wrap(f"not {', '.join(names[:3])}{rest}: {reason}", screen.width, "   ")
    more = len(reasons) - shown
    return [*lines, f"   and {more} other reasons: --json has every offer"] if more > 0 else lines


def managed_line(found: Managed) -> str:
    """Return what a managed service would cost, clearly marked as a card's figure."""
    return (
        f"managed API, not an offer ({found.service}, price card of {found.date}, {found.source}): "
        f"about {money(found.usd)} for the same {_many(found.tokens)} tokens"
    )


def _many(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 100_000 else f"{count:,}"


def footprint_body(found: Footprint, exact_gib: float | None = None) -> dict[str, Any]:
    """Return a footprint as plain data."""
    return {
        "device_gib": found.device_gib,
        "low_gib": found.low_gib,
        "high_gib": found.high_gib,
        "allocated_gib": found.allocated_gib,
        "exact_allocated_gib": exact_gib,
        "reserved_gib": found.reserved_gib,
        "floor_gib": found.floor_gib,
        "binding": found.binding,
        "confidence": found.confidence,
        "components": [{"name": p.name, "gib": p.gib} for p in found.components],
        "phases": [{"name": name, "gib": found.phase_gib(name)} for name in found.phases],
    }


def requirement_body(sized: Sized, assumptions: Sequence[str]) -> dict[str, Any] | None:
    """Return what one GPU, and the machine around it, must have."""
    need = sized.need()
    if isinstance(need, str):
        return None
    tokens = sized.tokens
    return {
        "vram_gib": need.vram_gib,
        "vram_floor_gib": need.vram_floor_gib,
        "compute_capability": need.capability,
        "disk_gib": need.disk_gib,
        "host_ram_gib": need.host_ram_gib,
        "tokens_trained": None if tokens is None else tokens.trained,
        "tokens_evaluated": None if tokens is None else tokens.evaluated,
        "tokens_of_data": None if tokens is None else tokens.data,
        "tokens_assumed": tokens is None or tokens.assumed,
        "assumptions": [*assumptions, *need.footprint.assumptions],
    }


def quote_body(quote: Quote, word: str) -> dict[str, Any]:
    """Return what is known of a quote beside its offer."""
    fit = quote.fit
    return {
        "expected_usd": None if quote.expected_usd is None else exact_money(quote.expected_usd),
        "hours": quote.hours,
        "low_hours": None if fit is None else fit.low_h,
        "high_hours": None if fit is None else fit.high_h,
        "tokens_per_s": None if fit is None else fit.tokens_per_s,
        "confidence": None if fit is None else fit.confidence or None,
        "strategy": None if fit is None else fit.strategy,
        "needs_gib": None if fit is None else fit.need.vram_gib,
        "usable_gib": None if fit is None else fit.usable_gib,
        "marks": word.split(", ") if word else [],
    }


def lever_bodies(sized: Sized) -> list[dict[str, Any]]:
    """Return every lever as plain data."""
    return [
        {
            "name": lever.name,
            "changes": ", ".join(f"{key}={value}" for key, value in lever.changes),
            "saves_gib": lever.saves_gib,
            "device_gib": lever.device_gib,
            "same_result": lever.same_result,
            "costs": lever.costs,
        }
        for lever in levers(sized.work)
    ]


def change_bodies(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return what would make an offer fit, with the price after it."""
    return [
        {
            "change": change.words,
            "gpu": change.quote.offer.gpu,
            "gpu_count": change.quote.offer.gpu_count,
            "price_usd_per_hour": exact_money(change.quote.offer.price_usd_per_hour),
            "expected_usd": None
            if change.quote.expected_usd is None
            else exact_money(change.quote.expected_usd),
        }
        for change in changes
    ]


def managed_body(found: Managed | None) -> dict[str, Any] | None:
    """Return the managed service's price as plain data."""
    if found is None:
        return None
    return {
        "service": found.service,
        "source": found.source,
        "date": found.date,
        "tokens": found.tokens,
        "usd_per_million_tokens": exact_money(found.usd_per_million_tokens),
        "expected_usd": exact_money(found.usd),
    }
