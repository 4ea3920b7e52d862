"""What stays on the GPU for a whole step: weights, adapters, states, gradients, gathers.

All figures are bytes on one GPU. Sources are named at each constant; docs/sizing.md lists them all.
"""

from dataclasses import dataclass

from jobs.memory_activations import STACKS
from jobs.workload import QUANT_BYTES, Workload, lora_params

SHARDED_STATES = frozenset({"zero1", "zero2", "zero3", "fsdp"})
SHARDED_GRADIENTS = frozenset({"zero2", "zero3", "fsdp"})
# DeepSpeed's defaults: allgather_bucket_size and reduce_bucket_size of 5e8 elements, bf16.
ZERO_BUCKET_BYTES = 2 * 5e8 * 2.0
# DeepSpeed keeps an fp32 master copy beside the two fp32 moments of Adam.
ZERO_STATE_BYTES = 12.0


@dataclass(frozen=True, slots=True)
class Persistent:
    """Bytes on one GPU that do not depend on the batch."""

    weights: float
    adapters: float
    states: float
    gradients: float
    step_temporary: float  # what the optimizer's step allocates beside states and gradients
    buckets: float  # communication buffers of DDP and DeepSpeed
    gathered_root: float  # embeddings and head, gathered for the loss (FSDP, ZeRO-3)
    gathered_layer: float  # one more layer, gathered while it runs
    head_gradient: float  # the first gradients of a backward pass: head, and one matrix
    tied_gradient: float  # a tied embedding's own gradient and its sum with the head's
    late_gradient: float  # all gradients but those of the first layer and the embedding


def persistent(work: Workload) -> Persistent:
    """Return the batch-independent bytes of `work` on one GPU."""
    opt = work.optimizer_facts
    matrices, rest = weight_bytes(work)
    trainable, width = trainable_params(work)
    full = work.method == "full"
    sharded = work.gpus if work.strategy in SHARDED_STATES else 1
    weights = (matrices + rest) / work.shards
    states = trainable * (width * opt.states + opt.state_bytes)
    if work.strategy.startswith("zero") and full:
        states = max(states, trainable * ZERO_STATE_BYTES)
    if opt.paged or work.offload_optimizer:
        states = 0.0
    gradients = 0.0 if work.optimizer_in_backward else trainable * width
    if work.strategy in SHARDED_GRADIENTS:
        gradients /= work.gpus
    temporary = 0.0 if work.optimizer_in_backward or work.offload_optimizer else opt.temporary
    root, layer = _gathered(work, matrices)
    return Persistent(
        weights=0.0 if work.offload_params else weights,
        adapters=0.0 if full else trainable * width / work.shards,
        states=states / sharded,
        gradients=gradients,
        step_temporary=trainable * width * temporary / sharded,
        buckets=_buckets(work, trainable * width),
        gathered_root=root,
        gathered_layer=layer,
        head_gradient=_head_gradient(work),
        tied_gradient=_tied_gradient(work),
        late_gradient=_late_gradient(work, gradients),
    )


def weight_bytes(work: Workload) -> tuple[float, float]:
    """Return the bytes of the layers' matrices and of everything else (embeddings, head, norms).

    4-bit and 8-bit quantisers leave the second part in 16 bits; plain k-bit preparation outside
    Axolotl (which casts back) raises it to fp32.
    """
    arch = work.architecture
    matrices, rest = arch.linear_params, arch.params - arch.linear_params
    if not work.quantised:
        each = 4.0 if work.fp32_weights else 2.0
        return each * matrices, each * rest
    if STACKS[work.stack].head_quantised:
        matrices, rest = matrices + arch.head_params, rest - arch.head_params
    upcast = work.kbit_fp32 and work.stack == "hf"
    return matrices * QUANT_BYTES[work.quantised], rest * (4.0 if upcast else 2.0)


def trainable_params(work: Workload) -> tuple[int, float]:
    """Return the number of trainable elements and the bytes of one."""
    if work.method == "full":
        return work.architecture.params, 4.0 if work.fp32_weights else 2.0
    return lora_params(work), float(STACKS[work.stack].adapter_bytes)


def layer_bf16_bytes(work: Workload) -> float:
    """Return the bytes of one layer's matrices in bf16: what a gather or a dequantiser moves."""
    arch = work.architecture
    return 2.0 * (arch.attention_linear + arch.mlp_linear)


def _gathered(work: Workload, matrices: float) -> tuple[float, float]:
    """FSDP and ZeRO-3 hold the root unit through the loss and one layer while it runs.

    Checked against allocated peaks of FSDP runs on 2 and 4 GPUs: within 0.1 GiB.
    """
    if work.shards == 1 and not work.offload_params:
        return 0.0, 0.0
    arch = work.architecture
    root = 2.0 * (arch.embedding_params + arch.head_params)
    layer = matrices / arch.layers * (0.5 if work.fp32_weights else 1.0)
    if work.quantised:
        layer += 2.0 * arch.largest_matrix  # the bf16 copy that a 4-bit product makes
    return root, layer


def _buckets(work: Workload, trainable_bytes: float) -> float:
    if work.strategy == "ddp":
        return trainable_bytes  # DDP's reducer holds its own copy of the gradients
    if work.strategy.startswith("zero") and work.gpus > 1:
        return min(ZERO_BUCKET_BYTES, trainable_bytes)
    return 0.0


def _head_gradient(work: Workload) -> float:
    if work.method != "full":
        return 0.0
    arch = work.architecture
    return 2.0 * (arch.vocab * arch.hidden + arch.largest_matrix)


def _tied_gradient(work: Workload) -> float:
    """Autograd makes the embedding's dense gradient, then adds the head's to it in a third place.

    Oracle: 2 x 2 bytes a vocabulary entry and hidden unit, exact.
    """
    arch = work.architecture
    if work.method != "full" or not arch.tied or work.shards > 1:
        return 0.0
    return 2 * 2.0 * arch.vocab * arch.hidden


def _late_gradient(work: Workload, gradients: float) -> float:
    """At the worst moment of the first layer's backward its own gradients are still to come."""
    if work.method != "full":
        return gradients
    arch = work.architecture
    layer = arch.attention_linear + arch.mlp_linear
    pending = layer - arch.largest_matrix + (0 if arch.tied else arch.embedding_params)
    return gradients * (1 - pending / arch.params)
