"""The model card: README.md as the Hugging Face Hub reads it. Pure; knows no machine's path."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
EVALUATIONS = 12  # rows of a table, about
MOST_EXPONENT = 20.0  # of a perplexity that says something
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file: its bare name, its records where they were counted, its sha256."""

    name: str
    records: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """All that a card tells. Names are as the person wrote them; None is left out."""

    name: str
    base_model: str  # a hub id, or the bare name of a folder
    method: str  # qlora, lora or full
    data: Sequence[DataFile] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # what the data gate did
    results: Mapping[str, object] = field(default_factory=dict)
    evaluations: Sequence[tuple[int, float]] = ()  # step and loss on the held-out records
    curve: str = ""  # the name of the picture beside it
    best_step: int | None = None  # of the adapter in the folder `best`
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""
    cost_usd: Decimal | None = None
    cost_is_notional: bool = False


def render(facts: CardFacts) -> str:
    """Return the card: front matter, then what was trained, on what, how, and how to load it."""
    sections = [
        _front_matter(facts),
        f"# {_plain(facts.name)}\n",
        _summary(facts),
        _table("Data", ("file", "records", "sha256"), [_data_row(file) for file in facts.data]),
        _table("Records", ("what", "count"), _rows(facts.counts)),
        _table("Settings", ("setting", "value"), _rows(facts.settings)),
        _table("Results", ("figure", "value"), _rows(facts.results)),
        f"## Loss\n\n![Loss by step]({facts.curve})\n" if facts.curve else "",
        _table("Evaluation", ("step", "loss", "perplexity"), _evaluations(facts.evaluations)),
        _best(facts),
        _table("Made with", ("package", "version"), _rows(facts.versions)),
        _usage(facts),
    ]
    return "\n".join(section for section in sections if section)


def _front_matter(facts: CardFacts) -> str:
    import yaml

    adapter = facts.method != "full"
    matter: dict[str, object] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["axolotl", "gpujob", *(["lora"] if adapter else []), facts.method],
    }
    if _HUB_ID.fullmatch(facts.base_model):
        matter["base_model"] = facts.base_model
        matter["base_model_relation"] = "adapter" if adapter else "finetune"
    if facts.evaluations:
        matter["model-index"] = [_index(facts)]
    tags = matter["tags"]
    matter["tags"] = list(dict.fromkeys(tags)) if isinstance(tags, list) else tags
    return f"---\n{yaml.safe_dump(matter, sort_keys=False, allow_unicode=True)}---\n"


def _index(facts: CardFacts) -> dict[str, object]:
    """Return the best evaluation as the hub's `model-index` has it."""
    _, best = min(facts.evaluations, key=lambda point: point[1])
    metric = {"type": "loss", "name": "evaluation loss", "value": round(best, 6)}
    result = {
        "task": {"type": "text-generation"},
        "dataset": {"type": "private", "name": "held-out records"},
        "metrics": [metric],
    }
    return {"name": facts.name, "results": [result]}


def _best(facts: CardFacts) -> str:
    if facts.best_step is None:
        return ""
    return (
        f"The adapter here is the last step's. The one with the lowest evaluation loss, of step "
        f"{facts.best_step:,}, is in the folder `best`.\n"
    )


def _evaluations(points: Sequence[tuple[int, float]]) -> list[tuple[str, str, str]]:
    """Return a row an evaluation, the best marked; of many some evenly, the best and the last."""
    if not points:
        return []
    best = min(points, key=lambda point: point[1])
    stride = math.ceil(len(points) / EVALUATIONS)
    shown = [p for n, p in enumerate(points) if n % stride == 0 or p in (best, points[-1])]
    return [
        (
            f"{step:,}{' (best)' if (step, loss) == best else ''}",
            f"{loss:.4f}",
            f"{math.exp(loss):.2f}" if loss < MOST_EXPONENT else "",
        )
        for step, loss in shown
    ]


def _summary(facts: CardFacts) -> str:
    what = "A full fine-tune" if facts.method == "full" else f"A {facts.method} adapter"
    text = f"{what} of {_plain(facts.base_model)}, trained with Axolotl by gpujob"
    if facts.gpu:
        text += f" on {_plain(facts.gpu)}"
    if facts.cost_usd is not None:
        notional = " at a notional price" if facts.cost_is_notional else ""
        text += f". Machine cost until the result was saved: ${facts.cost_usd:.2f}{notional}"
    return text + ".\n"


def _usage(facts: CardFacts) -> str:
    base = facts.base_model if _HUB_ID.fullmatch(facts.base_model) else "path/to/the/base/model"
    if facts.method == "full":
        code = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            'model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")',
        ]
    else:
        code = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            f'base = AutoModelForCausalLM.from_pretrained("{base}")',
            'model = PeftModel.from_pretrained(base, "path/to/this/folder")',
        ]
    code.append('tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")')
    return "\n".join(["## Load it\n", "```python", *code, "```", ""])


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [f"## {title}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, ""])


def _rows(figures: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(_plain(key), _plain(_shown(value))) for key, value in figures.items()]


def _data_row(file: DataFile) -> tuple[str, str, str]:
    count = "" if file.records is None else f"{file.records:,}"
    return _plain(file.name), count, f"`{file.sha256}`"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return str(value)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, at most 500 characters of it."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return _SPECIAL.sub(r"\\\1", line[:500])
