"""Bytes of activations per token: what a layer saves, what its backward needs, what a loss needs.

Every coefficient counts saved tensors of the forward code (2 bytes a bf16 element, 4 an fp32 one)
and was checked against the shape oracle (docs/sizing.md lists both); the stacks' own constants
marked *fitted* there are the exceptions.
"""

from dataclasses import dataclass

from jobs.architectures import FUSED_GATE, FUSED_QKV, GEMMA, LAYER_NORM, QK_NORM, SANDWICH_NORM
from jobs.workload import Workload, one_of


@dataclass(frozen=True, slots=True)
class LossKernel:
    """Bytes a token that the loss holds at its peak: per vocabulary entry and per hidden unit."""

    vocab_bytes: float
    hidden_bytes: float
    family: str = "both"  # which of the family's own extras (_FAMILY_LOGITS) apply
    fragments: bool = True  # whole logits exist, and the allocator does not reuse their blocks


# hf: 2 bf16 logits the Trainer holds + 4 log-softmax + 4 gradient + 4 its copy (oracle: exact).
# hf_dropped: without the held logits. fp32_head: k-bit preparation left the head in fp32.
# foak: fms-acceleration's fused cross entropy; legacy releases kept the bf16 logits too.
# liger: logits in chunks of about the hidden size: the hidden gradient (2h), a chunk's logits in
# bf16 and fp32 (6h), their gradient (6h). cce: blockwise, never materialised.
# chunked: torchtune's: bf16 logits (2) and an eighth of the fp32 work on them, compiled.
# litgpt and Qwen's own code behave as hf. swift: *fitted*; v1 of that trainer kept more copies.
LOSS_KERNELS = {
    "hf": LossKernel(14, 6),
    "hf_dropped": LossKernel(12, 6),
    "fp32_head": LossKernel(16, 6),
    "hf_old": LossKernel(16, 6),
    "foak": LossKernel(8, 4, family="hidden"),
    "foak_legacy": LossKernel(10, 4),
    "liger": LossKernel(0, 14, family="none", fragments=False),
    "cce": LossKernel(0, 8, family="none", fragments=False),
    "chunked": LossKernel(4, 6, family="none"),
    "tune_full": LossKernel(14, 6, family="none"),
    "litgpt": LossKernel(14, 6, family="none"),
    "qwen_remote": LossKernel(14, 6, family="none", fragments=False),
    "swift": LossKernel(42.0, 6, family="none", fragments=False),
}
LOSS_ALIASES = {"liger_flce": "liger", "fused": "liger", "cut_cross_entropy": "cce"}
# Vocabulary and hidden bytes beside the kernel's: Granite scales its hidden state, GPT-BigCode
# hands bf16 logits to an fp32 loss, Gemma 2 soft-caps them and keeps the tanh (oracle: exact).
_FAMILY_LOGITS = {
    "granite": (0.0, 2.0),
    "gpt_bigcode": (4.0, 10.0),
    "gemma2": (2.0, 0.0),
}
# The releases before transformers 4.50 that fms-acceleration measured: Granite divided its logits
# in place of keeping them twice.
_LEGACY_LOGITS = {**_FAMILY_LOGITS, "granite": (-2.0, 2.0)}


@dataclass(frozen=True, slots=True)
class Stack:
    """How a training program differs from transformers + PEFT."""

    adapter_bytes: int = 4  # PEFT keeps adapters in fp32 (autocast_adapter_dtype)
    lora_casts: bool = True  # PEFT copies each adapted module's input to fp32
    head_quantised: bool = False
    scale: float = 1.0  # fitted: activations beside the formula
    scale_quantised: float = 1.0  # the same with a quantised base
    repeat_kv: bool = False  # keys and values are expanded to all heads before attention
    legacy: bool = False  # transformers 4: experts one by one, the final norm saves 2h more
    mistral_hidden: float = 0.0  # that release's Mistral block kept this many hidden units more


STACKS = {
    "axolotl": Stack(),
    "hf": Stack(),
    "fms": Stack(legacy=True, mistral_hidden=3.0),
    "torchtune": Stack(adapter_bytes=2, lora_casts=False),
    "litgpt": Stack(
        adapter_bytes=2,
        lora_casts=False,
        head_quantised=True,
        repeat_kv=True,
        scale=1.17,
        scale_quantised=1.93,
    ),
    "swift": Stack(),
    "qwen_remote": Stack(),
    "unsloth": Stack(lora_casts=False),
}


