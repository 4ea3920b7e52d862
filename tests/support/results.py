"""Folders that look like what Axolotl leaves behind, with real safetensors in them."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any


def safetensors(tensors: dict[str, list[float]]) -> bytes:
    """A file of F32 vectors."""
    header, body = {}, b""
    for name, values in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def write_adapter(out: Path, *, values: int = 1000, bad: float | None = None) -> None:
    """An adapter's output folder, as of Axolotl 0.21.0."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = [0.01 * (number % 7 + 1) for number in range(values)]
    if bad is not None:
        numbers[values // 2] = bad
    layer = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    weights = safetensors({f"{layer}A.weight": numbers, f"{layer}B.weight": numbers})
    (out / "adapter_model.safetensors").write_bytes(weights)
    config = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": str(out.parent / "model")}
    (out / "adapter_config.json").write_text(json.dumps(config))
    (out / "tokenizer_config.json").write_text('{"is_local": true}')
    (out / "tokenizer.json").write_text("{}")
    (out / "config.json").write_text('{"model_type": "llama"}')
    (out / "README.md").write_text(f"base_model: {out.parent}/model")


def manifest_of(out: Path) -> dict[str, Any]:
    """What the agent would answer."""
    files = []
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        name = path.relative_to(out).as_posix()
        files.append({"path": name, "bytes": len(data), "sha256": sha256})
    return {"files": files}
