"""What a card, and the machine around it, must have for a job: the question put to offers."""

from dataclasses import dataclass

from jobs.memory import Footprint, footprint
from jobs.memory_host import disk, host_ram
from jobs.workload import Workload

# First compute capability with the feature (vendors' programming guides).
BF16_CAPABILITY = 8.0
FLASH_CAPABILITY = 8.0


@dataclass(frozen=True, slots=True)
class Requirement:
    """Lower bounds for one machine; memory is per GPU, disk and RAM for the whole machine."""

    gpus: int
    vram_gib: float  # usable memory a GPU must offer: the band's upper figure
    vram_floor_gib: float  # below this it cannot run at all
    capability: float
    disk_gib: float
    host_ram_gib: float
    footprint: Footprint


def requirement(
    work: Workload, *, kept_checkpoints: int = 2, merge: bool = False, data_gib: float = 1.0
) -> Requirement:
    """Return what `work` needs of a machine. Pure; raises WorkloadError."""
    found = footprint(work)
    capability = FLASH_CAPABILITY if work.attention == "flash" else BF16_CAPABILITY
    space = disk(work, kept_checkpoints=kept_checkpoints, merge=merge, data_gib=data_gib)
    return Requirement(
        gpus=work.gpus,
        vram_gib=found.high_gib,
        vram_floor_gib=found.floor_gib,
        capability=capability,
        disk_gib=space.total_gib,
        host_ram_gib=host_ram(work).total_gib,
        footprint=found,
    )
