"""What the simulated RunPod charges: by the second, compute and disks, running and stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

HOUR_S = 3600
MONTH_HOURS = 730
# USD per GB and month: container disk and volume of a running pod; volume of a stopped one.
DISK_USD, VOLUME_USD, VOLUME_STOPPED_USD = Decimal("0.10"), Decimal("0.10"), Decimal("0.20")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time at one price. `end` is None while it goes on."""

    start: float
    end: float | None
    gpu_usd_per_hour: Decimal
    disk_usd_per_hour: Decimal

    def amounts(self, start: float, end: float) -> tuple[Decimal, Decimal]:
        """Return what [start, end) of it costs: GPU, disks. Seconds begun are paid in full."""
        first, last = max(start, self.start), end if self.end is None else min(end, self.end)
        if last <= first:
            return Decimal(0), Decimal(0)
        seconds = math.ceil(last - self.start) - math.ceil(first - self.start)
        hours = Decimal(seconds) / HOUR_S
        return self.gpu_usd_per_hour * hours, self.disk_usd_per_hour * hours


def disk_usd_per_hour(disk_gb: int, volume_gb: int, *, running: bool) -> Decimal:
    if not running:
        return volume_gb * VOLUME_STOPPED_USD / MONTH_HOURS
    return (disk_gb * DISK_USD + volume_gb * VOLUME_USD) / MONTH_HOURS


def total(stretches: Iterable[Stretch], start: float, end: float) -> tuple[Decimal, Decimal]:
    gpu = disk = Decimal(0)
    for stretch in stretches:
        more_gpu, more_disk = stretch.amounts(start, end)
        gpu, disk = gpu + more_gpu, disk + more_disk
    return gpu, disk


def buckets(start: float, end: float, size_s: float) -> Iterator[tuple[float, float]]:
    """Yield the whole buckets that [start, end) touches, on multiples of `size_s`."""
    at = math.floor(start / size_s) * size_s
    while at < end:
        yield at, at + size_s
        at += size_s
