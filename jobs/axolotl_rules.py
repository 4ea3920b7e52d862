"""What a configuration must not say at once, and figures that make no sense: Axolotl's and ours.

Axolotl's schema passes `lora_r: -1` and its loader passes much more, which then fails, or trains
the wrong thing, on the rented machine. Each rule takes the settled configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jobs import axolotl_names as names
from jobs.axolotl_keys import Fault, check_keys, nearest
from jobs.load_secrets import MESSAGE, REMEDY, secrets_of
from jobs.load_yaml import KeyPath

Config = dict[str, Any]

# key: (least, most, is the least itself allowed). What lies outside can't be meant. Where JobSpec
# has the key too, its bounds are the same (tests/unit/test_axolotl_rules.py).
RANGES: dict[str, tuple[float, float, bool]] = {
    "sequence_len": (16, 1_048_576, True),
    "eval_sequence_len": (16, 1_048_576, True),
    "micro_batch_size": (1, 4096, True),
    "eval_batch_size": (1, 65536, True),
    "gradient_accumulation_steps": (1, 65536, True),
    "num_epochs": (0, 1000, False),
    "max_steps": (1, 10**9, True),
    "learning_rate": (0, 1, False),
    "embedding_lr": (0, 1, False),
    "weight_decay": (0, 1, True),
    "warmup_ratio": (0, 0.99, True),
    "warmup_steps": (0, 10**9, True),
    "max_grad_norm": (0, 10**6, True),
    "lora_r": (1, 4096, True),
    "lora_alpha": (1, 65536, True),
    "lora_dropout": (0, 0.99, True),
    "val_set_size": (0, 10**9, True),
    "eval_steps": (0, 10**9, False),
    "evals_per_epoch": (0, 10**6, False),
    "logging_steps": (1, 10**6, True),
    "neftune_noise_alpha": (0, 1000, False),
    "seed": (0, 2**32 - 1, True),
    "cosine_min_lr_ratio": (0, 1, True),
    "early_stopping_patience": (1, 10**6, True),
}

# Both at once contradict each other.
PAIRS: tuple[tuple[str, str], ...] = (
    ("warmup_steps", "warmup_ratio"),
    ("eval_steps", "evals_per_epoch"),
    ("save_steps", "saves_per_epoch"),
    ("val_set_size", "test_datasets"),
    ("deepspeed", "fsdp_config"),
    ("max_memory", "gpu_memory_limit"),
    ("lr_groups", "loraplus_lr_ratio"),
    ("load_in_4bit", "load_in_8bit"),
    ("use_dft", "use_eaft"),
    ("sample_packing", "rl"),
    ("pretraining_dataset", "val_set_size"),
    ("streaming", "val_set_size"),
    ("bf16", "fp16"),
    ("dataset_exact_deduplication", "streaming"),
    ("dataset_exact_deduplication", "skip_prepare_dataset"),
)

# The first is without meaning, or fails, unless the second is set.
NEEDS: tuple[tuple[str, str], ...] = (
    ("activation_offloading", "gradient_checkpointing"),
    ("selective_checkpointing", "gradient_checkpointing"),
    ("peft_layers_pattern", "peft_layers_to_transform"),
    ("fp8_config", "fp8"),
    ("fp32_norms", "fsdp_config"),
    ("torch_compile_options", "torch_compile"),
    ("deepcompile", "deepspeed"),
    ("relora", "jagged_restart_steps"),
    ("pretraining_dataset", "max_steps"),
    ("streaming", "max_steps"),
    ("label_balance_window_optim_steps", "balance_labels"),
)

ADAPTER_ONLY = ("peft", "loraplus_lr_ratio", "relora", "qlora_sharded_model_loading")
CROSS_ENTROPY = (
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "liger_cross_entropy",
    "liger_fused_linear_cross_entropy",
)


def check_config(config: Config) -> list[Fault]:
    """Return every fault of a configuration that is about to be sent: keys, types and rules."""
    plugins = [name for name in config.get("plugins") or [] if name != names.PLUGIN]
    settled, faults = check_keys(config, plugins)
    wrong = {fault.path[0] for fault in faults}
    sound = {key: value for key, value in settled.items() if key not in wrong}
    return faults + [fault for fault in check_rules(sound) if fault.path[0] not in wrong]


def check_rules(config: Config) -> list[Fault]:
    """Return every fault of a settled configuration, method and datasets included."""
    return [fault for rule in RULES for fault in rule(config)]


def _ranges(config: Config) -> Iterator[Fault]:
    for key, (least, most, inclusive) in RANGES.items():
        value = config.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if value > most or value < least or (value == least and not inclusive):
            if key == "learning_rate" and value == least:
                yield Fault((key,), "0 learns nothing", "2e-4 is usual for lora, 2e-5 for full")
                continue
            bound = f"from {least:g}" if inclusive else f"above {least:g}"
            shown = f"{value:g}" if abs(value) < 10**18 else "so large a number"
            yield Fault((key,), f"{shown} is out of range; it goes {bound} to {most:g}")


def _required(config: Config) -> Iterator[Fault]:
    if config.get("learning_rate") is None:
        yield Fault(("learning_rate",), "missing; Axolotl has no default for it")


def _pairs(config: Config) -> Iterator[Fault]:
    for one, other in PAIRS:
        if config.get(one) and config.get(other) and config[one] != "auto":
            yield Fault((one,), f"can't be used together with {other}", "Leave one of them out")
    losses = [key for key in CROSS_ENTROPY if config.get(key)]
    if len(losses) > 1:
        yield Fault((losses[0],), f"can't be used together with {losses[1]}", "Keep one of them")


def _needs(config: Config) -> Iterator[Fault]:
    for key, other in NEEDS:
        value = config.get(key)
        on = value is True or (value and value != 1)  # 1 is the idle value of the counters here
        if on and not config.get(other):
            yield Fault((key,), f"needs {other}", f"Set {other}, or leave {key} out")


def _model(config: Config) -> Iterator[Fault]:
    """Axolotl guesses the kind of model from the letters of its name: "prompt" holds "mpt"."""
    name = str(config.get("base_model", "")).lower()
    for letters, key in (("mpt", "gradient_checkpointing"), ("falcon", "fsdp_config")):
        if letters in name and config.get(key):
            yield Fault(
                ("base_model",),
                f"Axolotl takes {config['base_model']} by its name for a model of kind {letters}, "
                f"and refuses {key} with it",
                f"Turn {key} off, or fetch the model and name its folder",
            )


def _adapter(config: Config) -> Iterator[Fault]:
    adapter = config.get("adapter")
    if adapter not in (None, "lora", "qlora"):
        yield Fault(("adapter",), f"gpujob has no method {adapter}", "Use lora or qlora")
        return
    four, eight = config.get("load_in_4bit"), config.get("load_in_8bit")
    if adapter is None and (four or eight):
        key = "load_in_4bit" if four else "load_in_8bit"
        yield Fault((key,), "a full fine-tune can't change quantized weights", "Leave it out")
    if adapter == "qlora" and not four:
        yield Fault(("load_in_4bit",), "qlora needs load_in_4bit: true", "Leave it to gpujob")
    if adapter == "qlora" and config.get("gptq"):
        yield Fault(("gptq",), "can't be used with qlora", "Use method: lora")
    if adapter is None:
        for key in config:
            if config[key] and (key in ADAPTER_ONLY or key.startswith("lora_")):
                yield Fault((key,), "belongs to an adapter, and method is full", "Leave it out")
        return
    for key in ("lora_r", "lora_alpha"):
        if config.get(key) is None:
            yield Fault((key,), "missing; an adapter needs it", "16 and 32 are usual")
    targets = ("lora_target_modules", "lora_target_linear", "lora_target_parameters")
    if not any(config.get(key) for key in targets):
        yield Fault(
            ("lora_target_modules",), "no module would get an adapter", "Set lora_target_linear"
        )
    if config.get("lora_target_parameters") and config.get("lora_dropout"):
        yield Fault(("lora_dropout",), "must be 0 with lora_target_parameters")
    if eight and any(config.get(f"lora_{part}_kernel") for part in ("mlp", "qkv", "o")):
        yield Fault(("load_in_8bit",), "the lora kernels don't take 8-bit weights")


def _evaluation(config: Config) -> Iterator[Fault]:
    held_back = config.get("val_set_size") or config.get("test_datasets")
    for key in ("eval_steps", "eval_strategy"):
        value = config.get(key)
        if value and value != "no" and not held_back:
            yield Fault((key,), "there is nothing to evaluate on", "Set data.validation")
    strategy = config.get("eval_strategy")
    if strategy not in (None, "no", "steps", "epoch"):
        yield Fault(("eval_strategy",), f"Axolotl has no {strategy}", "no, steps or epoch")
    elif strategy not in (None, "steps") and config.get("eval_steps"):
        yield Fault(("eval_strategy",), f"{strategy} contradicts eval_steps", "Leave one out")
    elif strategy not in (None, "steps") and config.get("evals_per_epoch"):
        yield Fault(("eval_strategy",), f"{strategy} contradicts evals_per_epoch", "Leave one out")
    every, saves = config.get("eval_steps") or 0, config.get("save_steps") or 0
    if not config.get("early_stopping_patience"):
        return
    if not (every and saves):
        yield Fault(("early_stopping_patience",), "needs eval_steps and save_steps")
    elif saves % every:
        yield Fault(("early_stopping_patience",), "eval_steps must divide save_steps evenly")


def _attention(config: Config) -> Iterator[Fault]:
    attention = config.get("attn_implementation") or ""
    if attention and "/" not in attention and attention not in names.ATTENTION:
        like = names.ATTENTION_WORDS.get(attention) or nearest(attention, names.ATTENTION)
        yield Fault(
            ("attn_implementation",),
            f"Axolotl has no attention {attention}",
            f"Did you mean {like}?" if like else f"It has {', '.join(sorted(names.ATTENTION))}",
        )
    elif config.get("sample_packing"):
        base = attention.split(":", 1)[0].split("@", 1)[0]
        if base not in names.PACKING_ATTENTION:
            yield Fault(
                ("sample_packing",),
                f"with attention {attention or 'not set'} packed examples would see each other",
                "Set attn_implementation: sdpa, or training.packing: false",
            )
    if config.get("batch_flattening") is True and config.get("sample_packing"):
        yield Fault(("batch_flattening",), "can't be used together with sample_packing")


def _words(config: Config) -> Iterator[Fault]:
    known = (("optimizer", names.OPTIMIZERS), ("lr_scheduler", names.SCHEDULERS))
    for key, allowed in known:
        value = config.get(key)
        if isinstance(value, str) and value not in allowed:
            like = names.OPTIMIZER_WORDS.get(value) or nearest(value, allowed)
            remedy = f"Did you mean {like}?" if like else "See docs/job-file.md for the list"
            yield Fault((key,), f"Axolotl has no {key} {value}", remedy)
    yield from _template(config, ())


def _template(config: Config, path: KeyPath) -> Iterator[Fault]:
    template = config.get("chat_template")
    if template is None:
        return
    bare = str(template).removeprefix(names.FALLBACK_TEMPLATE)
    if bare not in names.CHAT_TEMPLATES:
        like = nearest(bare, names.CHAT_TEMPLATES)
        remedy = f"Did you mean {like}?" if like else "chatml is the usual one"
        yield Fault((*path, "chat_template"), f"Axolotl has no chat template {template}", remedy)
    elif bare == "jinja" and not config.get("chat_template_jinja"):
        yield Fault((*path, "chat_template_jinja"), "missing; chat_template is jinja")


def _datasets(config: Config) -> Iterator[Fault]:
    if not config.get("datasets") and not config.get("pretraining_dataset"):
        yield Fault(("datasets",), "no data to train on", "Set data.train and data.format")
    for key in ("datasets", "test_datasets"):
        for at, dataset in enumerate(config.get(key) or []):
            kind = dataset.get("type")
            if isinstance(kind, str) and kind.startswith("sharegpt"):
                yield Fault(
                    (key, at, "type"),
                    f"Axolotl no longer has {kind}",
                    "Use type: chat_template with field_messages: conversations and "
                    "message_property_mappings: {role: from, content: value}",
                )
            if not dataset.get("path"):
                yield Fault((key, at, "path"), "missing")
            yield from _template(dataset, (key, at))


def _files(config: Config) -> Iterator[Fault]:
    for key in names.FILE_KEYS:
        value = config.get(key)
        if not isinstance(value, str) or "{" in value:
            continue
        if key == "deepspeed":
            yield Fault((key,), "a file here is not on the instance", "Write it as a mapping")
        elif key == "chat_template_jinja" or value.startswith(("/", "./", "../", "~")):
            yield Fault((key,), f"{value} is not on the instance", "Leave it out")


def _secrets(config: Config) -> Iterator[Fault]:
    for path in secrets_of(config, by_name=True):
        yield Fault(path, MESSAGE, REMEDY)


RULES: tuple[Callable[[Config], Iterator[Fault]], ...] = (
    _required,
    _ranges,
    _pairs,
    _needs,
    _model,
    _adapter,
    _evaluation,
    _attention,
    _words,
    _datasets,
    _files,
    _secrets,
)
