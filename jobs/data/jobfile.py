"""A job file, or an Axolotl configuration, as paths and options of the gate; and its chat template.

Takes the parsed YAML: reading the file is the caller's business.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import templates
from .gate import Report
from .options import Options

# Models that come without a chat template: those that say so, and families whose plain
# name is the base model. All others are taken to have one (Qwen has, even as -Base) until seen.
_BASE = re.compile(
    r"(?<![a-z])base(?![a-z])|[-_]pt$|/(meta-)?llama-[23](\.\d)?-\d+b(-hf)?$"
    r"|/mistral-7b-v0\.\d$|/mixtral-8x\d+b-v0\.\d$|/gemma(-[23])?-\d+b$"
    r"|/(pythia|gpt|opt|falcon|mpt|bloom|olmo|phi-[12]|smollm2?)[-_.\d]*\d+[bm]?$",
    re.IGNORECASE,
)
_HAS_ONE = re.compile(r"qwen|instruct|chat|[-_]it\b|[-_]sft|dpo|assistant", re.IGNORECASE)


@dataclass(slots=True)
class JobData:
    """What a job file says about its data."""

    train: list[Path] = field(default_factory=list)
    validation: list[Path] = field(default_factory=list)
    options: Options = field(default_factory=Options)
    model: str = ""
    template: str = ""
    region: str = ""
    only_text: bool = False


def read(job: Mapping[str, Any], folder: Path, options: Options) -> JobData:
    """Return the data side of a job file or an Axolotl configuration; paths relative to `folder`.

    Wrong types are left for the job file's own validation; nothing is raised here.
    """
    out = JobData(options=options)
    data, training, extra = (_map(job.get(k)) for k in ("data", "training", "axolotl"))
    out.model = str(job.get("model") or job.get("base_model") or "")
    sets = [_map(d) for d in _list(job.get("datasets"))]
    out.train = [
        _path(p, folder) for p in _list(data.get("train")) or [d.get("path") for d in sets] if p
    ]
    tests = [_map(d).get("path") for d in _list(job.get("test_datasets"))]
    out.validation = [
        _path(p, folder) for p in _list(data.get("validation")) + tests if isinstance(p, str) and p
    ]
    out.template = str(
        data.get("chat_template") or extra.get("chat_template") or job.get("chat_template") or ""
    )
    out.region = str(data.get("region") or "")
    kinds = {str(d.get("type", "")) for d in sets} | {str(data.get("format") or "")}
    out.only_text = bool(kinds & {"completion", "text"}) and not kinds & {"chat_template", "chat"}
    length = training.get("sequence_len") or extra.get("sequence_len") or job.get("sequence_len")
    long = str(
        extra.get("excess_length_strategy") or job.get("excess_length_strategy") or options.long
    )
    columns = tuple((str(k), str(v)) for k, v in _map(data.get("columns")).items())
    local = _path(out.model, folder) if out.model else None
    out.options = replace(
        options,
        sequence_len=options.sequence_len or (length if isinstance(length, int) else 0),
        long="truncate" if long == "truncate" else "drop",
        columns=options.columns or columns,
        group=options.group or str(data.get("group") or ""),
        validation=_share(data) if options.validation is None else options.validation,
        tokenizer=options.tokenizer or (str(local) if local and local.is_dir() else ""),
        chat_template=options.chat_template or _template(out.template, folder),
    )
    return out


def _share(data: Mapping[str, Any]) -> float | None:
    """Return the share to hold out that the file names; None where it names none or a file."""
    share = data.get("validation")
    return float(share) if isinstance(share, int | float) and not isinstance(share, bool) else None


def check_template(job: JobData, report: Report, where: str) -> None:
    """Add what is wrong with the chat template: none, unseen, or refusing a kind of record."""
    options = job.options
    if job.only_text:
        return
    named = options.chat_template
    if (
        named
        and named != "tokenizer_default"
        and named not in templates.BUILT_IN
        and not Path(named).is_file()
    ):
        report.add(
            where,
            0,
            "chat_template_unverified",
            f"template {named!r} is Axolotl's own: it was not rendered here",
        )
        return
    if (
        not options.tokenizer
        and named not in templates.BUILT_IN
        and not Path(named or "-").is_file()
    ):
        model = job.model or "the model"
        if _BASE.search(model) and not _HAS_ONE.search(model):
            report.add(
                where,
                0,
                "no_chat_template",
                f"chat_template is not set, and {model} looks like a base model without one "
                "(its tokenizer is not on this machine)",
            )
        else:
            report.add(
                where,
                0,
                "chat_template_unverified",
                f"the tokenizer of {model} is not on this machine",
            )
        return
    try:
        template = templates.chosen(named, options.tokenizer)
    except templates.TemplateError as error:
        report.add(where, 0, "chat_template_fails", str(error))
        return
    if template is None:
        report.add(
            where,
            0,
            "no_chat_template",
            f"the tokenizer in {options.tokenizer} has no chat template and none is set",
        )
        return
    if not templates.available():
        report.add(
            where, 0, "chat_template_unverified", "rendering a template needs: pip install jinja2"
        )
        return
    _verify(template, job, report, where)


def _verify(template: templates.Template, job: JobData, report: Report, where: str) -> None:
    found = template.verify()
    if found["user and assistant"]:
        report.add(
            where,
            0,
            "chat_template_fails",
            f"it cannot render a simple record: {found['user and assistant']}",
        )
        return
    if found["several turns"]:
        report.add(where, 0, "chat_template_fails", f"several turns: {found['several turns']}")
    if found["one speaker twice"]:
        job.options = replace(job.options, alternation=True)


def check_records(job: JobData, report: Report, where: str, *, systems: bool, tools: bool) -> None:
    """Add a finding where the data holds system turns or tool calls that the template refuses."""
    if not templates.available() or job.only_text:
        return
    try:
        template = templates.chosen(job.options.chat_template, job.options.tokenizer)
        found = template.verify() if template else {}
    except templates.TemplateError:
        return  # said already
    for present, probe in ((systems, "system first"), (tools, "tool calls")):
        if present and found.get(probe):
            report.add(where, 0, "chat_template_fails", f"records with {probe}: {found[probe]}")


def _template(name: str, folder: Path) -> str:
    path = folder / name
    return str(path) if name and name not in templates.BUILT_IN and path.is_file() else name


def _path(value: Any, folder: Path) -> Path:
    text = str(value)
    return Path(text) if text.startswith("hf://") else folder / Path(text).expanduser()


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
