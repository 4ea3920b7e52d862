"""What is to be trained, in the words of the memory and speed models, free of the job file."""

import difflib
from dataclasses import dataclass, field

from jobs.architectures import Architecture

METHODS = ("full", "lora", "qlora")
ATTENTION_TARGETS = ("q", "k", "v", "o")
MLP_TARGETS = ("gate", "up", "down")
TARGETS = (*ATTENTION_TARGETS, *MLP_TARGETS, "head", "experts")
STRATEGIES = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
ATTENTIONS = ("flash", "sdpa", "flex", "eager")

# Bytes a weight takes in storage, block constants included. Sources: QLoRA paper (NF4: 4 bit + fp32
# per 64; double quantisation: 8 bit per 64 + fp32 per 16384), GPTQ (group 128: fp16 scale + zero).
QUANT_BYTES = {
    "nf4": 0.5 + 4 / 64,
    "nf4dq": 0.5 + 1 / 64 + 4 / (64 * 256),
    "gptq4": 0.5 + 2.5 / 128,
    "gptq4_whole": 0.501,  # one scale a column: the common 70B and Mixtral checkpoints
    "gptq8": 1.0 + 3 / 128,
    "int8": 1.0,
}


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Bytes of one optimizer per byte (or element) of trainable parameter."""

    states: float  # copies of the parameter, in the parameter's own dtype
    state_bytes: float  # bytes an element, independent of the dtype (8-bit states)
    temporary: float  # copies of the parameter that one step makes
    paged: bool = False  # states in managed memory: outside torch's counters, evictable


# torch.optim (foreach makes one temporary per tensor list; fused none), bitsandbytes (one byte a
# state and fp32 constants per 256: 1.03), Adafactor (row and column sums), Lion and Muon (one).
OPTIMIZERS = {
    "adamw_torch": Optimizer(2, 0, 1),
    "adamw_torch_fused": Optimizer(2, 0, 0),
    "adamw_8bit": Optimizer(0, 2.06, 0),
    "adamw_bnb_8bit": Optimizer(0, 2.06, 0),
    "paged_adamw_32bit": Optimizer(0, 8, 0, paged=True),
    "paged_adamw_8bit": Optimizer(0, 2.06, 0, paged=True),
    "adafactor": Optimizer(0.01, 0, 1),
    "lion_8bit": Optimizer(0, 1.03, 0),
    "lion_32bit": Optimizer(0, 4, 0),
    "muon": Optimizer(1, 0, 1),
    "sgd": Optimizer(0, 0, 0),
}
OPTIMIZER_ALIASES = {
    "adamw": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "adamw_torch_8bit": "adamw_8bit",
    "adamw_torch_4bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "adamw_apex_fused": "adamw_torch_fused",
    "lion_pytorch": "muon",
    "paged_lion_8bit": "lion_8bit",
    "paged_lion_32bit": "lion_32bit",
}


class WorkloadError(ValueError):
    """Settings that contradict one another; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One training configuration on `gpus` equal GPUs; lengths in tokens, batch in sequences."""

    architecture: Architecture
    method: str = "qlora"
    quant: str | None = None  # a key of QUANT_BYTES; QLoRA without one means nf4dq
    lora_rank: int = 16
    lora_targets: frozenset[str] = field(
        default_factory=lambda: frozenset((*ATTENTION_TARGETS, *MLP_TARGETS))
    )
    sequence_len: int = 2048
    micro_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    optimizer: str = "adamw_torch"
    checkpointing: bool = True
    activation_offload: bool = False
    attention: str = "flash"
    loss_kernel: str = "hf"  # a key of jobs.memory_activations.LOSS_KERNELS
    fused_kernels: bool = False  # fused norm and gated MLP (Liger, Unsloth and their like)
    fp32_weights: bool = False  # classic mixed precision: fp32 master weights in the optimizer
    kbit_fp32: bool = False  # k-bit preparation left norms in fp32: the residual stream doubles
    packing: bool = True
    gpus: int = 1
    strategy: str = "none"
    offload_optimizer: bool = False
    offload_params: bool = False
    optimizer_in_backward: bool = False
    stack: str = "axolotl"  # a key of jobs.memory_activations.STACKS
    gpu_gib: float | None = None  # the card's usable memory: reserved memory stops there

    @property
    def tokens(self) -> int:
        """Return the tokens of one micro step on one GPU."""
        return self.micro_batch_size * self.sequence_len

    @property
    def shards(self) -> int:
        """Return the number of GPUs over which weights are divided."""
        return self.gpus if self.strategy in {"zero3", "fsdp"} else 1

    @property
    def quantised(self) -> str | None:
        """Return the quantisation of the frozen matrices, or None for plain weights."""
        if self.method == "qlora":
            return self.quant or "nf4dq"
        return self.quant

    @property
    def optimizer_facts(self) -> Optimizer:
        """Return the optimizer's bytes; raises WorkloadError for an unknown name."""
        name = OPTIMIZER_ALIASES.get(self.optimizer, self.optimizer)
        if name not in OPTIMIZERS:
            known = [*OPTIMIZERS, *OPTIMIZER_ALIASES]
            raise WorkloadError(f"optimizer: {self.optimizer!r} is not known{_near(name, known)}")
        return OPTIMIZERS[name]


