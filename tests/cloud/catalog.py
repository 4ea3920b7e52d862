"""What the simulated RunPod has for hire: GPU types, prices, data centres, CUDA versions.

Prices in USD per GPU and hour, list prices of 2026 where one was to be had (see
docs/adding-a-provider.md for why a client never hard-codes them); 0 stands for "not in this tier".
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuType:
    id: str
    name: str
    memory_gb: int
    secure_usd: Decimal
    community_usd: Decimal
    spot_usd: Decimal
    max_count: int = 8
    manufacturer: str = "NVIDIA"


def _gpu(gpu_id: str, name: str, gb: int, *usd: str) -> GpuType:
    maker = "AMD" if gpu_id.startswith("AMD") else "NVIDIA"
    secure, community, spot = map(Decimal, (*usd, "0")[:3])
    return GpuType(gpu_id, name, gb, secure, community, spot, manufacturer=maker)


GPUS: dict[str, GpuType] = {
    gpu.id: gpu
    for gpu in (
        _gpu("AMD Instinct MI300X OAM", "MI300X", 192, "2.39", "0", "1.49"),
        _gpu("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, "1.79", "1.19", "0.60"),
        _gpu("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, "1.79", "1.39", "0.79"),
        _gpu("NVIDIA A40", "A40", 48, "0.44", "0", "0.24"),
        _gpu("NVIDIA B200", "B200", 180, "6.79", "5.98"),
        _gpu("NVIDIA GeForce RTX 3090", "RTX 3090", 24, "0.50", "0.22", "0.11"),
        _gpu("NVIDIA GeForce RTX 4090", "RTX 4090", 24, "0.74", "0.34", "0.20"),
        _gpu("NVIDIA GeForce RTX 5090", "RTX 5090", 32, "0.99", "0.69"),
        _gpu("NVIDIA H100 80GB HBM3", "H100 SXM", 80, "3.99", "2.69", "1.50"),
        _gpu("NVIDIA H100 NVL", "H100 NVL", 94, "3.19", "2.59", "1.40"),
        _gpu("NVIDIA H100 PCIe", "H100 PCIe", 80, "2.89", "1.99", "1.25"),
        _gpu("NVIDIA H200", "H200 SXM", 141, "4.59", "3.59"),
        _gpu("NVIDIA L4", "L4", 24, "0.49", "0", "0.22"),
        _gpu("NVIDIA L40", "L40", 48, "0.82", "0.69", "0.50"),
        _gpu("NVIDIA L40S", "L40S", 48, "0.99", "0.79", "0.40"),
        _gpu("NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada", 16, "0.23", "0", "0.14"),
        _gpu("NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada", 20, "0.26", "0.20", "0.10"),
        _gpu("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48, "0.84", "0.74", "0.40"),
        _gpu("NVIDIA RTX A4000", "RTX A4000", 16, "0.24", "0.17", "0.09"),
        _gpu("NVIDIA RTX A5000", "RTX A5000", 24, "0.27", "0.16", "0.11"),
        _gpu("NVIDIA RTX A6000", "RTX A6000", 48, "0.53", "0.33", "0.25"),
    )
}
# id -> (region, country). Secure pods lie in one of these; community pods have no data centre.
DATA_CENTERS = {
    "US-KS-2": ("NORTH_AMERICA", "US"),
    "US-TX-3": ("NORTH_AMERICA", "US"),
    "EU-RO-1": ("EUROPE", "RO"),
    "EU-SE-1": ("EUROPE", "SE"),
    "CA-MTL-1": ("NORTH_AMERICA", "CA"),
}
CUDA_VERSIONS = ("12.4", "12.8", "12.9", "13.0")
HOST_CUDA = "13.0"
DRIVERS = {"13.0": "580.95.05", "12.8": "570.133.20", "12.4": "550.127.05"}


def cuda_fits(wanted: dict[str, Any], host: str = HOST_CUDA) -> bool:
    """Return whether a host answers a CUDA wish: the list exactly, the floor by number."""
    allowed, floor = wanted.get("allowedCudaVersions"), wanted.get("minCudaVersion")
    if allowed and host not in allowed:
        return False
    return floor is None or version(host) >= version(floor)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def gpu_entry(gpu: GpuType, stock: str, *, availability: bool) -> dict[str, Any]:
    """Return the catalogue's entry as /v2/catalog/gpus gives it."""
    entry: dict[str, Any] = {
        "id": gpu.id,
        "name": gpu.name,
        "pool": None,
        "manufacturer": gpu.manufacturer,
        "memory": gpu.memory_gb,
        "secure": gpu.secure_usd > 0,
        "community": gpu.community_usd > 0,
        # A tier that the type does not have shows a placeholder, as the real one does.
        "price": {
            "secure": float(gpu.secure_usd or Decimal("0.5")),
            "community": float(gpu.community_usd or Decimal("0.5")),
        },
        "maxCount": {
            "secure": gpu.max_count if gpu.secure_usd else 0,
            "community": gpu.max_count if gpu.community_usd else 0,
        },
    }
    if availability:
        entry["availability"] = stock
        entry["dataCenters"] = [
            {"id": name, "name": name, "availability": stock} for name in DATA_CENTERS
        ]
        entry["cudaVersions"] = [{"version": v, "available": True} for v in CUDA_VERSIONS]
    return entry


def data_center_entry(name: str) -> dict[str, Any]:
    region, _country = DATA_CENTERS[name]
    return {
        "id": name,
        "name": name,
        "region": region,
        "globalNetwork": False,
        "networkVolumeTypes": [],
        "compliance": [],
    }
