"""Peers' public formulas, written down from their documents and public code; all in GiB.

They were made for other purposes than a peak to the gigabyte (loading a model, a hardware table, a
trainer with its own kernels); the benches show how far they carry.
"""

from collections.abc import Callable

from jobs.workload import Workload, lora_params

GIB = float(2**30)


def accelerate(work: Workload) -> float:
    """Return accelerate estimate-memory's "training using Adam" figure.

    The largest of model, gradients and Adam's states: with bf16 autocast 4, 6 and 8 bytes a
    parameter, so 8; independent of method, batch and length.
    """
    per_param = 16.0 if work.fp32_weights and work.gpus == 1 else 8.0
    return per_param * work.architecture.params / GIB


def llama_factory(work: Workload) -> float:
    """Return LLaMA-Factory's hardware table as bytes a parameter, at its own column's bits."""
    params = work.architecture.params
    if work.method == "full":
        return (18.0 if work.fp32_weights else 8.0) * params / GIB
    if work.quantised is None:
        return 2.0 * params / GIB
    eight_bit = work.quantised in {"gptq8", "int8"}
    return (1.0 if eight_bit else 0.5) * params / GIB


def unsloth(work: Workload) -> float:
    """Return Unsloth Studio's estimate: weights, adapters, one layer's activations, no logits.

    4-bit weights take 16/3.2 of a bit count; optimizer 8 bytes (4 in 8-bit) a trainable element;
    activations (q + k + v + 2 x feed-forward) x 1.25 x 2 bytes a token, for one layer with
    checkpointing, else all; gradients at least 15 % of the weights; 1.4 GB on top.
    """
    arch = work.architecture
    matrices, rest = arch.linear_params, arch.params - arch.linear_params
    weights = 2.0 * arch.params if not work.quantised else 2.0 * matrices / 3.2 + 2.0 * rest
    trainable = arch.params if work.method == "full" else lora_params(work)
    states = trainable * (4.0 if "8bit" in work.optimizer else 8.0)
    adapters = 0.0 if work.method == "full" else 2.0 * trainable
    gradients = max(2.0 * trainable, 0.15 * weights)
    layer = (arch.q_width + 2 * arch.kv_width + 2 * arch.active_width) * 2.0 * 1.25
    layers = 1 if work.checkpointing else arch.layers
    activations = layer * layers * work.tokens
    return (weights + adapters + states + gradients + activations + 1.4e9) / GIB


FORMULAS: dict[str, Callable[[Workload], float]] = {
    "accelerate": accelerate,
    "LLaMA-Factory table": llama_factory,
    "Unsloth Studio": unsloth,
}
