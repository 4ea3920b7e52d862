"""Tokens per second of a training step, from the card's two rates and the model's shape.

A step's time is matrix work at a share of the tensor peak, plus memory traffic of the elementwise
kernels, the loss and the dequantisation at the card's bandwidth; where a step is short, the time to
launch its kernels takes over; between GPUs the slower of computing and communicating counts, with a
part of the other. docs/sizing.md lists each constant with its source or the rows it was fitted on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.workload import Workload, check

PCIE_GBS = 12.0  # PCIe 4.0 x16 between consumer cards, as NCCL reaches it through host memory
# Kernel launches of a layer beside full tuning's: adapters add two products and a cast a module, a
# quantised base one dequantisation a product.
LAUNCHES = {"full": 1.0, "lora": 1.5, "qlora": 2.0}
# auto-gptq's unfused unpacking, bytes a parameter and pass: Qwen's published 3.0 s for 8 x 256
# tokens of Qwen-7B in 4 bits, against 1.2 s in bf16. Other stacks' Triton kernels match bnb's.
UNFUSED_GPTQ_BYTES = 25.0
OPTIMIZER_BYTES = 28.0  # a parameter: weights, gradients, two moments read and written, temporaries


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The rates of one card; TFLOPS are dense bf16 with fp32 accumulation, bandwidths in GB/s."""

    name: str
    bf16_tflops: float
    bandwidth_gbs: float
    nvlink_gbs: float = 0.0  # sum of both directions, 0 = PCIe only


@dataclass(frozen=True, slots=True)
class Rates:
    """The constants of the speed model; the defaults are the shipped fit."""

    matmul: float = 0.85  # fitted: share of the tensor peak that long products reach
    ramp_tokens: float = 190.0  # fitted: tokens at which half of that share is reached
    eager: float = 8.9  # fitted: passes over a layer's tensors, one PyTorch kernel an operation
    fused: float = 5.35  # fitted: the same with fused norms, rotary, gated MLP and loss
    vocab: float = 27.0  # fitted: bytes moved per vocabulary entry and token by the loss
    dequantise: float = 3.2  # fitted: bytes moved per quantised parameter and pass
    launch_s: float = 0.0011  # fitted: launching one layer's kernels once, without adapters
    zero_launch: float = 3.3  # fitted: the same under DeepSpeed, which hooks every parameter
    link: float = 7.0  # fitted: inverse share of the link's rate that FSDP's gathers reach
    experts: float = 0.88  # fitted: share of the matmul rate with experts run one by one
    fp32_stream: float = 1.5  # fitted: elementwise traffic with an fp32 residual stream


SHIPPED = Rates()
# 10 % and 90 % quantiles of measured over forecast, groups left out in turn (docs/sizing.md).
BANDS = {
    "probed": (0.95, 1.05),  # a short run of the very configuration (gpujob probe); assumed
    "measured": (0.92, 1.08),
    "few points": (0.65, 1.25),
    "no points": (0.60, 1.40),
}
MEASURED_CARDS = frozenset({"A100-80GB"})
MEASURED_EXPERTS = 8  # Mixtral: mixtures of more and smaller experts were not measured
SEEN_CARDS = frozenset({"A100-40GB", "H100-80GB", "H100-PCIe", "L40S", "RTX4090", "RTX3090"})


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one GPU, with an 80 % band; and where a micro step's seconds go."""

    tokens_per_s: float
    low: float
    high: float
    confidence: str
    step_s: float
    parts_s: tuple[tuple[str, float], ...]


