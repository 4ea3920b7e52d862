"""What a local model's tokenizer files say about padding and the chat template.

Many base models (Llama among them) come without a padding token. A new one would grow the embedding
table, and the adapter would then carry the whole table. So a token that the vocabulary already has
is taken: one made for padding where there is one, else the end-of-text token. That is safe with
Axolotl: it masks padding by position, so the end of an answer is still learnt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Tokens that models ship for padding without naming them so, in the order of trust.
PADDING_TOKENS = (
    "<|finetune_right_pad_id|>",
    "<|finetune_right_pad|>",
    "<pad>",
    "[PAD]",
    "<|pad|>",
    "<|padding|>",
    "<|PAD_TOKEN|>",
    "<|vision_pad|>",
)


def pad_token(folder: Path) -> str | None:
    """Return the padding token to set; None where the tokenizer has one or nothing is known."""
    settings = _settings(folder)
    if _text(settings.get("pad_token")):
        return None
    known = _added_tokens(folder, settings)
    for token in PADDING_TOKENS:
        if token in known:
            return token
    return _text(settings.get("eos_token"))


def has_chat_template(folder: Path) -> bool:
    """Return whether the model brings a chat template of its own."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    return bool(_settings(folder).get("chat_template"))


def _settings(folder: Path) -> dict[str, Any]:
    # The newer file wins: special_tokens_map.json is written by older versions only.
    return {
        **_read(folder / "special_tokens_map.json"),
        **{k: v for k, v in _read(folder / "tokenizer_config.json").items() if v is not None},
    }


def _added_tokens(folder: Path, settings: dict[str, Any]) -> set[str]:
    decoder = settings.get("added_tokens_decoder")
    listed = list(decoder.values()) if isinstance(decoder, dict) else []
    more = _read(folder / "tokenizer.json").get("added_tokens")
    listed += more if isinstance(more, list) else []
    return {text for text in map(_text, listed) if text}


def _text(token: Any) -> str | None:
    """Return a token's text; it is written as text or as a mapping with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON file's mapping; {} where it is missing or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