def check_words(work: Workload) -> None:
    """Raise WorkloadError for an unknown loss kernel or stack."""
    one_of("loss_kernel", work.loss_kernel, (*LOSS_KERNELS, *LOSS_ALIASES))
    one_of("stack", work.stack, tuple(STACKS))


def saved_per_layer(work: Workload) -> float:
    """Return the bytes a token that one layer saves for its backward pass, nothing recomputed."""
    arch = work.architecture
    stack = STACKS[work.stack]
    full = work.method == "full"
    kbit = 2.0 if work.kbit_fp32 else 1.0
    h = arch.hidden
    norms = _norm_bytes(work)
    inputs = 4 * h if full else 0  # the inputs of q/k/v and of gate/up, saved for weight gradients
    attention = _attention_bytes(work)
    mlp = _mlp_bytes(work) * kbit
    moe = 0.0
    if arch.experts:
        # A gather of the hidden state for each expert; experts run one by one keep its output too.
        moe = (4.0 if stack.legacy else 2.0) * h * arch.experts_per_token
    lora = 0.0 if full else _lora_input_bytes(work, casts=stack.lora_casts)
    total = norms + inputs + attention + mlp + moe * kbit + lora
    return total * (stack.scale_quantised if work.quantised else stack.scale)


def _norm_bytes(work: Workload) -> float:
    """RMSNorm saves its fp32 input (4h), in full tuning also the normalised one (2h)."""
    arch, full = work.architecture, work.method == "full"
    count = 4 if arch.family in SANDWICH_NORM else 2
    if work.fused_kernels:
        each = 2.0 if full else 0.0
    elif arch.family in LAYER_NORM:
        each = 2.0
    elif arch.family in GEMMA:
        each = 8.0 if full else 4.0  # its norm multiplies in fp32
    else:
        each = 6.0 if full else 4.0
    extra = 0.0
    if arch.family in QK_NORM:
        per = 6.0 if full else 4.0
        extra = per * (arch.q_width + arch.kv_width)
    return count * each * arch.hidden + extra


def _attention_bytes(work: Workload) -> float:
    arch = work.architecture
    q, kv = arch.q_width, arch.kv_width
    if work.attention == "eager":
        # q, expanded k and v for the two products; fp32 softmax and its bf16 copy. The output is
        # the input of o, which only full tuning saves.
        out = 2 * q if work.method == "full" else 0
        return 6.0 * q + out + 6.0 * arch.heads * work.sequence_len
    flash = 4.0 * q + 4.0 * kv + 4.0 * arch.heads
    if STACKS[work.stack].repeat_kv:
        flash += 4.0 * (q - kv)
    return flash


def _mlp_bytes(work: Workload) -> float:
    """gate, up, activation (2 each); full tuning also saves the input of down."""
    arch, full = work.architecture, work.method == "full"
    ffn = arch.active_width
    if not arch.gated_mlp:
        return (4.0 if full else 2.0) * ffn
    if work.fused_kernels and not arch.experts:
        return (6.0 if full else 4.0) * ffn
    return (8.0 if full else 6.0) * ffn


def _lora_input_bytes(work: Workload, *, casts: bool) -> float:
    """PEFT saves each adapted module's input in fp32, a copy each, and its rank-wide output."""
    arch = work.architecture
    targets = work.lora_targets
    h, ffn = arch.hidden, arch.active_width
    if arch.experts and "experts" not in targets:
        targets = targets - {"gate", "up", "down"}
    rank = 4.0 * work.lora_rank * len(targets - {"head", "experts"})
    if not casts:
        shared = 2.0 * h * bool(targets & {"q", "k", "v"}) + 2.0 * h * bool(
            targets & {"gate", "up"}
        )
        return shared + 2.0 * ffn * ("down" in targets) + rank / 2
    inputs = 1 if arch.family in FUSED_QKV else len(targets & {"q", "k", "v"})
    return (
        4.0 * h * inputs * bool(targets & {"q", "k", "v"})
        + 4.0 * arch.q_width * ("o" in targets)
        + 4.0 * h * len(targets & {"gate", "up"})
        + 4.0 * ffn * ("down" in targets)
        + rank
    )


