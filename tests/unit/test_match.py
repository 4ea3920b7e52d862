"""Offers against a requirement: cheapest first, one reason each, whatever the order."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.match import Requirement, match, same_gpu, why_not
from providers.base import Offer, OfferKey, Tier


def _offer(key="a", **changes):
    values = {
        "provider": "runpod", "key": OfferKey(key), "gpu": "RTX4090", "gpu_count": 1,
        "vram_gib": 24.0, "price_usd_per_hour": Decimal("0.74"),
    }  # fmt: skip
    return Offer(**{**values, **changes})


CPU = _offer("cpu", provider="local", gpu="CPU", gpu_count=0, vram_gib=0.0,
             price_usd_per_hour=Decimal(0), tier=Tier.OWN)  # fmt: skip


@pytest.mark.parametrize(
    ("need", "offer", "word"),
    [
        (Requirement(providers=("vast",)), _offer(), "gpu.providers asks for vast"),
        (Requirement(types=("A100",)), _offer(), "gpu.types asks for A100"),
        (Requirement(count=2), _offer(), "has 1 GPU, gpu.count is 2"),
        (Requirement(tiers=(Tier.SECURE,)), _offer(tier=Tier.COMMUNITY), "is community"),
        (Requirement(), _offer(interruptible=True), "may be called back"),
        (Requirement(max_price_usd_per_hour=Decimal("0.5")), _offer(), "above gpu.max_price"),
        (Requirement(), CPU, "has no GPU"),
        (Requirement(types=("CPU",), count=2), CPU, "has no GPU, gpu.count is 2"),
    ],
)
def test_each_reason(need, offer, word):
    reason = why_not(need, offer)
    assert reason is not None
    assert word in reason


@pytest.mark.parametrize(
    ("need", "offer"),
    [
        (Requirement(), _offer()),
        (Requirement(providers=("vast", "runpod")), _offer()),
        (Requirement(types=("rtx4090",)), _offer()),
        (Requirement(spot=True), _offer()),
        (Requirement(spot=True), _offer(interruptible=True)),
        (Requirement(max_price_usd_per_hour=Decimal("0.74")), _offer()),
        (Requirement(providers=("local",)), CPU),
        (Requirement(types=("cpu",)), CPU),
        (Requirement(providers=("local",), tiers=(Tier.SECURE,)), CPU),
    ],
)
def test_what_will_do(need, offer):
    assert why_not(need, offer) is None


def test_a_free_cpu_never_wins_unasked():
    matching = match(Requirement(), [CPU, _offer()])
    assert [quote.offer.key for quote in matching.quotes] == ["a"]
    assert [lost.offer.key for lost in matching.rejected] == ["cpu"]


def test_cheapest_first_and_ties_by_name():
    offers = [
        _offer("b"), _offer("a"), _offer("z", price_usd_per_hour=Decimal("0.10")),
    ]  # fmt: skip
    for order in itertools.permutations(offers):
        assert [q.offer.key for q in match(Requirement(), order).quotes] == ["z", "a", "b"]


@pytest.mark.parametrize(
    ("wanted", "have", "same"),
    [
        ("rtx 4090", "RTX4090", True),
        ("NVIDIA GeForce RTX 4090", "RTX4090", True),
        ("RTX 4090 D", "RTX4090", False),
        ("A100", "A100-80GB", True),
        ("A100", "A100-40GB", True),
        ("a100 80", "A100-80GB", True),
        ("A100-80GB", "A100-40GB", False),
        ("H200", "H200-NVL", False),
        ("H200", "H200", True),
        ("L40", "L40S", False),
        ("cpu", "CPU", True),
        ("", "CPU", False),
    ],
)
def test_spellings(wanted, have, same):
    assert same_gpu(wanted, have) is same


OFFERS = st.builds(
    Offer,
    provider=st.sampled_from(["local", "runpod", "vast"]),
    key=st.text(max_size=3).map(OfferKey),
    gpu=st.sampled_from(["CPU", "RTX4090", "A100 80"]),
    gpu_count=st.integers(0, 8),
    vram_gib=st.just(24.0),
    price_usd_per_hour=st.decimals(0, 50, places=2),
    interruptible=st.booleans(),
    tier=st.sampled_from(list(Tier)),
)


def _need(**wishes):
    """Hypothesis looks a class's type hints up, which takes seconds on a slow machine."""
    return Requirement(**wishes)


NEEDS = st.builds(
    _need,
    providers=st.sampled_from([(), ("local",), ("runpod", "vast")]),
    types=st.sampled_from([(), ("CPU",), ("rtx 4090",)]),
    count=st.integers(1, 4),
    max_price_usd_per_hour=st.none() | st.decimals(0, 50, places=2),
    tiers=st.sampled_from([(), (Tier.SECURE,)]),
    spot=st.booleans(),
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # of a slow machine
@given(NEEDS, st.lists(OFFERS, max_size=12), st.randoms())
def test_every_offer_is_in_exactly_one_place_whatever_the_order(need, offers, shuffler):
    matching = match(need, offers)
    assert len(matching.quotes) + len(matching.rejected) == len(offers)
    assert all(lost.reason for lost in matching.rejected)
    for quote in matching.quotes:
        price = quote.offer.price_usd_per_hour
        assert need.max_price_usd_per_hour is None or price <= need.max_price_usd_per_hour
        assert need.spot or not quote.offer.interruptible
    prices = [quote.offer.price_usd_per_hour for quote in matching.quotes]
    assert prices == sorted(prices)
    shuffled = list(offers)
    shuffler.shuffle(shuffled)
    assert [q.offer.price_usd_per_hour for q in match(need, shuffled).quotes] == prices
