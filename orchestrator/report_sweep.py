"""What the sweep found, and what the providers offer: findings and offers in, text or data out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.plain import harmless
from orchestrator.redact import told
from orchestrator.report_json import document
from orchestrator.report_plan import machine, offer_body, source
from orchestrator.report_text import Column, Screen, money, table, wrap
from providers.errors import ProviderError

if TYPE_CHECKING:
    from orchestrator.sweep import SweepReport
    from providers.base import Offer, Provider

# Kinds of `sweep.Kind` after which a machine of ours may go on billing until somebody acts.
BILLS = frozenset({"orphan", "unstamped"})
SHOWN_OFFERS = 12  # of one provider; --json has all


def bills(report: SweepReport) -> bool:
    """Return whether a machine was found that nobody ends."""
    return any(str(finding.kind) in BILLS for finding in report.findings)


def sweep_lines(report: SweepReport, asked: Sequence[str], screen: Screen) -> list[str]:
    """Return a line for each finding, or that there is none."""
    if not report.findings:
        return [f"nothing that should not be there.  asked: {', '.join(asked) or 'nobody'}"]
    lines: list[str] = []
    for finding in report.findings:
        head = f"{finding.kind:<11} {finding.provider}"
        text = f"{finding.instance_id or ''} {harmless(finding.text)}".strip()
        first, *rest = wrap(f"{head}  {text}", screen.width)
        lines.append(screen.accent(first) if str(finding.kind) in BILLS else first)
        lines += [f"    {line}" for line in rest]
    if bills(report):
        lines.append("gpujob sweep --unknown end ends machines of yours that no job here knows.")
    return lines


def sweep_document(report: SweepReport, now: float) -> dict[str, Any]:
    """Return the answer of `gpujob sweep --json`."""
    return document(
        "sweep",
        now,
        findings=[
            {
                "kind": str(finding.kind),
                "provider": finding.provider,
                "instance_id": finding.instance_id,
                "label": finding.label,
                "job_id": finding.job_id,
                "text": finding.text,
            }
            for finding in report.findings
        ],
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What one provider said when asked for its offers."""

    name: str
    provider: Provider
    offers: tuple[Offer, ...]
    error: str


def ask(providers: Mapping[str, Provider]) -> list[Answer]:
    """Return each provider's offers, cheapest first, or its words. n calls."""
    answers = []
    for name, provider in providers.items():
        try:
            offers = sorted(provider.offers(), key=lambda offer: offer.price_usd_per_hour)
        except ProviderError as error:
            answers.append(Answer(name, provider, (), told(error, kind=False)))
        else:
            answers.append(Answer(name, provider, tuple(offers), ""))
    return answers


def providers_lines(answers: Sequence[Answer], screen: Screen) -> list[str]:
    """Return a paragraph for each provider: what it can promise, and what it has."""
    if not answers:
        return ["no provider is set up."]
    lines: list[str] = []
    for answer in answers:
        proof = "its end can be proven" if answer.provider.traits.proves_absence else (
            "its end CANNOT be proven"
        )  # fmt: skip
        lines += wrap(f"{answer.name}   {proof}", screen.width)
        if answer.error:
            lines += wrap(harmless(answer.error), screen.width, "  ")
        lines += [f"  {line}" for line in _offer_table(answer.offers, screen)]
    return lines


def _offer_table(offers: Sequence[Offer], screen: Screen) -> list[str]:
    if not offers:
        return ["nothing for hire now"]
    columns = (Column("GPU", floor=8), Column("where", floor=8, keep=60), Column("$/h", right=True))
    rows = [
        (
            machine(offer),
            source(offer),
            money(offer.price_usd_per_hour).removeprefix("$")
            + (" notional" if offer.price_is_notional else ""),
        )
        for offer in offers[:SHOWN_OFFERS]
    ]
    lines = table(columns, rows, screen.width - 2)
    more = len(offers) - SHOWN_OFFERS
    return [*lines, f"and {more} more"] if more > 0 else lines


def providers_document(answers: Sequence[Answer], now: float) -> dict[str, Any]:
    """Return the answer of `gpujob providers --json`."""
    return document(
        "providers",
        now,
        providers=[
            {
                "name": answer.name,
                "error": answer.error or None,
                "proves_absence": answer.provider.traits.proves_absence,
                "remote": answer.provider.traits.remote,
                "list_lag_s": answer.provider.traits.list_lag_s,
                "boot_timeout_s": answer.provider.traits.boot_timeout_s,
                "billing_step_s": answer.provider.traits.billing_step_s,
                "offers": [offer_body(offer) for offer in answer.offers],
            }
            for answer in answers
        ],
    )
