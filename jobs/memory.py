"""Peak memory of a training step, as a maximum over its phases."""

from dataclasses import dataclass, field
from jobs import memory_activations as act
from jobs.workload import QUANT_BYTES, Workload, check, lora_params

GIB = float(2**30)
WORKSPACE_BYTES = 0.02 * GIB


@dataclass(frozen=True, slots=True)
class Allocator:
    context_gib: float = 0.74
    nccl_gib: float = 1.9
    phi: float = 0.64
    phi_opt: float = 0.83
    phi_layer: float = 0.15


ALLOCATOR = Allocator()


@dataclass(frozen=True, slots=True)
class Persistent:
    weights: float
    adapters: float
    states: float
    gradients: float
    temporary: float
    gather_loss: float
    gather_layer: float
    trainable: float


def frozen_weight_bytes(work: Workload) -> tuple[float, float]:
    """(matrices, rest) bytes."""
    arch = work.architecture
    rest = arch.embedding_params + arch.head_params + arch.norm_params
    stack = act.STACKS[work.stack]
    matrices = arch.linear_params
    if work.quantised:
        if stack.head_quantised:
            matrices += arch.head_params
            rest -= arch.head_params
        each = QUANT_BYTES[work.quantised]
        restb = 2.0 * rest
        if work.kbit_fp32 and work.stack in {"hf"}:
            restb = 4.0 * rest
        return matrices * each, restb
    b = 4.0 if work.fp32_weights else 2.0
    return b * matrices, b * rest


def persistent(work: Workload) -> Persistent:
    arch, opt = work.architecture, work.optimizer_facts
    stack = act.STACKS[work.stack]
    mat, rest = frozen_weight_bytes(work)
    if work.method == "full":
        n, b = arch.params, (4.0 if work.fp32_weights else 2.0)
        adapters = 0.0
    else:
        n, b = lora_params(work), float(stack.adapter_bytes)
        adapters = n * b
    states = n * (b * opt.states + opt.state_bytes)
    gradients = 0.0 if work.optimizer_in_backward else n * b
    temporary = 0.0 if work.optimizer_in_backward else n * b * opt.temporary
    w = work.shards
    zs = work.gpus if work.strategy in {"zero1", "zero2", "zero3", "fsdp"} else 1
    zg = work.gpus if work.strategy in {"zero2", "zero3", "fsdp"} else 1
    root = (arch.embedding_params + arch.head_params) * 2.0 if w > 1 else 0.0
    layer = 0.0
    if w > 1:
        layer = mat / arch.layers * (0.5 if work.fp32_weights else 1.0)
        if work.quantised:
            layer += 2.0 * arch.largest_matrix
    return Persistent((mat + rest) / w, adapters / w, states / zs, gradients / zg, temporary / zs, root, root + layer, n)


def phases(work: Workload) -> dict[str, float]:
    arch = work.architecture
    p = persistent(work)
    T = work.tokens
    base = p.weights + p.adapters + p.states
    full = work.method == "full"
    resident = p.gradients if work.gradient_accumulation_steps > 1 else 0.0
    loss = act.loss_bytes(work)
    r = act.layer_transient(work)
    ck = act.checkpoint_bytes(work, arch)
    head_grad = 0.0
    late = 0.0
    if full:
        layer_params = arch.attention_linear + arch.mlp_linear
        pending = layer_params - arch.largest_matrix + (0 if arch.tied else arch.embedding_params)
        late = p.gradients * (1 - pending / arch.params)
    else:
        late = p.gradients
    if full:
        head_grad = 2.0 * (arch.vocab * arch.hidden) + 2.0 * arch.largest_matrix
    else:
        head_grad = 0.0
    if work.checkpointing:
        kept, first = ck, ck
        if work.strategy == "fsdp" and not full:
            first = ck + 2.0 * arch.hidden * (arch.layers - 2)
    else:
        a = act.saved_per_layer(work)
        unsaved = act.first_layer_unsaved(work)
        kept = a * arch.layers - unsaved
        first = a * (arch.layers - 1) - unsaved
    out = {
        "loss": base + resident + p.gather_loss + T * (kept + loss),
        "layer": base + resident + p.gather_layer + (0 if resident else head_grad) + T * (first + r),
        "last_layer": base + p.gather_layer + max(late, resident) + T * (2.0 * arch.hidden + r),
        "optimizer": p.weights + p.adapters + p.states + p.gradients + p.temporary,
    }
    return out


def estimate(work: Workload, al: Allocator = ALLOCATOR):
    ph = phases(work)
    alloc = max(ph.values()) + WORKSPACE_BYTES
    return ph, alloc