def layer_transient(work: Workload) -> float:
    """Return the bytes a token at the worst moment of one layer's backward pass.

    That moment is the backward of the gated product: what the layer saved, the gradients of gate,
    up and their product (12 bytes of feed-forward width in all) and of the hidden state. Adapters
    on gate and up add the gradients of PEFT's fp32 casts (oracle: within 1 %).
    """
    arch = work.architecture
    h = arch.hidden
    saved, mlp = saved_per_layer(work), _mlp_bytes(work)
    kbit = 2.0 if work.kbit_fp32 else 1.0
    width: float = arch.active_width
    if arch.experts and STACKS[work.stack].legacy:
        # Experts ran one after another, each on its own share of the tokens.
        width = arch.moe_intermediate * arch.experts_per_token / arch.experts
        gradients = 6.0 * width * kbit
    else:
        gradients = (12.0 * width - mlp) * kbit
    hidden = 2.2 * h
    casts = not arch.experts and STACKS[work.stack].lora_casts and work.method != "full"
    if casts and "down" in work.lora_targets and work.lora_targets & {"gate", "up"}:
        gradients -= 2.0 * arch.intermediate
        hidden = 12.3 * h
    if work.quantised and work.method != "full":
        hidden -= 2.0 * h
    if work.fused_kernels and arch.family == "mistral":
        hidden += STACKS[work.stack].mistral_hidden * h
    if arch.experts and not STACKS[work.stack].legacy:
        hidden += 4.0 * h * arch.experts_per_token  # gradients of the gathered inputs and outputs
    if arch.family in FUSED_GATE:
        gradients += 6.0 * width  # the halves' gradients are joined in a tensor of their own
    at_mlp = saved + gradients + hidden
    if work.attention != "eager":
        return at_mlp
    # The softmax's backward: three more score matrices (2 + 4 bytes) after the feed-forward's
    # tensors are gone (oracle: 216h against 216h at 2048 tokens).
    scores = 6.0 * arch.heads * work.sequence_len
    rest = 16.0 * h if work.method == "full" else 0.0
    return max(at_mlp, saved - mlp - _norm_bytes(work) / 2 + scores + rest)


def first_layer_unsaved(work: Workload) -> float:
    """Return the bytes a token layer 0 does not save: nothing learns before its first adapter."""
    if work.method == "full" or work.checkpointing:
        return 0.0
    arch, targets = work.architecture, work.lora_targets
    norm = 0.0 if work.fused_kernels else 4.0 * arch.hidden
    if targets & {"q", "k", "v"}:
        return norm
    attention = _attention_bytes(work)
    if "o" in targets:
        return norm + attention
    if targets & {"gate", "up"}:
        return 2.0 * norm + attention
    return 2.0 * norm + attention + _mlp_bytes(work)


def loss_bytes(work: Workload) -> float:
    """Return the bytes a token that the final norm, the head and the loss hold at their peak."""
    arch = work.architecture
    kernel = LOSS_KERNELS[LOSS_ALIASES.get(work.loss_kernel, work.loss_kernel)]
    vocab, hidden = kernel.vocab_bytes, kernel.hidden_bytes
    legacy = STACKS[work.stack].legacy
    if work.method != "full" and kernel.family != "none" and not legacy:
        hidden -= 2.0  # a frozen norm does not save its normalised input
    table = _LEGACY_LOGITS if legacy else _FAMILY_LOGITS
    extra_vocab, extra_hidden = table.get(arch.family, (0.0, 0.0))
    if kernel.family == "both":
        vocab += extra_vocab
    if kernel.family != "none":
        hidden += extra_hidden
    logits = vocab * arch.vocab + hidden * arch.hidden
    # The final norm's own backward: fp32 copies of the hidden state (oracle), 8h where fused.
    return max(logits, (8.0 if work.fused_kernels else 24.0) * arch.hidden)


def held_logits_bytes(work: Workload) -> float:
    """Return the bytes a token of the logits that outlive the backward pass: the Trainer's copy."""
    kernel = LOSS_KERNELS[LOSS_ALIASES.get(work.loss_kernel, work.loss_kernel)]
    return 2.0 * work.architecture.vocab if kernel.vocab_bytes >= 14 else 0.0


def checkpoint_bytes(work: Workload) -> float:
    """Return the bytes a token of all checkpoints: the residual stream before each layer."""
    arch = work.architecture
    return (4.0 if work.kbit_fp32 else 2.0) * arch.hidden * arch.layers
