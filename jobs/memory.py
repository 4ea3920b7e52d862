"""Peak memory of a training step: the highest of its phases, never their sum.

`footprint(workload)` answers in well under a millisecond, from shape numbers alone. A step has five
moments that can bind: the loss (checkpoints and logits), the backward of the last layer
(checkpoints and one layer's tensors), the backward of the first layer (all gradients and one
layer's tensors), the embedding's gradient, the optimizer's step (states, gradients, temporaries).
docs/sizing.md derives every term.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs import memory_activations as activations
from jobs.memory_allocator import (
    GIB,
    SHIPPED,
    Allocator,
    Shares,
    outside_bytes,
    reserved_bytes,
    stuck_bytes,
    workspace_bytes,
)
from jobs.memory_parts import Persistent, persistent
from jobs.workload import Workload, check

PHASES = ("loss", "layer", "first_layer", "embedding", "optimizer")
# cuBLAS workspace, rotary tables, masks: inside torch's pool. Constant over 159 runs of 1B to 70B.
WORKSPACE_BYTES = 0.02 * GIB
# The measured peak over the estimate: 10 % and 90 % quantiles with groups left out in turn
# (docs/sizing.md): for settings of the calibrated kind, and for all others.
BANDS = {"calibrated": (0.93, 1.10), "estimated": (0.85, 1.25)}
CALIBRATED_FAMILIES = frozenset(
    {"llama", "mistral", "mixtral", "granite", "qwen", "qwen2", "qwen3", "phi3", "smollm3"}
)
CALIBRATED_STACKS = frozenset({"axolotl", "hf", "fms", "torchtune"})


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a phase, GiB on one GPU."""

    name: str
    gib: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """Peaks on one GPU in GiB; `device` is what nvidia-smi shows and what a card must hold."""

    phases: Mapping[str, tuple[Component, ...]]
    binding: str
    allocated_gib: float
    reserved_gib: float
    device_gib: float
    low_gib: float
    high_gib: float
    floor_gib: float  # below this no allocator can make it run
    confidence: str
    assumptions: tuple[str, ...]

    @property
    def components(self) -> tuple[Component, ...]:
        """Return the parts of the binding phase; they add up to `allocated_gib`."""
        return self.phases[self.binding]

    def phase_gib(self, phase: str) -> float:
        """Return the sum of one phase's parts."""
        return sum(part.gib for part in self.phases[phase])


def footprint(work: Workload, allocator: Allocator = SHIPPED) -> Footprint:
    """Return the memory that `work` needs on each GPU.

    Raises WorkloadError for settings out of range or in contradiction. Pure; no I/O.
    """
    check(work)
    activations.check_words(work)
    parts = persistent(work)
    phases = _phases(work, parts)
    totals = {name: sum(phase.values()) for name, phase in phases.items()}
    binding = max(PHASES, key=totals.__getitem__)
    base = parts.weights + parts.adapters + parts.states
    shares = Shares(
        allocated=totals[binding],
        base=base,
        loss_phase=totals["loss"] - WORKSPACE_BYTES,
        layer_phase=totals["layer"] - WORKSPACE_BYTES,
        layer_transient=activations.layer_transient(work) * work.tokens,
        input_gradients=phases["layer"].get("input gradients", 0.0),
    )
    reserved = reserved_bytes(work, parts, shares, allocator)
    outside = outside_bytes(work, allocator)
    device = reserved + workspace_bytes(allocator) + outside
    floor = totals[binding] + stuck_bytes(work, shares, allocator) + outside
    if work.gpu_gib is not None:
        # Near the card's end the allocator hands unused blocks back and tries again.
        device = max(min(device, work.gpu_gib * GIB), floor)
    confidence = _confidence(work)
    low, high = BANDS[confidence]
    return Footprint(
        phases={
            name: tuple(Component(part, value / GIB) for part, value in phase.items() if value)
            for name, phase in phases.items()
        },
        binding=binding,
        allocated_gib=totals[binding] / GIB,
        reserved_gib=(device - outside) / GIB,
        device_gib=device / GIB,
        low_gib=max(floor, device * low) / GIB,
        high_gib=device * high / GIB,
        floor_gib=floor / GIB,
        confidence=confidence,
        assumptions=_assumptions(work),
    )


