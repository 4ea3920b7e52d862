"""Wheels of a few hundred bytes, made by hand, so that a real pip can build a real environment."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

RECORD_ENTRY = "{},sha256={},{}\n"


def make_wheel(folder: Path, name: str, version: str, body: str = "", script: str = "") -> str:
    """Write NAME-VERSION-py3-none-any.whl into `folder`; return its line for a hashed lock."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": body,
        f"{module}/train.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {script}\n"
    record = ""
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += RECORD_ENTRY.format(inner, digest.decode().rstrip("="), len(text))
            wheel.writestr(inner, text)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
