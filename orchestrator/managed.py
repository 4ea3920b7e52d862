"""What a managed fine-tuning service would charge for the same tokens: a dated card, no offer.

Nothing is asked of the service: the card is copied by hand, and says when.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

# Together AI, supervised fine-tuning, USD per million tokens (training x epochs + evaluation),
# by billions of parameters up to: (adapter, full). From copies of together.ai/pricing; the middle
# adapter price was also met in a file of July 2026. Above the last line: on request.
SERVICE = "Together AI"
SOURCE = "together.ai/pricing"
DATE = "2026-07"
CARD: tuple[tuple[float, str, str], ...] = (
    (16.0, "0.48", "0.54"),
    (69.0, "1.50", "1.65"),
    (100.0, "2.90", "3.20"),
)
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Managed:
    """One service's price for the job: usd is for `tokens`, which it counts without padding."""

    service: str
    source: str
    date: str
    tokens: int
    usd_per_million_tokens: Decimal
    usd: Decimal


def managed(params: float, tokens: int, *, full: bool) -> Managed | None:
    """Return the card's price for so many tokens of a model of `params`; None above the card."""
    for up_to, adapter, whole in CARD:
        if params <= up_to * 1e9:
            each = Decimal(whole if full else adapter)
            usd = each * tokens / MILLION
            return Managed(SERVICE, SOURCE, DATE, tokens, each, usd)
    return None