def _phases(work: Workload, parts: Persistent) -> dict[str, dict[str, float]]:
    """Return each phase's parts in bytes, in the order in which a picture shows them."""
    tokens = work.tokens
    held, held_layer, second = _held(work)
    layer = activations.layer_transient(work) * tokens
    resident = parts.gradients if work.gradient_accumulation_steps > 1 else 0.0
    base = {
        "weights": parts.weights,
        "adapters": parts.adapters,
        "optimizer states": parts.states,
        "buckets": parts.buckets,
    }
    workspace = {"workspace": WORKSPACE_BYTES}
    kept = "checkpoints" if work.checkpointing else "activations"
    gathered = parts.gathered_root + parts.gathered_layer
    one_hidden = 2.0 * work.architecture.hidden * tokens
    return {
        "loss": {
            **base,
            "gathered weights": parts.gathered_root,
            "gradients": resident,
            kept: held,
            "logits and loss": activations.loss_bytes(work) * tokens,
            **workspace,
        },
        "layer": {
            **base,
            "gathered weights": gathered,
            "gradients": max(resident, parts.head_gradient),
            kept: held_layer,
            "input gradients": second,
            "one layer": layer,
            **workspace,
        },
        "first_layer": {
            **base,
            "gathered weights": gathered,
            "gradients": max(resident, parts.late_gradient),
            "input gradients": one_hidden,
            "one layer": layer,
            **workspace,
        },
        "embedding": {
            **base,
            "gradients": max(resident, parts.gradients) + parts.tied_gradient,
            "input gradients": one_hidden,
            "logits and loss": activations.held_logits_bytes(work) * tokens,
            **workspace,
        },
        "optimizer": {
            **base,
            "gradients": parts.gradients,
            "step temporaries": parts.step_temporary,
            **workspace,
        },
    }


def _held(work: Workload) -> tuple[float, float, float]:
    """Return what is held in the loss phase, in the layer phase, and FSDP's second set, bytes.

    FSDP with adapters and checkpointing frees no checkpoint while input gradients pile up: a
    second set of all but two layers (measured slopes on 2 and 4 GPUs: exact).
    """
    arch, tokens = work.architecture, work.tokens
    if not work.checkpointing:
        each = activations.saved_per_layer(work)
        unsaved = activations.first_layer_unsaved(work)
        whole = tokens * (each * arch.layers - unsaved)
        return whole, whole - tokens * each, 0.0
    checkpoints = activations.checkpoint_bytes(work) * tokens
    if work.activation_offload:
        checkpoints *= 2 / max(2, arch.layers)  # the one in use and the one on its way
    second = 0.0
    if work.strategy == "fsdp" and work.method != "full" and work.stack != "torchtune":
        second = 2.0 * arch.hidden * max(0, arch.layers - 2) * tokens
    return checkpoints, checkpoints, second


def _confidence(work: Workload) -> str:
    known = (
        work.architecture.family in CALIBRATED_FAMILIES
        and work.stack in CALIBRATED_STACKS
        and work.attention in {"flash", "sdpa"}
        and work.strategy in {"none", "fsdp"}
        and not (work.offload_params or work.offload_optimizer or work.activation_offload)
    )
    return "calibrated" if known else "estimated"


def _assumptions(work: Workload) -> tuple[str, ...]:
    """Return the assumptions in words, the ones first that move the figure most."""
    kernel = activations.LOSS_ALIASES.get(work.loss_kernel, work.loss_kernel)
    facts = activations.LOSS_KERNELS[kernel]
    logits = (
        f"whole logits, {facts.vocab_bytes:g} bytes an entry of {work.architecture.vocab}"
        if facts.vocab_bytes
        else "logits in pieces, never whole"
    )
    said = [
        f"every micro batch holds {work.micro_batch_size} x {work.sequence_len} tokens",
        f"loss kernel {kernel}: {logits}",
        "checkpointing of every layer" if work.checkpointing else "no checkpointing",
        f"optimizer {work.optimizer}, {work.attention} attention",
    ]
    if work.quantised:
        said.append(f"base weights in {work.quantised}; embeddings and head in 16 bits")
    if work.quantised and work.architecture.experts:
        said.append("experts quantised too (Axolotl: quantize_moe_experts)")
    if work.architecture.checked == "count":
        said.append("shape confirmed by its parameter count only")
    if work.gpus > 1:
        said.append(f"{work.gpus} GPUs, {work.strategy}")
    return tuple(said)
