"""The settings that would lower a footprint, each with its effect: what to change first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jobs.memory import Footprint, footprint
from jobs.workload import Workload, WorkloadError

WORTH_SHOWING_GIB = 0.05


@dataclass(frozen=True, slots=True)
class Lever:
    """One change: the settings, the GiB it frees on each GPU, and what it costs besides."""

    name: str
    changes: tuple[tuple[str, object], ...]
    saves_gib: float
    device_gib: float
    binding: str  # the phase that binds afterwards
    same_result: bool  # the effective batch, the method and the data stay as they are
    costs: str

    def apply(self, work: Workload) -> Workload:
        """Return `work` with the changes made."""
        return replace(work, **dict(self.changes))  # type: ignore[arg-type]


def levers(work: Workload) -> tuple[Lever, ...]:
    """Return every change that frees memory, the largest effect first. Pure."""
    free = replace(work, gpu_gib=None)
    now = footprint(free)
    found = []
    for name, changes, same, costs in _candidates(work):
        try:
            after = footprint(replace(free, **changes))  # type: ignore[arg-type]
        except WorkloadError:
            continue
        if now.device_gib - after.device_gib >= WORTH_SHOWING_GIB:
            found.append(_lever(name, changes, now, after, same=same, costs=costs))
    return tuple(sorted(found, key=lambda lever: (-lever.saves_gib, lever.name)))


def _lever(
    name: str,
    changes: dict[str, object],
    now: Footprint,
    after: Footprint,
    *,
    same: bool,
    costs: str,
) -> Lever:
    return Lever(
        name,
        tuple(sorted(changes.items())),
        now.device_gib - after.device_gib,
        after.device_gib,
        after.binding,
        same,
        costs,
    )


def _candidates(work: Workload) -> Iterator[tuple[str, dict[str, object], bool, str]]:
    """Yield name, changes, whether the training stays the same, and the price in words."""
    if work.loss_kernel not in {"liger", "liger_flce", "fused", "cce", "cut_cross_entropy"}:
        yield "fused loss", {"loss_kernel": "liger"}, True, "costs nothing; usually faster"
    if not work.fused_kernels:
        yield "fused norm and MLP kernels", {"fused_kernels": True}, True, "nothing; faster"
    if work.micro_batch_size > 1:
        half = work.micro_batch_size // 2
        steps = -(-work.micro_batch_size * work.gradient_accumulation_steps // half)
        changes: dict[str, object] = {
            "micro_batch_size": half,
            "gradient_accumulation_steps": steps,
        }
        exact = half * steps == work.micro_batch_size * work.gradient_accumulation_steps
        yield f"micro batch {half}", changes, exact, "shorter steps, a little slower"
    if not work.checkpointing:
        yield "checkpointing", {"checkpointing": True}, True, "a third more computing"
    if work.checkpointing and not work.activation_offload:
        yield "activation offload", {"activation_offload": True}, True, "host RAM and PCIe time"
    if work.optimizer_facts.temporary:
        yield "fused optimizer", {"optimizer": "adamw_torch_fused"}, True, "nothing; faster"
    if work.optimizer_facts.states >= 1 or work.optimizer_facts.state_bytes > 3:
        yield "8-bit optimizer", {"optimizer": "adamw_bnb_8bit"}, False, "8-bit states"
    if work.method == "full":
        yield "lora", {"method": "lora"}, False, "adapters instead of all weights"
    if work.method == "lora" and not work.quant:
        yield "qlora", {"method": "qlora"}, False, "4-bit base weights, slower short steps"
    if work.method != "full" and work.lora_rank > 1:
        rank = work.lora_rank // 2
        yield f"lora rank {rank}", {"lora_rank": rank}, False, "half of the adapters' capacity"
    if work.sequence_len > 256:
        length = work.sequence_len // 2
        yield f"sequence length {length}", {"sequence_len": length}, False, "longer examples cut"
    if work.strategy in {"none", "ddp", "zero1", "zero2"}:
        gpus = max(2, work.gpus)
        yield f"fsdp over {gpus} GPUs", {"gpus": gpus, "strategy": "fsdp"}, False, "more GPUs"
    elif not work.offload_params and work.method != "full":
        yield "weights offload", {"offload_params": True}, True, "host RAM and PCIe time"
