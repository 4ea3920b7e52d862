"""What a job needs beside GPU memory: disk and host RAM."""

from dataclasses import dataclass

from jobs import memory_activations as activations
from jobs.memory_allocator import GIB
from jobs.memory_parts import trainable_params
from jobs.workload import Workload

# A trainer's environment (torch, CUDA libraries, transformers, Axolotl) unpacked: about 12 GiB in a
# container image, 8 GiB as wheels; the larger one is counted.
ENVIRONMENT_GIB = 12.0
# One trainer process with torch and its CUDA libraries loaded.
PROCESS_GIB = 4.0
# Hub shards are cut at 5 GB; the loader maps one at a time.
SHARD_GIB = 5e9 / GIB
ADAM_STATE_BYTES = 8.0  # two fp32 moments a trainable element in a checkpoint


@dataclass(frozen=True, slots=True)
class Disk:
    """GiB on the instance's disk, by what takes it."""

    environment_gib: float
    weights_gib: float
    data_gib: float
    checkpoints_gib: float
    merged_gib: float

    @property
    def total_gib(self) -> float:
        """Return the sum."""
        return (
            self.environment_gib
            + self.weights_gib
            + self.data_gib
            + self.checkpoints_gib
            + self.merged_gib
        )


@dataclass(frozen=True, slots=True)
class HostRam:
    """GiB of host memory on the instance, by what takes it."""

    processes_gib: float
    loading_gib: float
    offloaded_gib: float

    @property
    def total_gib(self) -> float:
        """Return the sum."""
        return self.processes_gib + self.loading_gib + self.offloaded_gib


def disk(
    work: Workload, *, kept_checkpoints: int = 2, merge: bool = False, data_gib: float = 1.0
) -> Disk:
    """Return the disk that a job needs.

    The hub's weights are 16-bit whatever the job quantises; a checkpoint holds the trained elements
    and two moments each; merging writes a second 16-bit model. Raises ValueError below zero.
    """
    if kept_checkpoints < 0 or data_gib < 0:
        message = "kept_checkpoints and data_gib: give 0 or more"
        raise ValueError(message)
    weights = 2.0 * work.architecture.params / GIB
    elements, width = trainable_params(work)
    # One more than is kept: the trainer writes the new checkpoint before it deletes the oldest.
    copies = kept_checkpoints + 1 if kept_checkpoints else 0
    checkpoint = elements * (width + ADAM_STATE_BYTES) / GIB
    final = elements * width / GIB
    return Disk(
        environment_gib=ENVIRONMENT_GIB,
        weights_gib=weights,
        data_gib=data_gib,
        checkpoints_gib=copies * checkpoint + final,
        merged_gib=weights if merge and work.method != "full" else 0.0,
    )


def host_ram(work: Workload) -> HostRam:
    """Return the host memory that a job needs.

    FSDP and ZeRO-3 load one whole copy on the first rank; a single GPU maps a shard at a time.
    """
    arch = work.architecture
    loading = (
        2.0 * arch.params / GIB if work.shards > 1 else min(SHARD_GIB, 2.0 * arch.params / GIB)
    )
    elements, width = trainable_params(work)
    offloaded = 0.0
    if work.offload_optimizer or work.optimizer_facts.paged:
        offloaded += elements * (ADAM_STATE_BYTES + width)
    if work.offload_params:
        offloaded += 2.0 * arch.params
    if work.activation_offload and work.checkpointing:
        offloaded += activations.checkpoint_bytes(work) * work.tokens * work.gpus
    return HostRam(PROCESS_GIB * work.gpus, loading, offloaded / GIB)