def check(work: Workload) -> None:
    """Raise WorkloadError for the first setting that is out of range or contradicts another."""
    arch = work.architecture
    one_of("method", work.method, METHODS)
    one_of("strategy", work.strategy, STRATEGIES)
    one_of("attention", work.attention, ATTENTIONS)
    if work.quant is not None:
        one_of("quant", work.quant, tuple(QUANT_BYTES))
    _ = work.optimizer_facts
    for name in ("sequence_len", "micro_batch_size", "gradient_accumulation_steps", "gpus"):
        if getattr(work, name) < 1:
            raise WorkloadError(f"{name}: {getattr(work, name)} is below 1")
    if work.method == "full" and work.quant:
        raise WorkloadError(
            f"quant: {work.quant} weights cannot be fully fine-tuned; use method: qlora, "
            "or drop the quantisation"
        )
    if work.method != "full":
        _check_lora(work)
    if arch.max_positions and work.sequence_len > arch.max_positions:
        raise WorkloadError(
            f"sequence_len: {work.sequence_len} is above the {arch.max_positions} positions of "
            f"{arch.name}; use {arch.max_positions} or less"
        )
    if work.packing and work.attention == "eager":
        raise WorkloadError(
            "packing: eager attention cannot keep packed examples apart; "
            "use flash attention or packing: false"
        )
    if work.gpus > 1 and work.strategy == "none":
        raise WorkloadError("strategy: more than one GPU needs ddp, zero1, zero2, zero3 or fsdp")


def _check_lora(work: Workload) -> None:
    if work.lora_rank < 1:
        raise WorkloadError(f"lora_rank: {work.lora_rank} trains nothing; use 8, 16 or 32")
    if not work.lora_targets:
        raise WorkloadError("lora_targets: empty; name at least one of " + ", ".join(TARGETS))
    for target in sorted(work.lora_targets):
        one_of("lora_targets", target, TARGETS)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise WorkloadError, with the nearest allowed word, where `value` is not allowed."""
    if value not in allowed:
        raise WorkloadError(f"{name}: {value!r} is not known{_near(value, list(allowed))}")


def _near(value: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.3)
    return f"; nearest: {near[0]}" if near else f"; one of {', '.join(allowed)}"


def lora_params(work: Workload) -> int:
    """Return the elements of all adapters: rank x (in + out) for every targeted matrix."""
    if work.method == "full":
        return 0
    arch = work.architecture
    mlp_copies, width = 1, arch.intermediate
    if arch.experts:
        # PEFT reaches router experts only where their matrices are named; "experts" says so.
        mlp_copies = arch.experts if "experts" in work.lora_targets else 0
        width = arch.moe_intermediate
    shapes = {
        "q": (arch.hidden + arch.q_width, 1),
        "k": (arch.hidden + arch.kv_width, 1),
        "v": (arch.hidden + arch.kv_width, 1),
        "o": (arch.q_width + arch.hidden, 1),
        "gate": (arch.hidden + width, mlp_copies if arch.gated_mlp else 0),
        "up": (arch.hidden + width, mlp_copies),
        "down": (width + arch.hidden, mlp_copies),
    }
    per_layer = sum(shapes[t][0] * shapes[t][1] for t in work.lora_targets & shapes.keys())
    head = (arch.hidden + arch.vocab) if "head" in work.lora_targets else 0
    return work.lora_rank * (arch.layers * per_layer + head)
