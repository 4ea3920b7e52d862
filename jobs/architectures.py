"""Facts of base models: the shape numbers that decide memory and speed.

Two sources: the bundled table `architectures.csv` (94 models; shapes from the models' own
configurations, each recomputed to within 1 % of its published parameter count; `checked=litgpt`
where litgpt's public configuration table agrees, `count` where only the count was checked) and any
`config.json` in a folder, which needs no table. An unknown model is an error that says what to
give.
"""

import csv
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("architectures.csv")

# Decoder families whose blocks the closed form describes; the word is transformers' `model_type`.
FAMILIES = frozenset(
    {
        "apertus", "baichuan", "chatglm", "falcon", "gemma", "gemma2", "gemma3_text", "gpt_bigcode",
        "gpt_neox", "gpt_oss", "granite", "internlm2", "llama", "ministral", "mistral", "mixtral",
        "mpt", "olmo2", "olmo3", "phi", "phi3", "qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
        "seed_oss", "smollm3", "stablelm", "starcoder2",
    }
)  # fmt: skip
# Refused by name, with the reason a user can act on.
REFUSED = {
    "mamba": "state-space layers are not described by the attention formulas",
    "mamba2": "state-space layers are not described by the attention formulas",
    "jamba": "mixed state-space and attention layers are not described",
    "falcon_h1": "mixed state-space and attention layers are not described",
    "qwen3_next": "gated linear attention is not described",
    "deepseek_v2": "multi-head latent attention is not described",
    "deepseek_v3": "multi-head latent attention is not described",
    "t5": "an encoder-decoder is not a causal language model",
    "bert": "an encoder is not a causal language model",
}
QK_NORM = frozenset({"qwen3", "qwen3_moe", "olmo2", "olmo3", "gemma3_text", "apertus"})
GEMMA = frozenset({"gemma", "gemma2", "gemma3_text"})
FUSED_GATE = frozenset({"phi3"})
FUSED_QKV = frozenset({"phi3", "qwen", "gpt_neox", "gpt_bigcode", "mpt", "internlm2", "baichuan"})
SANDWICH_NORM = frozenset({"gemma2", "gemma3_text"})  # four norms a layer instead of two
LAYER_NORM = frozenset(
    {"falcon", "gpt_bigcode", "gpt_neox", "mpt", "phi", "stablelm", "starcoder2"}
)
UNGATED = frozenset({"apertus", "falcon", "gpt_bigcode", "gpt_neox", "mpt", "phi", "starcoder2"})


class ArchitectureError(ValueError):
    """An unknown, incomplete or refused model; the message says what to give instead."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a decoder-only transformer. Counts are elements, not bytes."""

    name: str
    family: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = False
    gated_mlp: bool = True
    attention_bias: bool = False
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    max_positions: int | None = None
    hf_id: str = ""
    checked: str = "config"

    @property
    def q_width(self) -> int:
        """Return heads x head_dim, the width of the queries and of the attention's output."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Return kv_heads x head_dim, the width of the keys and of the values."""
        return self.kv_heads * self.head_dim

    @property
    def embedding_params(self) -> int:
        """Return the elements of the input embedding."""
        return self.vocab * self.hidden

    @property
    def head_params(self) -> int:
        """Return the elements of the output head that are not shared with the embedding."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def attention_linear(self) -> int:
        """Return the elements of one layer's q, k, v and o matrices."""
        return 2 * self.hidden * (self.q_width + self.kv_width)

    @property
    def mlp_matrices(self) -> int:
        """Return the number of matrices of one feed-forward block: 3 if gated, else 2."""
        return 3 if self.gated_mlp else 2

    @property
    def mlp_linear(self) -> int:
        """Return the elements of one layer's feed-forward matrices, all experts included."""
        if not self.experts:
            return self.mlp_matrices * self.hidden * self.intermediate
        routed = self.experts * self.mlp_matrices * self.hidden * self.moe_intermediate
        shared = self.mlp_matrices * self.hidden * self.shared_intermediate
        return routed + shared + self.hidden * self.experts

    @property
    def active_mlp_linear(self) -> int:
        """Return the elements of the feed-forward matrices that one token passes through."""
        if not self.experts:
            return self.mlp_linear
        width = self.experts_per_token * self.moe_intermediate + self.shared_intermediate
        return self.mlp_matrices * self.hidden * width + self.hidden * self.experts

    @property
    def active_width(self) -> int:
        """Return the feed-forward width that one token sees."""
        if not self.experts:
            return self.intermediate
        return self.experts_per_token * self.moe_intermediate + self.shared_intermediate

    @property
    def linear_params(self) -> int:
        """Return the elements of all layers' matrices: what 4-bit quantisation reaches."""
        return self.layers * (self.attention_linear + self.mlp_linear)

    @property
    def norm_params(self) -> int:
        """Return the elements of norms and biases, kept in full precision by quantisers."""
        per_layer = 4 if self.family in SANDWICH_NORM else 2
        norm = self.hidden * (2 if self.family in LAYER_NORM else 1)
        bias = (self.q_width + 2 * self.kv_width) if self.attention_bias else 0
        return self.layers * (per_layer * norm + bias) + norm

    @property
    def params(self) -> int:
        """Return the parameter count computed from the shape."""
        return self.linear_params + self.norm_params + self.embedding_params + self.head_params

    @property
    def active_linear(self) -> int:
        """Return the layers' matrix elements that one token passes through."""
        return self.layers * (self.attention_linear + self.active_mlp_linear)

    @property
    def largest_matrix(self) -> int:
        """Return the elements of the largest single layer matrix (a dequantisation buffer)."""
        width = self.moe_intermediate if self.experts else self.intermediate
        return self.hidden * max(width, self.q_width)


