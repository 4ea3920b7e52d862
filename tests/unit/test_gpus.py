"""The GPU table: whole, plausible against physics, and found by every name it goes by."""

from __future__ import annotations

import pytest

from providers.gpus import _BY_KEY, GPUS, canonical, lookup


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("rtx 4090", "RTX4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("NVIDIA A10G", "A10G-24GB"),
        # near misses that are other machines
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", None),
        ("NVIDIA A10-8Q", None),
        ("NVIDIA A100", None),  # 40 or 80: not said, so not guessed
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("", None),
    ],
)
def test_vendor_names(vendor: str, expected: str | None) -> None:
    assert canonical(vendor) == expected
    facts = lookup(vendor)
    assert (facts.name if facts else None) == expected


def test_every_name_finds_itself_and_every_alias_a_row() -> None:
    assert all(canonical(name) == name for name in GPUS)
    assert set(_BY_KEY.values()) == set(GPUS)
    assert len(GPUS) == 32


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda g: g.name)
def test_figures_are_plausible(gpu) -> None:
    assert 0.9 * gpu.vram_gib < gpu.usable_gib < gpu.vram_gib
    # dense 16-bit FLOP per byte of bandwidth: data sheets lie between 35 and 430
    assert 35 < gpu.bf16_tflops * 1000 / gpu.memory_gb_per_s < 430
    assert gpu.capability is None or (7, 0) <= gpu.capability <= (12, 0)


@pytest.mark.parametrize(
    ("name", "at_most"),
    [("A100-80GB", 79.1), ("A100-40GB", 39.4), ("RTX4090", 23.6), ("L40S", 44.5)],
)
def test_usable_memory_does_not_exceed_a_reading(name: str, at_most: float) -> None:
    assert at_most - 0.3 <= GPUS[name].usable_gib <= at_most


def test_bf16_begins_with_ampere() -> None:
    assert {g.name for g in GPUS.values() if not g.has_bf16} == {"T4", "V100-32GB"}
