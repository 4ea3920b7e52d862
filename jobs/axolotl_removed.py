"""Keys that older Axolotl versions had: what to say instead, and what is put right by itself.

Read in axolotl 0.21.0 (`utils/schemas/deprecated.py`, `validation.py`, `config.py`) and checked
against the real one by tests/e2e/test_axolotl_accepts.py. A key that only changed its name is
renamed with a note; one whose meaning is gone is refused.
"""

from __future__ import annotations

from typing import Any

from jobs.axolotl_keys import Fault

# Gone: refused when set to anything but false or null. The words say what to do.
REMOVED: dict[str, str] = {
    "max_packed_sequence_len": "Use sequence_len with sample_packing",
    "rope_scaling": "Put it under model_config: {rope_scaling: ...}",
    "s2_attention": "Leave it out; long sequences go with attn_implementation: sdpa",
    "flash_attn_rms_norm": "Leave it out, or use the plugin liger with liger_rms_norm",
    "dpo_use_logits_to_keep": "Leave it out",
    "dpo_generate_during_eval": "Leave it out",
    "dpo_norm_loss": "Leave it out",
    "rpo_alpha": "Use dpo_loss_type with dpo_loss_weights",
    "fsdp": "Use fsdp_config, with fsdp_version: 2",
    "unsloth_cross_entropy_loss": "Use chunked_cross_entropy",
    "unsloth_lora_mlp": "Use lora_mlp_kernel",
    "unsloth_lora_qkv": "Use lora_qkv_kernel",
    "unsloth_lora_o": "Use lora_o_kernel",
    "unsloth_rms_norm": "Use the plugin liger with liger_rms_norm",
    "unsloth_rope": "Use the plugin liger with liger_rope",
    "flash_attn_fuse_qkv": "Leave it out",
    "lora_out_dir": "Leave it out; the result comes to `output`",
    "load_4bit": "Use load_in_4bit",
    "fsdp_transformer_layer_cls_to_wrap": "Put it under fsdp_config",
}

# Only the name changed: old -> new.
RENAMED: dict[str, str] = {
    "dataset_processes": "dataset_num_proc",
    "evaluation_strategy": "eval_strategy",
    "noisy_embedding_alpha": "neftune_noise_alpha",
    "dpo_beta": "rl_beta",
    "pretrain_multipack_buffer_size": "streaming_multipack_buffer_size",
    "sequence_parallel_degree": "context_parallel_size",
}

# One switch for each way of attention became one key; the first that is on wins, as in Axolotl.
ATTENTION_SWITCHES: dict[str, str] = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}

# Without effect in this version: dropped with a note.
IDLE = ("eval_table_size", "eval_max_new_tokens", "ring_attn_func", "heads_k_stride")

FSDP1_GONE = {
    "sharding_strategy": "Use reshard_after_forward",
    "forward_prefetch": "Leave it out",
}
FSDP1_IDLE = (
    "sync_module_states",
    "backward_prefetch",
    "backward_prefetch_policy",
    "limit_all_gathers",
    "use_orig_params",
)


def modernise(config: dict[str, Any]) -> tuple[dict[str, Any], list[str], list[Fault]]:
    """Return the configuration in this version's words, notes on changes, and what can't be."""
    result = dict(config)
    notes: list[str] = []
    faults: list[Fault] = []
    for key, remedy in REMOVED.items():
        if key in result and not result[key]:
            del result[key]
        elif key in result:
            faults.append(Fault((key,), "Axolotl no longer has this key", remedy))
            del result[key]
    for old, new in RENAMED.items():
        if old in result:
            value = result.pop(old)
            if new in result and result[new] != value:
                faults.append(Fault((old,), f"is the old name of {new}, and both are given"))
            else:
                result[new] = value
                notes.append(f"{old} is now called {new}")
    idle = [key for key in IDLE if result.pop(key, None) is not None]
    notes.extend(f"{key} has no effect in this version of Axolotl; left out" for key in idle)
    _attention(result, notes, faults)
    _offload(result, notes)
    _memory_steps(result, notes)
    _fsdp(result, notes, faults)
    return result, notes, faults


def _attention(config: dict[str, Any], notes: list[str], faults: list[Fault]) -> None:
    on = [key for key in ATTENTION_SWITCHES if config.get(key)]
    for key in ATTENTION_SWITCHES:
        config.pop(key, None)
    given = config.get("attn_implementation")
    if on and given:
        faults.append(Fault((on[0],), "contradicts attn_implementation", f"Leave out {on[0]}"))
    elif on:
        config["attn_implementation"] = ATTENTION_SWITCHES[on[0]]
        notes.append(f"{on[0]} is now called attn_implementation: {ATTENTION_SWITCHES[on[0]]}")


def _offload(config: dict[str, Any], notes: list[str]) -> None:
    ways: dict[str, bool | str] = {"offload": True, "offload_disk": "disk"}
    given = str(config.get("gradient_checkpointing"))
    if given in ways:
        config["gradient_checkpointing"] = True
        config["activation_offloading"] = ways[given]
        notes.append("gradient_checkpointing: offload is now called activation_offloading")


def _memory_steps(config: dict[str, Any], notes: list[str]) -> None:
    steps = config.pop("gc_steps", None)
    if steps is None:
        return
    config.setdefault("gc_collect_steps", steps)
    if isinstance(steps, int) and steps > 0:
        config.setdefault("torch_empty_cache_steps", steps)
    notes.append("gc_steps is now called torch_empty_cache_steps and gc_collect_steps")


def _fsdp(config: dict[str, Any], notes: list[str], faults: list[Fault]) -> None:
    settings = config.get("fsdp_config")
    if not isinstance(settings, dict):
        return
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        bare = key if key == "fsdp_version" else key.removeprefix("fsdp_")
        if bare in FSDP1_GONE:
            faults.append(
                Fault(("fsdp_config", key), "belongs to FSDP 1, which is gone", FSDP1_GONE[bare])
            )
        elif bare in FSDP1_IDLE:
            notes.append(f"fsdp_config.{key} belongs to FSDP 1; left out")
        elif bare == "version":
            kept["fsdp_version"] = value
        else:
            kept[bare] = value
    config["fsdp_config"] = kept
    for version in (config.get("fsdp_version"), kept.get("fsdp_version")):
        if version is not None and str(version) != "2":
            faults.append(Fault(("fsdp_version",), "FSDP 1 is gone", "Use fsdp_version: 2"))
            break