def speed(work: Workload, gpu: GpuFacts, rates: Rates = SHIPPED) -> Speed:
    """Return the speed of one of `work.gpus` cards `gpu`. Pure; raises WorkloadError."""
    check(work)
    parts = _parts(work, gpu, rates)
    compute = parts["matrix products"] + parts["elementwise"] + parts["loss"] + parts["dequantise"]
    launched = (compute**3 + parts["launch"] ** 3) ** (1 / 3)  # a smooth maximum
    link = parts["communication"]
    step = max(launched, link) + 0.3 * min(launched, link) + parts["optimizer"]
    tokens = work.tokens / step
    confidence = _confidence(work, gpu)
    low, high = BANDS[confidence]
    return Speed(tokens, tokens * low, tokens * high, confidence, step, tuple(parts.items()))


def _parts(work: Workload, gpu: GpuFacts, rates: Rates) -> dict[str, float]:
    arch, tokens = work.architecture, work.tokens
    full = work.method == "full"
    bandwidth = gpu.bandwidth_gbs * 1e9
    passes = 3 if work.checkpointing else 2
    reached: float = rates.matmul * tokens / (tokens + rates.ramp_tokens)
    reached *= rates.experts if arch.experts else 1.0
    moved: float = 24 * arch.hidden + 8 * arch.active_width + (0 if full else 16 * arch.hidden)
    moved *= rates.fused if work.fused_kernels else rates.eager
    moved *= rates.fp32_stream if work.kbit_fp32 else 1.0
    loss = rates.vocab * (0.5 if work.fused_kernels else 1.0)
    zero = rates.zero_launch if work.strategy.startswith("zero") and full else 1.0
    return {
        "matrix products": tokens * flops_per_token(work) / (gpu.bf16_tflops * 1e12 * reached),
        "elementwise": passes * tokens * moved * arch.layers / bandwidth,
        "loss": tokens * arch.vocab * loss / bandwidth,
        "dequantise": passes * _dequantised(work, rates) / bandwidth,
        "launch": arch.layers * passes * LAUNCHES[work.method] * rates.launch_s * zero,
        "communication": _moved_between(work, passes) / _link_rate(gpu, rates),
        "optimizer": _optimizer_s(work, bandwidth),
    }


def flops_per_token(work: Workload) -> float:
    """Return the floating-point operations one token costs on its GPU.

    Forward 2 a parameter; backward 2 for the input's gradient and 2 more for the weight's where
    weights train; the causal attention's products at half the square; checkpointing repeats the
    layers' forward pass (Kaplan et al. 2020; Korthikanti et al. 2022).
    """
    arch = work.architecture
    matrices = arch.active_linear + arch.vocab * arch.hidden
    attention = 2.0 * work.sequence_len * arch.q_width * arch.layers
    total = (6 if work.method == "full" else 4) * matrices + 3.5 * attention
    if work.checkpointing:
        total += 2 * arch.active_linear + attention
    return total


def _moved_between(work: Workload, passes: int) -> float:
    """Return the bytes one GPU receives in a micro step."""
    arch = work.architecture
    if work.gpus == 1:
        return 0.0
    share = (work.gpus - 1) / work.gpus
    steps = work.gradient_accumulation_steps
    gradients = 2.0 * arch.params if work.method == "full" else 0.0
    if work.shards == 1:
        return 2 * gradients * share / steps  # an all-reduce once an optimizer step
    weights = (0.52 if work.quantised else 2.0) * arch.linear_params
    return (passes * weights + 2 * gradients) * share


def _dequantised(work: Workload, rates: Rates) -> float:
    if not work.quantised:
        return 0.0
    unfused = work.stack == "qwen_remote" and work.quantised.startswith("gptq")
    each = UNFUSED_GPTQ_BYTES if unfused else rates.dequantise
    return each * work.architecture.linear_params


def _link_rate(gpu: GpuFacts, rates: Rates) -> float:
    return max(PCIE_GBS, gpu.nvlink_gbs / 2 / rates.link) * 1e9


def _optimizer_s(work: Workload, bandwidth: float) -> float:
    if work.method != "full":
        return 0.0
    sharded = work.gpus if work.strategy not in {"none", "ddp"} else 1
    per_step = OPTIMIZER_BYTES * work.architecture.params / bandwidth
    return per_step / sharded / work.gradient_accumulation_steps


