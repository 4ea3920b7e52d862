"""From what tensors hold to what the card shows: the caching allocator, NCCL, the CUDA context.

The tensors are exact to a percent; this part is not. Its constants marked *fitted* come from the
device peaks of 159 runs on A100-80GB cards (benches/fit_memory.py), leaving groups out in turn.
"""

from dataclasses import dataclass

from jobs.memory_activations import LOSS_ALIASES, LOSS_KERNELS
from jobs.memory_parts import Persistent, layer_bf16_bytes
from jobs.workload import Workload

GIB = float(2**30)


@dataclass(frozen=True, slots=True)
class Allocator:
    """The allocator's constants; the defaults are the shipped fit."""

    context_gib: float = 1.19  # fitted: CUDA context, cuBLAS workspace, sampling
    nccl_gib: float = 0.85  # fitted: communicators and their buffers, where GPUs > 1
    vocab_bytes: float = 6.0  # one more set of bf16 logits and their fp32 copy (2 + 4): not reused
    layer_share: float = 0.21  # fitted: of the layer's transient, lost between the phases
    input_gradient_share: float = 0.38  # fitted: of FSDP's second set of checkpoints
    weights_share: float = 0.88  # fitted: activations find no room in weight-sized blocks
    fsdp_full_gib: float = 5.1  # fitted: unsharded gradients waiting for reduce-scatter
    gather_layers: float = 1.5  # layers in flight on the communication stream (prefetch)


SHIPPED = Allocator()
# The CUDA context alone, which `reserved` does not count and nvidia-smi does.
CONTEXT_ONLY_GIB = 0.5
# PEFT's own benchmark on an L40S, full tuning of a 3B without checkpointing: 36.2 reserved, 33.7
# by the oracle (one point).
NO_CHECKPOINT_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes of the step that the allocator works with."""

    allocated: float
    base: float  # weights, adapters, states
    loss_phase: float
    layer_phase: float
    layer_transient: float
    input_gradients: float  # FSDP with adapters: the second set of checkpoints


def reserved_bytes(
    work: Workload, parts: Persistent, shares: Shares, allocator: Allocator = SHIPPED
) -> float:
    """Return the bytes that torch reserves: allocated plus what it cannot reuse between phases."""
    if work.method == "full" and not work.checkpointing:
        # Freed activations make room for gradients as the backward pass goes.
        apart = NO_CHECKPOINT_SHARE * (parts.gradients + parts.step_temporary)
        return shares.allocated + apart + _in_flight(work, allocator)
    if work.method == "full":
        # Gradients and the step's temporaries take weight-sized blocks, activations their own.
        activations = max(shares.loss_phase, shares.layer_phase) - shares.base
        apart = shares.base + parts.gradients + parts.step_temporary
        apart += allocator.weights_share * activations
        return max(shares.allocated, apart) + _in_flight(work, allocator)
    logits = allocator.vocab_bytes * work.architecture.vocab * work.tokens * _materialised(work)
    room = max(0.0, shares.layer_phase - shares.loss_phase)
    # Without recomputation the freed logits serve the backward pass: nothing is lost.
    lost = max(0.0, logits - room) if work.checkpointing else 0.0
    lost += allocator.layer_share * shares.layer_transient
    lost += allocator.input_gradient_share * shares.input_gradients
    return shares.allocated + lost + _in_flight(work, allocator)


def stuck_bytes(work: Workload, shares: Shares, allocator: Allocator = SHIPPED) -> float:
    """Return the reserved bytes that the allocator cannot hand back when memory runs out.

    On one GPU it frees every unused block and tries again, so only the tensors count (232 runs:
    none failed below that). Blocks that FSDP's streams share with adapters' gradients stay.
    """
    if work.shards == 1 or work.method == "full":
        return 0.0
    lost = allocator.layer_share * shares.layer_transient
    lost += allocator.input_gradient_share * shares.input_gradients
    return lost + _in_flight(work, allocator)


def outside_bytes(work: Workload, allocator: Allocator = SHIPPED) -> float:
    """Return what nvidia-smi shows beyond torch: the context and NCCL's buffers."""
    nccl = allocator.nccl_gib if work.gpus > 1 else 0.0
    return (CONTEXT_ONLY_GIB + nccl) * GIB


def workspace_bytes(allocator: Allocator = SHIPPED) -> float:
    """Return cuBLAS workspaces and the like inside torch's own pool."""
    return (allocator.context_gib - CONTEXT_ONLY_GIB) * GIB


def _materialised(work: Workload) -> float:
    kernel = LOSS_KERNELS[LOSS_ALIASES.get(work.loss_kernel, work.loss_kernel)]
    return 1.0 if kernel.fragments else 0.0


def _in_flight(work: Workload, allocator: Allocator) -> float:
    if work.gpus == 1:
        return 0.0
    bytes_ = allocator.gather_layers * layer_bf16_bytes(work)
    if work.method == "full":
        bytes_ += allocator.fsdp_full_gib * GIB
    return bytes_
