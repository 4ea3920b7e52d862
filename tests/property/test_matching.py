"""What must hold of every match of a sized job, whatever is for hire."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.architectures import find
from jobs.sizing import Tokens
from jobs.workload import Workload
from orchestrator.match import Requirement, match
from orchestrator.sized import Sized
from providers.base import Offer, OfferKey, Tier
from providers.gpus import GPUS

WORKS = tuple(
    Workload(find(name), method=method, micro_batch_size=2, gradient_accumulation_steps=4)
    for name, method in (
        ("Llama-3.1-8B", "qlora"), ("Llama-3.1-8B", "lora"), ("Llama-3.1-8B", "full"),
        ("Llama-2-70B", "qlora"), ("Llama-2-70B", "full"),
    )
)  # fmt: skip
# One instance each: what it remembers of a card must never depend on what was asked before.
SIZED = tuple(Sized(work, Tokens(20_000_000, 0, 19_000_000, 1000, "x")) for work in WORKS)
OFFERS = st.builds(
    lambda gpu, count, cents, spot, disk, key: Offer(
        "runpod", OfferKey(key), gpu, count, GPUS[gpu].vram_gib, Decimal(cents) / 100,
        interruptible=spot, disk_gib=disk,
    ),
    gpu=st.sampled_from(sorted(GPUS)),
    count=st.integers(1, 8),
    cents=st.integers(1, 5000),
    spot=st.booleans(),
    disk=st.none() | st.floats(10, 2000),
    key=st.text("abc", min_size=1, max_size=4),
)  # fmt: skip


def _need(**wishes):
    """Hypothesis looks a class's type hints up, which takes seconds on a slow machine."""
    return Requirement(**wishes)


NEEDS = st.builds(
    _need,
    count=st.none() | st.integers(1, 8),
    spot=st.booleans(),
    sized=st.sampled_from(SIZED),
    prefer=st.sampled_from(("cost", "time", "balanced")),
    max_price_usd_per_hour=st.none() | st.decimals(1, 50, places=2),
    budget_usd=st.none() | st.decimals(1, 500, places=2),
    max_hours=st.none() | st.floats(0.5, 100),
)
PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])  # of a slow machine
LISTS = st.lists(OFFERS, max_size=14, unique_by=lambda offer: offer.key)


@PATIENT
@given(NEEDS, LISTS, st.randoms())
def test_the_order_of_offers_means_nothing(need, offers, shuffler):
    shuffled = list(offers)
    shuffler.shuffle(shuffled)
    assert match(need, shuffled) == match(need, offers)


@PATIENT
@given(NEEDS, LISTS)
def test_every_offer_is_quoted_or_has_one_reason_and_no_quote_is_below_the_need(need, offers):
    matching = match(need, offers)
    seen = [q.offer.key for q in matching.quotes] + [r.offer.key for r in matching.rejected]
    assert sorted(seen) == sorted(offer.key for offer in offers)
    assert all(lost.reason and "\n" not in lost.reason for lost in matching.rejected)
    for quote in matching.quotes:
        offer, fit = quote.offer, quote.fit
        assert fit is not None
        assert fit.need.vram_gib <= GPUS[offer.gpu].usable_gib
        assert fit.need.footprint.high_gib <= GPUS[offer.gpu].usable_gib
        assert fit.work.gpus == offer.gpu_count
        capability = GPUS[offer.gpu].capability
        assert capability is not None
        assert capability >= (8, 0)
        assert offer.disk_gib is None or offer.disk_gib >= fit.need.disk_gib
        assert quote.expected_usd is not None
        assert need.budget_usd is None or quote.expected_usd <= need.budget_usd
        assert quote.hours is not None
        assert need.max_hours is None or quote.hours <= need.max_hours
        # never cheaper than the bare training at that price
        assert quote.expected_usd > 0


@PATIENT
@given(NEEDS, LISTS, OFFERS)
def test_one_more_offer_never_raises_the_best_cost(need, offers, more):
    need = replace(need, prefer="cost")
    before, after = match(need, offers).quotes, match(need, [*offers, more]).quotes
    if before:
        assert after
        assert after[0].expected_usd <= before[0].expected_usd  # type: ignore[operator]


@PATIENT
@given(NEEDS, LISTS)
def test_the_ranking_is_what_was_preferred(need, offers):
    quotes = match(need, offers).quotes
    costs = [q.expected_usd or Decimal(0) for q in quotes]
    hours = [q.hours or 0.0 for q in quotes]
    if need.prefer == "cost":
        assert costs == sorted(costs)
    elif need.prefer == "time":
        assert hours == sorted(hours)


def test_spot_pays_for_its_interruptions_and_is_no_own_tier():
    offer = Offer("r", OfferKey("a"), "A100-80GB", 1, 80.0, Decimal(1), tier=Tier.SECURE)
    need = Requirement(sized=SIZED[0], spot=True)
    plain = match(need, [offer]).quotes[0]
    spot = match(need, [replace(offer, interruptible=True)]).quotes[0]
    assert plain.expected_usd is not None
    assert spot.expected_usd is not None
    assert spot.expected_usd > plain.expected_usd
