"""The shape oracle: a training step on `meta` tensors, with every storage counted.

Real transformers, real PEFT and real AdamW run two optimizer steps on the `meta` device, where a
tensor has a shape and a storage size but no data. A dispatch mode registers each new storage and
subtracts it when it dies, so the peak is torch's own *allocated* peak, exact to its 512-byte
rounding, in seconds and on any CPU. It does not see bitsandbytes, Triton, NCCL, the allocator or
the CUDA context; `jobs.memory` adds those. torch, transformers and peft are imported lazily.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jobs.architectures import Architecture

BLOCK_BYTES = 512  # the CUDA caching allocator rounds every request up to this (torch c10/cuda)
_FLASH = "gpujob_oracle"  # a name with "flash" in it would be looked up as a kernel
_TARGETS = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}


class OracleUnavailableError(RuntimeError):
    """torch, transformers or peft is missing, or cannot build this architecture."""


@dataclass(frozen=True, slots=True)
class OracleRun:
    """What the oracle is to run; one GPU, weights in bf16, AdamW with foreach."""

    architecture: Architecture
    micro_batch_size: int
    sequence_len: int
    lora_targets: frozenset[str] = frozenset()  # empty = full fine-tuning
    lora_rank: int = 0
    checkpointing: bool = True
    attention: str = "flash"  # "flash" or "eager"
    outputs_kept: bool = True  # transformers' Trainer holds the logits through the backward pass


class _Ledger:
    """The living storages and the highest sum they ever reached, in bytes."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self._seen: dict[int, int] = {}

    def add(self, storage: Any) -> None:
        key = storage._cdata  # noqa: SLF001 - the only stable identity a storage has
        if key in self._seen:
            return
        size = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
        self._seen[key] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.live -= self._seen.pop(key, 0)


def exact_peak_gib(run: OracleRun) -> float:
    """Return torch's allocated peak in GiB of two steps of `run`, counted storage by storage.

    Raises OracleUnavailableError where torch, transformers or peft cannot be imported.
    """
    try:
        import peft  # noqa: F401
        import torch
        import transformers  # noqa: F401
    except ImportError as exc:
        message = f"the exact check needs torch, transformers and peft here: {exc}"
        raise OracleUnavailableError(message) from exc
    ledger = _Ledger()
    _register_flash()
    with torch.device("meta"):
        model = _build(run)
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trainable, lr=1e-4, foreach=True)
        for tensor in [*model.parameters(), *model.buffers()]:
            ledger.add(tensor.untyped_storage())
        base = model.get_base_model() if run.lora_targets else model
        with _counting(ledger), _without_masks(base):
            for _ in range(2):
                _step(model, optimizer, run)
    return float(ledger.peak) / 2**30


def _step(model: Any, optimizer: Any, run: OracleRun) -> None:
    import torch

    shape = (run.micro_batch_size, run.sequence_len)
    ids = torch.zeros(shape, dtype=torch.long, device="meta")
    outputs = model(input_ids=ids, labels=ids, use_cache=False)
    loss = outputs.loss
    if not run.outputs_kept:
        outputs = None
    loss.backward()
    del outputs  # the Trainer's step has returned when the optimizer runs
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _build(run: OracleRun) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    config = _config(run.architecture)
    config._attn_implementation = "eager" if run.attention == "eager" else _FLASH  # noqa: SLF001
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.train()
    if run.checkpointing:
        options = {"use_reentrant": False, "preserve_rng_state": False}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        if run.lora_targets:
            model.enable_input_require_grads()
    if run.lora_targets:
        from peft import LoraConfig, get_peft_model

        names = _module_names(model, run.lora_targets)
        lora = LoraConfig(
            r=run.lora_rank, lora_alpha=run.lora_rank, lora_dropout=0.0, target_modules=names
        )
        model = get_peft_model(model, lora)
    return model


def _module_names(model: Any, targets: frozenset[str]) -> list[str]:
    """Return the targeted modules' names; some families fuse q, k, v and gate, up into one."""
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    wanted = {_TARGETS[target] for target in targets}
    if "qkv_proj" in present and targets & {"q", "k", "v"}:
        wanted.add("qkv_proj")
    if "gate_up_proj" in present and targets & {"gate", "up"}:
        wanted.add("gate_up_proj")
    return sorted(wanted & present)


def _config(arch: Architecture) -> Any:
    from transformers import AutoConfig

    experts = {
        "num_local_experts": arch.experts,
        "num_experts": arch.experts,
        "num_experts_per_tok": arch.experts_per_token,
        "moe_intermediate_size": arch.moe_intermediate,
    }
    try:
        return AutoConfig.for_model(
            arch.family,
            hidden_size=arch.hidden,
            intermediate_size=arch.intermediate,
            num_hidden_layers=arch.layers,
            num_attention_heads=arch.heads,
            num_key_value_heads=arch.kv_heads,
            head_dim=arch.head_dim,
            vocab_size=arch.vocab,
            tie_word_embeddings=arch.tied,
            attention_bias=arch.attention_bias,
            max_position_embeddings=arch.max_positions or 131072,
            pad_token_id=0,
            **(experts if arch.experts else {}),
        )
    except (KeyError, ValueError, TypeError) as exc:
        message = f"{arch.name}: transformers builds no {arch.family!r} from these numbers: {exc}"
        raise OracleUnavailableError(message) from exc


@contextmanager
def _counting(ledger: _Ledger) -> Iterator[None]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Count(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                    ledger.add(leaf.untyped_storage())
            return result

    with Count():
        yield


def _register_flash() -> None:
    """Register an attention that keeps what a flash kernel keeps: q, k, v, out, logsumexp."""
    from transformers import AttentionInterface

    AttentionInterface.register(_FLASH, _flash_forward())


@contextmanager
def _without_masks(model: Any) -> Iterator[None]:
    """Build no mask: its packed-sequence check reads a value, which a meta tensor has not."""
    module = sys.modules[type(model).__module__]
    names = ("create_causal_mask", "create_sliding_window_causal_mask")
    kept = {name: getattr(module, name) for name in names if hasattr(module, name)}
    for name in kept:
        setattr(module, name, lambda *_args, **_kwargs: None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


def _flash_forward() -> Callable[..., tuple[Any, None]]:
    import torch

    class Flash(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            out = torch.empty_like(q)
            lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, Any, Any]:  # noqa: ARG004
            q, k, v, _out, _lse = ctx.saved_tensors
            return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    def forward(
        _module: Any, query: Any, key: Any, value: Any, _mask: Any = None, **_kwargs: Any
    ) -> tuple[Any, None]:
        return Flash.apply(query, key, value).transpose(1, 2), None

    return forward
