"""The small JSON files of a result without the instance's paths. Pure: bytes in, bytes out."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from orchestrator.artifacts.manifest import ADAPTER_CONFIG, MODEL_CONFIG, ArtifactsMissing

MAX_BYTES = 16 << 20  # a tokenizer_config.json with many added tokens has some 0.2 MB
SCRUBBED = frozenset({
    ADAPTER_CONFIG, MODEL_CONFIG, "tokenizer_config.json", "generation_config.json",
    "special_tokens_map.json", "preprocessor_config.json", "processor_config.json",
})  # fmt: skip

_BASE = frozenset({"base_model_name_or_path", "_name_or_path", "name_or_path"})
# How transformers loaded the tokenizer on the instance, of no meaning elsewhere.
_DROPPED = frozenset({"is_local", "local_files_only"})
_LOCAL = re.compile(r"/(root|home|workspace|tmp|mnt|media|data|opt|srv|var|run|Users)/")


def scrub(name: str, data: bytes, *, base_model: str, folder: str) -> bytes:
    """Return a file's content with the base model named as the person named it, and no local path.

    folder: the attempt's folder on the instance. Raises ArtifactsMissing for what is no JSON.
    """
    if name not in SCRUBBED:
        return data
    try:
        document = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ArtifactsMissing(f"{name} is not the JSON that it should be")
    clean = {key: value for key, value in document.items() if key not in _DROPPED}
    clean = _walked(clean, base_model, folder.rstrip("/"))
    if name == ADAPTER_CONFIG:
        clean["base_model_name_or_path"] = base_model
    if clean == document:
        return data
    return (json.dumps(clean, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _walked(value: Any, base_model: str, folder: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _walked(item, base_model, folder, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_walked(item, base_model, folder, key) for item in value]
    if not isinstance(value, str) or not (_LOCAL.match(value) or (folder and folder in value)):
        return value
    if key in _BASE:
        return base_model
    if "\n" in value or " " in value:  # a text that mentions it
        return value.replace(folder, ".") if folder else value
    return PurePosixPath(value).name
