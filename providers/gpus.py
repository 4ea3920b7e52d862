"""Facts of the GPUs that are for hire: a table, canonical names, and vendors' names for them.

Sources. Memory as sold, dense 16-bit tensor rate (no sparsity), bandwidth, NVLink: vendors' data
sheets; for GeForce cards the rate with fp32 accumulation, which training uses; the SXM shape where
a card has two. Usable memory: the lowest total that CUDA or HIP reported in public out-of-memory
messages for that card ("GPU 0 has a total capacity of ..."), rounded down; where none was found
(marked ~) the share of the like: 0.927 for GDDR with ECC on, 0.985 for HBM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU. Memory in GiB, rates in TFLOP/s and GB/s (10**9 bytes).

    vram_gib: as sold. usable_gib: all that a process can have of it, its CUDA context included.
    capability: CUDA compute capability; None where CUDA does not run (AMD).
    bf16_tflops: dense bf16 rate; on cards without bf16 (`has_bf16` False) their fp16 rate.
    """

    name: str
    vram_gib: float
    usable_gib: float
    capability: tuple[int, int] | None
    bf16_tflops: float
    memory_gb_per_s: float
    nvlink_gb_per_s: float

    @property
    def has_bf16(self) -> bool:
        """Return whether its tensor cores know bf16: CUDA from 8.0 on, and AMD's CDNA."""
        return self.capability is None or self.capability >= (8, 0)


# name | sold GiB | usable GiB | capability | 16-bit TFLOP/s | GB/s | NVLink GB/s
_TABLE = """
T4             |  16 |  14.5  |  7.5 |   65 |  320 |    0
V100-32GB      |  32 |  31.7  |  7.0 |  125 |  900 |  300
L4             |  24 |  22.0  |  8.9 |  121 |  300 |    0
A10            |  24 |  22.0  |  8.6 |  125 |  600 |    0
A10G-24GB      |  24 |  22.0  |  8.6 |   70 |  600 |    0
RTX3090        |  24 |  23.5  |  8.6 |   71 |  936 |  112
RTX4090        |  24 |  23.5  |  8.9 |  165 | 1008 |    0
RTX5090        |  32 |  31.3  | 12.0 |  210 | 1792 |    0
A5000          |  24 |  23.5  |  8.6 |  111 |  768 |  112
A40            |  48 |  44.3  |  8.6 |  150 |  696 |  112
A6000          |  48 |  47.2  |  8.6 |  155 |  768 |  112
RTX6000Ada     |  48 |  47.2  |  8.9 |  364 |  960 |    0
L40            |  48 |  44.3  |  8.9 |  181 |  864 |    0
L40S           |  48 |  44.3  |  8.9 |  362 |  864 |    0
RTX PRO 4500   |  32 |  29.6~ | 12.0 |  200 |  896 |    0
RTX PRO 6000   |  96 |  94.9  | 12.0 |  504 | 1792 |    0
A100-40GB      |  40 |  39.3  |  8.0 |  312 | 1555 |  600
A100-80GB      |  80 |  79.1  |  8.0 |  312 | 2039 |  600
H100-PCIe      |  80 |  79.1  |  9.0 |  756 | 2000 |  600
H100-80GB      |  80 |  79.1  |  9.0 |  989 | 3350 |  900
H100-NVL       |  94 |  93.0  |  9.0 |  835 | 3900 |  600
GH200          |  96 |  94.5  |  9.0 |  989 | 4000 |  900
H200           | 141 | 139.7  |  9.0 |  989 | 4800 |  900
H200-NVL       | 141 | 139.7  |  9.0 |  835 | 4800 |  900
H20            |  96 |  95.0  |  9.0 |  148 | 4000 |  900
B200           | 180 | 178.3  | 10.0 | 2250 | 7700 | 1800
GB200          | 186 | 184.3  | 10.0 | 2500 | 8000 | 1800
B300           | 288 | 267.6  | 10.3 | 2500 | 8000 | 1800
GB300          | 279 | 276.5  | 10.3 | 2500 | 8000 | 1800
MI300X         | 192 | 191.6  |      | 1307 | 5300 |  896
MI325X         | 256 | 252.1~ |      | 1307 | 6000 |  896
MI355X         | 288 | 283.6~ |      | 2516 | 8000 | 1075
"""

# What drivers and vendors call them, without the brand words that `canonical` strips.
_ALIASES = """
V100-32GB: V100-SXM2-32GB, V100-PCIE-32GB, V100-SXM3-32GB, V100 SXM2 32GB
A10G-24GB: A10G
A5000: RTX A5000
A6000: RTX A6000
RTX6000Ada: RTX 6000 Ada Generation, RTX 6000 Ada
RTX PRO 4500: RTX PRO 4500 Blackwell
RTX PRO 6000: RTX PRO 6000 Blackwell Server Edition, RTX PRO 6000 Blackwell Workstation Edition,
 RTX PRO 6000 WK
A100-40GB: A100-SXM4-40GB, A100-PCIE-40GB, A100 SXM 40GB
A100-80GB: A100-SXM4-80GB, A100 80GB PCIe, A100 PCIe, A100 SXM
H100-PCIe: H100 PCIe
H100-80GB: H100 80GB HBM3, H100 SXM
H100-NVL: H100 NVL
GH200: GH200 480GB, GH200 96GB HBM3
H200: H200 SXM
H200-NVL: H200 NVL
B300: B300 SXM6 AC
MI300X: MI300X OAM
"""


def canonical(vendor_name: str) -> str | None:
    """Return the canonical name for what a driver or a vendor calls a GPU; None if unknown."""
    return _BY_KEY.get(_key(vendor_name))


def lookup(name: str) -> Gpu | None:
    """Return the facts by canonical or vendor name; None if unknown."""
    known = canonical(name)
    return None if known is None else GPUS[known]


def _key(name: str) -> str:
    """Return the name without brand words, spaces, dashes and case."""
    brands = r"\b(nvidia|geforce|tesla|amd|instinct|radeon)\b"
    return re.sub(r"[\s_-]+", "", re.sub(brands, "", name.lower()))


def _parse(line: str) -> Gpu:
    name, sold, usable, capability, tflops, bandwidth, nvlink = (
        cell.strip() for cell in line.split("|")
    )
    major, _, minor = capability.partition(".")
    return Gpu(
        name=name,
        vram_gib=float(sold),
        usable_gib=float(usable.rstrip("~")),
        capability=(int(major), int(minor)) if capability else None,
        bf16_tflops=float(tflops),
        memory_gb_per_s=float(bandwidth),
        nvlink_gb_per_s=float(nvlink),
    )


GPUS = MappingProxyType({g.name: g for g in map(_parse, _TABLE.strip().splitlines())})
_BY_KEY = {_key(name): name for name in GPUS} | {
    _key(alias): name
    for name, _, aliases in (
        line.partition(":") for line in _ALIASES.replace(",\n", ",").strip().splitlines()
    )
    for alias in aliases.split(",")
}
