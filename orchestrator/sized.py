"""How a job runs on one kind of machine: memory, strategy, speed, hours. Pure, and remembered.

Cards of one name and number are judged once, so that ten thousand offers cost little more than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobs.memory_host import disk, host_ram
from jobs.requirement import Requirement as Need
from jobs.requirement import requirement
from jobs.sizing import Tokens, on_gpus
from jobs.throughput import FixedParts, GpuFacts, forecast
from jobs.workload import Workload, WorkloadError
from providers.gpus import Gpu, lookup

MAX_GPUS = 8  # of one machine; more nodes are not supported
# Share of the memory as sold that a process gets, on cards that no table knows (providers/gpus.py:
# the lowest share there is 0.91).
UNKNOWN_USABLE = 0.91
FP8_CAPABILITY = (8, 9)  # Ada and Hopper (CUDA programming guide)
HUB_BYTES_PER_S = 200e6  # a model's download in a data centre: hundreds of MB a second are usual
SPOT_LOSS_PER_HOUR = 0.05  # a guess, no provider publishes it: one interruption in 20 hours
PROBED = 1.05  # a probe's tokens per second hold within so much over the run (80 %)
CHECKPOINT_SHARE = 0.05  # of the run lost in one: half of a tenth, the default between checkpoints


@dataclass(frozen=True, slots=True)
class Fit:
    """One way to run the job on a kind of machine. Hours are of the whole job, None: not known.

    spot_h: hours that are paid on average where the machine may be called back.
    """

    work: Workload
    need: Need
    usable_gib: float
    tokens_per_s: float | None = None
    hours: float | None = None
    low_h: float | None = None
    high_h: float | None = None
    spot_h: float | None = None
    confidence: str = ""

    @property
    def strategy(self) -> str:
        """Return `none`, `ddp` or `fsdp`."""
        return self.work.strategy


@dataclass(slots=True)
class Sized:
    """The job on any number of GPUs. `tokens` None: only memory is judged.

    keep_batch: on several GPUs the accumulation is divided (the person named no number of GPUs).
    wants_bf16, wants_fp8: what the configuration asks of a card.
    measured: (card, GPUs) -> tokens per second of a probe of this very configuration.
    """

    work: Workload
    tokens: Tokens | None = None
    keep_batch: bool = True
    wants_bf16: bool = True
    wants_fp8: bool = False
    kept_checkpoints: int = 2
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    _known: dict[tuple[str, int, float], Fit | str] = field(default_factory=dict)
    _needs: dict[tuple[int, str], Need | str] = field(default_factory=dict)

    def fit(self, gpu: str, count: int, vram_gib: float) -> Fit | str:
        """Return how the job runs on so many of these cards, or why it cannot, in words."""
        key = (gpu, count, vram_gib)
        if key not in self._known:
            self._known[key] = self._fit(gpu, count, vram_gib)
        return self._known[key]

    def need(self, count: int = 1, strategy: str = "none") -> Need | str:
        """Return what the job asks of a machine of so many GPUs, or why it cannot be so run."""
        key = (count, strategy)
        if key not in self._needs:
            self._needs[key] = self._need(count, strategy)
        return self._needs[key]

    def changed(self, work: Workload) -> Sized:
        """Return the same job with other settings of the training."""
        return replace(self, work=work, _known={}, _needs={})

    def _need(self, count: int, strategy: str) -> Need | str:
        work = on_gpus(self.work, count, strategy, keep_batch=self.keep_batch)
        if work is None:
            steps = self.work.gradient_accumulation_steps
            return f"{steps} accumulated batches cannot be shared by {count} GPUs"
        try:
            return requirement(work, kept_checkpoints=self.kept_checkpoints)
        except WorkloadError as error:
            return str(error)

    def _fit(self, gpu: str, count: int, vram_gib: float) -> Fit | str:
        facts = lookup(gpu)
        if count > MAX_GPUS:
            return f"has {count} GPUs; one machine of up to {MAX_GPUS} is planned with"
        unable = self._unable(facts)
        if unable:
            return unable
        usable = self.usable_gib(gpu, vram_gib)
        why = ""
        for strategy in ("none",) if count == 1 else ("ddp", "fsdp"):
            need = self.need(count, strategy)
            if isinstance(need, str):
                why = need
                continue
            if need.vram_gib <= usable:
                return self._timed(need, facts, count, usable, strategy)
            why = (
                f"needs up to {need.vram_gib:.1f} GiB a GPU "
                f"({need.footprint.device_gib:.1f} expected), has {usable:.1f}"
            )
        return why

    @staticmethod
    def usable_gib(gpu: str, vram_gib: float) -> float:
        """Return what a process can have of one card."""
        facts = lookup(gpu)
        return facts.usable_gib if facts else vram_gib * UNKNOWN_USABLE

    def _unable(self, facts: Gpu | None) -> str:
        if facts is None:
            return ""
        if facts.capability is None:
            return "is no CUDA card; the environment is built for CUDA"
        if self.wants_bf16 and not facts.has_bf16:
            return "has no bfloat16; axolotl.bf16: false with fp16: true asks for less"
        if self.work.attention == "flash" and facts.capability < (8, 0):
            return "is too old for FlashAttention (compute capability 8.0)"
        if self.wants_fp8 and facts.capability < FP8_CAPABILITY:
            return "has no FP8 (compute capability 8.9)"
        return ""

    def _timed(
        self, need: Need, facts: Gpu | None, count: int, usable: float, strategy: str
    ) -> Fit:
        work = on_gpus(self.work, count, strategy, keep_batch=self.keep_batch)
        assert work is not None  # noqa: S101 - its need was just judged
        bare = Fit(work, need, usable)
        if facts is None or self.tokens is None:
            return bare
        card = GpuFacts(facts.name, facts.bf16_tflops, facts.memory_gb_per_s, facts.nvlink_gb_per_s)
        fixed = self.fixed()
        found = forecast(work, card, self.tokens.trained, fixed)
        rate, low_h, high_h = found.tokens_per_s, found.low_h, found.high_h
        confidence, training_h = found.confidence, found.training_h
        seen = self.measured.get((facts.name, count))
        if seen:
            rate, confidence, training_h = seen, "probed", self.tokens.trained / seen / 3600
            fixed_h = fixed.total_s / 3600
            low_h, high_h = training_h / PROBED + fixed_h, training_h * PROBED + fixed_h
        # A forward pass is a third of a step's work.
        evaluation_h = self.tokens.evaluated / rate / 3 / 3600
        hours = training_h + fixed.total_s / 3600 + evaluation_h
        lost = training_h * CHECKPOINT_SHARE + fixed.total_s / 3600
        return replace(
            bare,
            tokens_per_s=rate,
            hours=hours,
            low_h=low_h + evaluation_h,
            high_h=high_h + evaluation_h,
            spot_h=hours + SPOT_LOSS_PER_HOUR * hours * lost,
            confidence=confidence,
        )

    def fixed(self) -> FixedParts:
        """Return the seconds that do not depend on the tokens: boot, environment, model, push."""
        return FixedParts(download_s=2.0 * self.work.architecture.params / HUB_BYTES_PER_S)

    def disk_gib(self) -> float:
        """Return the disk that the job needs."""
        return disk(self.work, kept_checkpoints=self.kept_checkpoints).total_gib

    def host_ram_gib(self) -> float:
        """Return the main memory that the job needs on one GPU."""
        return host_ram(self.work).total_gib