def _confidence(work: Workload, gpu: GpuFacts) -> str:
    long_steps = work.tokens >= 2048
    if work.architecture.experts > MEASURED_EXPERTS:
        return "no points"
    if gpu.name in MEASURED_CARDS and long_steps:
        return "measured"
    return "few points" if gpu.name in SEEN_CARDS | MEASURED_CARDS else "no points"


@dataclass(frozen=True, slots=True)
class FixedParts:
    """Seconds of a job that do not depend on its tokens."""

    boot_s: float = 120.0
    environment_s: float = 300.0
    download_s: float = 0.0
    evaluation_s: float = 0.0
    checkpoints_s: float = 0.0
    push_s: float = 60.0

    @property
    def total_s(self) -> float:
        """Return their sum."""
        return (
            self.boot_s
            + self.environment_s
            + self.download_s
            + self.evaluation_s
            + self.checkpoints_s
            + self.push_s
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """Hours of a whole job, with an 80 % band; `training_h` is the part that tokens cause."""

    tokens: int
    tokens_per_s: float  # all GPUs together
    training_h: float
    hours: float
    low_h: float
    high_h: float
    confidence: str


def forecast(
    work: Workload,
    gpu: GpuFacts,
    tokens: int,
    fixed: FixedParts | None = None,
    rates: Rates = SHIPPED,
) -> Forecast:
    """Return the hours that `tokens` trained tokens take on `work.gpus` cards. Pure."""
    if tokens < 1:
        message = f"tokens: {tokens} is below 1; a job without tokens has no duration"
        raise ValueError(message)
    found = speed(work, gpu, rates)
    fixed_s = (fixed or FixedParts()).total_s
    rate = found.tokens_per_s * work.gpus
    training = tokens / rate
    return Forecast(
        tokens=tokens,
        tokens_per_s=rate,
        training_h=training / 3600,
        hours=(training + fixed_s) / 3600,
        low_h=(tokens / (found.high * work.gpus) + fixed_s) / 3600,
        high_h=(tokens / (found.low * work.gpus) + fixed_s) / 3600,
        confidence=found.confidence,
    )


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a running job: seconds with an 80 % band, and the corrected speed."""

    seconds: float
    low_s: float
    high_s: float
    tokens_per_s: float


def remaining(
    planned: Forecast, done_tokens: int, step_seconds: Sequence[float], tokens_per_step: int
) -> Remaining:
    """Return the time to finish from the plan and the job's own steps (the first one discarded).

    The plan's band is a log-normal prior; each step's seconds are an observation of its logarithm
    with the spread the steps show (at least 3 %). With 20 steps the plan hardly counts any more.
    """
    prior = math.log(planned.tokens / planned.tokens_per_s / planned.tokens)
    spread = _prior_spread(planned)
    seen = [math.log(s / tokens_per_step) for s in step_seconds[1:] if s > 0]
    mean, sigma = prior, spread
    if seen:
        average = sum(seen) / len(seen)
        variance = sum((x - average) ** 2 for x in seen) / max(1, len(seen) - 1)
        noise = max(variance, 0.03**2) / len(seen)
        weight = spread**2 / (spread**2 + noise)
        mean = weight * average + (1 - weight) * prior
        sigma = math.sqrt(spread**2 * noise / (spread**2 + noise))
    left = max(0, planned.tokens - done_tokens)
    per_token = math.exp(mean)
    margin = math.exp(1.2816 * sigma)
    return Remaining(
        left * per_token, left * per_token / margin, left * per_token * margin, 1 / per_token
    )


def _prior_spread(planned: Forecast) -> float:
    """Return the standard deviation of the plan's logarithm that its 80 % band implies."""
    low, high = BANDS[planned.confidence]
    return (math.log(high) - math.log(low)) / 2 / 1.2816
