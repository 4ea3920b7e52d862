"""Make a folder that looks like Axolotl's environment and holds the stub trainer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STUB = Path(__file__).parent / "stub_trainer.py"


def make_stub_env(folder: Path, **switches: Any) -> Path:
    """Return `folder`, with a `bin/axolotl` that runs the stub under these switches.

    GPUJOB_AXOLOTL_ENV may point at it. Call it again to change the switches.
    """
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (binaries / "stub.json").write_text(json.dumps(switches))
    axolotl = binaries / "axolotl"
    axolotl.write_text(f"#!{sys.executable}\n{STUB.read_text()}")
    axolotl.chmod(0o755)
    python = binaries / "python"
    if not python.exists():
        python.symlink_to(sys.executable)
    return folder
