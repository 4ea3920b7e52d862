"""The GPUs of this machine, as `nvidia-smi` tells them, and the offers made of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from providers import gpus
from providers.base import Offer, OfferKey, Tier

NVIDIA_SMI_TIMEOUT_S = 15.0  # a GPU in persistence mode answers in 0.1 s, a cold driver in several
CPU_KEY = OfferKey("cpu")


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """One GPU. `uuid` is what CUDA_VISIBLE_DEVICES takes, whatever order CUDA counts in."""

    uuid: str
    name: str  # canonical where it is known, else the driver's
    vram_gib: float


def detect(environment: Mapping[str, str]) -> list[LocalGpu]:
    """Return the GPUs that this process may use; none without a working `nvidia-smi`."""
    command = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if command is None:
        return []
    query = ["--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [command, *query], capture_output=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = parse(done.stdout.decode("utf-8", "replace"))
    return visible(found, environment.get("CUDA_VISIBLE_DEVICES"))


def parse(csv: str) -> list[LocalGpu]:
    """Return the GPUs of `uuid, name, MiB` lines; lines that say anything else are left out."""
    found = []
    for line in csv.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 3 or not cells[2].isdigit():
            continue  # "[N/A]", or an error in words
        uuid, name, mib = cells
        facts = gpus.lookup(name)
        vram_gib = facts.vram_gib if facts else round(int(mib) / 1024, 1)
        found.append(LocalGpu(uuid, facts.name if facts else name, vram_gib))
    return found


def visible(found: Sequence[LocalGpu], limit: str | None) -> list[LocalGpu]:
    """Return those that CUDA_VISIBLE_DEVICES leaves, as CUDA reads it: up to the first bad word."""
    if limit is None:
        return list(found)
    chosen: list[LocalGpu] = []
    for word in (w.strip() for w in limit.split(",")):
        matches = [g for n, g in enumerate(found) if word == str(n) or _is_uuid_of(word, g)]
        if len(matches) != 1:
            break
        chosen += matches
    return chosen


def offers(
    found: Sequence[LocalGpu], taken: frozenset[str], home: Path, price: Decimal | None
) -> list[Offer]:
    """Return one offer for each kind and number of free GPUs; a CPU where the machine has none.

    A machine whose GPUs are all in use offers nothing, rather than a CPU by surprise.
    """
    shapes = [] if found else [(CPU_KEY, "CPU", 0.0, 0)]
    for name in sorted({g.name for g in found}):
        free = [g.vram_gib for g in found if g.name == name and g.uuid not in taken]
        shapes += [(key(n, name), name, min(free), n) for n in range(1, len(free) + 1)]
    ram_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk_gib = _free_bytes(home) / 2**30
    return [
        Offer(
            provider="local",
            key=offer_key,
            gpu=name,
            gpu_count=count,
            vram_gib=vram_gib,
            price_usd_per_hour=price or Decimal(0),
            price_is_notional=bool(price),
            region="here",
            tier=Tier.OWN,
            disk_gib=round(disk_gib, 1),
            host_ram_gib=round(ram_gib, 1),
        )
        for offer_key, name, vram_gib, count in shapes
    ]


def key(count: int, name: str) -> OfferKey:
    """Return the key of so many GPUs of that name."""
    return OfferKey(f"{count}x{name}")


def _is_uuid_of(word: str, gpu: LocalGpu) -> bool:
    return word.startswith("GPU-") and gpu.uuid.startswith(word)


def _free_bytes(home: Path) -> int:
    """Return the free bytes where `home` is, or will be."""
    for folder in (home, *home.parents):
        if folder.exists():
            return shutil.disk_usage(folder).free
    return 0