def find(name: str) -> Architecture:
    """Return the bundled architecture called `name`: short name or hub id, case-insensitive.

    Raises ArchitectureError with the nearest known names.
    """
    table = bundled()
    wanted = name.strip().lower()
    if found := table.get(wanted):
        return found
    bare = wanted.rsplit("/", 1)[-1]
    for suffix in ("", "-hf", "-instruct", "-chat", "-it", "-base", "-bnb-4bit", "-instruct-hf"):
        if found := table.get(bare.removesuffix(suffix)):
            return found
    near = difflib.get_close_matches(bare, list(table), n=3, cutoff=0.5)
    hint = f"; nearest known: {', '.join(table[n].name for n in near)}" if near else ""
    message = f"unknown model {name!r}{hint}. Give a folder that holds its config.json"
    raise ArchitectureError(message)


@cache
def bundled() -> Mapping[str, Architecture]:
    """Return the bundled table by lower-case short name, hub id and the hub id's last part."""
    table: dict[str, Architecture] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            arch = _from_row(row)
            for key in (arch.name, arch.hf_id, arch.hf_id.rsplit("/", 1)[-1]):
                table.setdefault(key.lower(), arch)
    return table


def from_folder(folder: Path) -> Architecture:
    """Return the architecture of the `config.json` in `folder` (or of that file itself)."""
    path = folder if folder.suffix == ".json" else folder / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        message = f"{path}: cannot be read ({exc.strerror or exc}); give a folder with config.json"
        raise ArchitectureError(message) from exc
    try:
        config = json.loads(text)
    except ValueError as exc:
        message = f"{path}: not JSON ({exc})"
        raise ArchitectureError(message) from exc
    if not isinstance(config, dict):
        message = f"{path}: a model's config.json is a JSON object"
        raise ArchitectureError(message)
    return from_config(config, name=str(config.get("_name_or_path") or folder.name))


def from_config(config: Mapping[str, Any], *, name: str) -> Architecture:
    """Return the architecture that a transformers configuration describes.

    Raises ArchitectureError for a refused family, an unknown one, or a missing or senseless number.
    """
    family = str(config.get("model_type", "")).lower()
    if "vision_config" in config or "audio_config" in config:
        message = (
            f"{name}: {family or 'this model'} has a vision or audio tower, which is not sized; "
            "give the text model alone"
        )
        raise ArchitectureError(message)
    if family in REFUSED:
        message = f"{name}: model_type {family!r} is refused: {REFUSED[family]}"
        raise ArchitectureError(message)
    if family not in FAMILIES:
        near = difflib.get_close_matches(family, sorted(FAMILIES), n=2, cutoff=0.6)
        hint = f" (nearest described: {', '.join(near)})" if near else ""
        message = f"{name}: model_type {family!r} is not described{hint}; use `size --exact`"
        raise ArchitectureError(message)
    heads = _number(config, name, "num_attention_heads", "n_head", "num_heads")
    hidden = _number(config, name, "hidden_size", "n_embd", "d_model")
    inner = _number(
        config, name, "intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden
    )
    experts = _number(config, name, "num_local_experts", "num_experts", default=0)
    multi_query = 1 if config.get("multi_query") else heads
    return Architecture(
        name=name,
        family=family,
        layers=_number(config, name, "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        hidden=hidden,
        intermediate=inner,
        heads=heads,
        kv_heads=_number(
            config, name, "num_key_value_heads", "num_kv_heads", "multi_query_group_num",
            default=multi_query,
        ),
        head_dim=_number(config, name, "head_dim", "kv_channels", default=hidden // heads),
        vocab=_number(config, name, "vocab_size", "padded_vocab_size"),
        tied=bool(config.get("tie_word_embeddings", family in {"gemma", "gemma2", "gemma3_text"})),
        gated_mlp=family not in UNGATED,
        attention_bias=bool(config.get("attention_bias", family in {"qwen", "qwen2", "qwen2_moe"})),
        experts=experts,
        experts_per_token=_number(config, name, "num_experts_per_tok", default=2 if experts else 0),
        moe_intermediate=_number(config, name, "moe_intermediate_size", default=inner)
        if experts
        else 0,
        shared_intermediate=_number(config, name, "shared_expert_intermediate_size", default=0),
        max_positions=_number(config, name, "max_position_embeddings", "n_positions", default=0)
        or None,
    )  # fmt: skip


def _number(config: Mapping[str, Any], model: str, *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            message = f"{model}: config.json has {key} = {value!r}; a whole number is needed"
            raise ArchitectureError(message)
        if value == 0 and default is None:
            message = f"{model}: config.json has {key} = 0"
            raise ArchitectureError(message)
        return value
    if default is None:
        message = f"{model}: config.json lacks {keys[0]}"
        raise ArchitectureError(message)
    return default


def _from_row(row: Mapping[str, str]) -> Architecture:
    return Architecture(
        name=row["name"],
        hf_id=row["hf_id"],
        family=row["family"],
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        intermediate=int(row["intermediate"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        vocab=int(row["vocab"]),
        tied=row["tied"] == "1",
        gated_mlp=row["gated_mlp"] == "1",
        attention_bias=row["attention_bias"] == "1",
        experts=int(row["experts"]),
        experts_per_token=int(row["experts_per_token"]),
        moe_intermediate=int(row["moe_intermediate"]),
        shared_intermediate=int(row["shared_intermediate"]),
        max_positions=int(row["max_positions"]) if row["max_positions"] else None,
        checked=row["checked"],
    )
