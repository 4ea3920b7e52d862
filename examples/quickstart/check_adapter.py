"""Load the adapter of the quickstart with peft and let it answer once.

    python examples/quickstart/check_adapter.py [OUTPUT_FOLDER]

Run it with gpujob's own Python; it calls itself again with the Python of Axolotl's environment,
the only one that has peft and torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROMPT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\nWhat does the net cost?\n\n### Response:\n"
)


def axolotl_python() -> str | None:
    """Return the Python that the quickstart trained with: the given one, or the newest built."""
    from orchestrator.settings import load_settings

    settings = load_settings()
    if settings.axolotl_env:
        return str(settings.axolotl_env.expanduser().absolute() / "bin" / "python")
    ready = sorted(
        (settings.home / "environments").glob("*/READY.json"), key=lambda path: path.stat().st_mtime
    )
    return str(json.loads(ready[-1].read_text())["python"]) if ready else None


def load(folder: Path) -> None:
    """Load base model and adapter from `folder`, and print what it holds and one answer."""
    import torch
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    # The model card and config name the base model as the job file does: relative to it.
    os.chdir(HERE)
    model = AutoPeftModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = {name: w for name, w in model.named_parameters() if "lora_" in name}
    moved = sum(bool(torch.any(w != 0)) for name, w in weights.items() if "lora_B" in name)
    tokens = tokenizer(PROMPT, return_tensors="pt")
    with torch.no_grad():
        answer = model.generate(**tokens, max_new_tokens=24, do_sample=False)
    text = tokenizer.decode(answer[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
    if not moved:
        sys.exit(f"{folder}: the adapter has learnt nothing: every lora_B is 0")
    print(f"peft loaded {folder}: {len(weights)} tensors, {moved} of them lora_B and trained")
    # So small a model ends in the middle of a letter and of a word: that much is left out.
    words = " ".join(word for word in text.split() if word.isascii() and word.isprintable())
    print(f"asked 'What does the net cost?' it says: {words!r} (a toy of a model: 30 steps)")


def main() -> int:
    """Return 0 once the adapter is loaded."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "out").absolute()
    if os.environ.get("GPUJOB_CHECK_ADAPTER") == "here":
        load(folder)
        return 0
    python = axolotl_python()
    if python is None:
        print("no Axolotl environment was built yet: run `make quickstart` first", file=sys.stderr)
        return 2
    env = {**os.environ, "GPUJOB_CHECK_ADAPTER": "here", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    command = [python, "-W", "ignore", __file__, str(folder)]
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
