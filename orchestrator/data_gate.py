"""The data gate as a step of submit: check, prepare, and hand Axolotl what was prepared.

Runs before any provider is asked. What it writes lies in the home under `prepared/`, one folder for
each content and settings: the same data is not worked over twice, and a later attempt finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.axolotl_data import CHAT_TEMPLATE, is_local
from jobs.data import codes, gate, jobfile, output, prepare, templates
from jobs.data.digest import Steps
from jobs.data.options import Options
from jobs.data.pii import policy
from jobs.data.spill import BusyError
from jobs.spec import DataFormat, JobSpec
from orchestrator.exits import Exit, Refused
from orchestrator.match import Matching, Rejected

if TYPE_CHECKING:
    from jobs.data.gate import Progress, Report
    from jobs.load import LoadedJob
    from providers.base import Offer

PREPARED = "prepared"  # below the home
#: No job lives as long (limits.hours is at most 720), so none still needs what is older.
KEPT_S = 60 * 86_400
#: The machine this runs on: nothing leaves it.
HERE = "local"
SHOWN_FINDINGS = 5
_CONVERSATIONS = (DataFormat.CHAT, DataFormat.SHAREGPT)
_SHAPES = {DataFormat.ALPACA: "alpaca", DataFormat.PROMPT_COMPLETION: "prompt_completion"}


@dataclass(frozen=True, slots=True)
class Gated:
    """A job with its data gone through the gate. `summary` is empty where it goes as it is.

    summary: `--json`'s `data`, documented there; also what a forecast is made of.
    found: type of personal data -> how often. masked, scanned: as `policy.blocks` takes them.
    """

    loaded: LoadedJob
    lines: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)
    scanned: bool = False
    masked: bool = False


def through(
    loaded: LoadedJob,
    root: Path,
    *,
    now: float,
    progress: Progress | None = None,
    stage: Callable[[str, int, int], None] | None = None,
) -> Gated:
    """Return the job on its prepared data. Writes below `root`; raises Refused with exit code 6."""
    spec = loaded.spec
    train = spec.data.train
    if train is None:
        return _own_file(loaded, progress)
    why = _left_alone(spec)
    if why:
        return Gated(loaded, (f"data: {why}",))
    options = options_of(spec)
    job = jobfile.JobData(train=[train], options=options)
    job.only_text = spec.data.format not in _CONVERSATIONS
    early = gate.Report()
    if not job.only_text and options.tokenizer:
        jobfile.check_template(job, early, str(loaded.path))
        _refuse(early, train)
    held = spec.data.validation
    validation = [held] if isinstance(held, Path) else []
    out = root / PREPARED / _key([train, *validation], job.options)
    _sweep(root / PREPARED, now, keep=out)
    try:
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = prepare.prepare(
            [train], out, job.options, validation=validation, progress=progress, stage=stage
        )
    except BusyError as error:
        raise Refused(str(error), remedy="Wait for it, then submit again.") from None
    except OSError as error:
        raise Refused(f"{out}: cannot be written: {error.strerror or error}") from error
    jobfile.check_records(
        job,
        made.report,
        str(loaded.path),
        systems=bool(made.report.features["system"]),
        tools=bool(made.report.features["tools"]),
    )
    _refuse(made.report, train)
    gated = replace(loaded, spec=_on_prepared(spec, out, made.manifest))
    return Gated(
        gated,
        tuple(summary_lines(made.manifest)),
        summary_of(made.manifest),
        made.manifest["personal_data"]["types"],
        scanned=made.manifest["personal_data"]["scanned"],
        masked=made.manifest["personal_data"]["masked"],
    )


def _own_file(loaded: LoadedJob, progress: Progress | None) -> Gated:
    """Return the job of a person's own Axolotl file: its local data is only read and scanned.

    What its records mean is for that file to say; only what no reader takes is refused.
    """
    base = loaded.spec.axolotl.base
    entries = [e for key in ("datasets", "test_datasets") for e in base.get(key) or []]
    paths = [Path(entry["path"]) for entry in entries if is_local(entry)]
    readable = [path for path in paths if path.suffix.lower() != ".arrow"]
    if not readable:
        return Gated(loaded, ("data: as your Axolotl file names it; not on this machine",))
    steps = Steps(pii=True, lengths=False)
    report = gate.check(readable, Options(to="chat"), steps=steps, progress=progress)
    bad = [f for f in report.findings if f.code in gate.UNREADABLE]
    _refuse(replace(report, findings=bad), readable[0])
    unknown = report.kinds.get("unknown", (0, "", 0))[0]
    lines = [f"data: {report.records:,} records go as your Axolotl file says; read and scanned"]
    if unknown:
        lines.append(f"  {unknown:,} of a shape unknown to the gate: not scanned")
    finds = ", ".join(f"{kind} {n:,}" for kind, n in report.pii.items())
    if finds:
        lines.append(f"  personal data: {finds}")
    return Gated(loaded, tuple(lines), found=dict(report.pii), scanned=True)


def options_of(spec: JobSpec) -> Options:
    """Return the gate's options for a job."""
    data = spec.data
    chosen = {**spec.axolotl.base, **spec.axolotl.keys}
    folder = spec.model_folder
    known = folder is not None and (folder / "tokenizer.json").is_file()
    held = data.validation
    return Options(
        format="text" if data.format is DataFormat.COMPLETION else "",
        shape=_SHAPES.get(data.format, "") if data.format else "",
        columns=tuple(sorted(data.columns.items())),
        sequence_len=spec.training.sequence_len,
        long="truncate" if chosen.get("excess_length_strategy") == "truncate" else "drop",
        tokenizer=str(folder) if known else "",
        chat_template=_template(chosen, folder if known else None),
        mask=data.mask,
        exact=data.deduplicate != "none",
        near=data.deduplicate == "near",
        group=data.group or "",
        validation=held if isinstance(held, float) else 0.0,
        seed=spec.training.seed,
    )


def in_region(matching: Matching, gated: Gated, region: str, *, reviewed: bool) -> Matching:
    """Return the matching without the offers to which the finds may not go.

    Raises Refused, exit code 6, where that leaves none.
    """
    if not gated.scanned:
        return matching
    quotes, rejected, first = [], list(matching.rejected), ""
    for quote in matching.quotes:
        why = why_not_there(quote.offer, gated, region, reviewed=reviewed)
        if why is None:
            quotes.append(quote)
        else:
            first = first or why
            rejected.append(Rejected(quote.offer, f"personal data: {why}"))
    if first and not quotes:
        raise Refused(
            first,
            code=Exit.DATA_GATE,
            remedy="data.mask: true masks them; data.region says where the data may be; "
            "--pii-reviewed says that you looked at them.",
        )
    return Matching(tuple(quotes), tuple(rejected))


def why_not_there(offer: Offer, gated: Gated, region: str, *, reviewed: bool) -> str | None:
    """Return why the data must not go to this machine; None where it may."""
    here = offer.provider == HERE
    return policy.blocks(
        gated.found,
        scanned=gated.scanned,
        masked=gated.masked,
        reviewed=reviewed,
        data_region=region or HERE if here else region,
        machine_region=region or HERE if here else offer.region,
    )


def summary_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `plan --json` and a forecast need of a manifest."""
    counts, tokens = manifest["counts"], manifest["tokens"]
    return {
        "read": counts["read"],
        "train": counts["train"],
        "validation": counts["validation"],
        "left_out": counts["bad_or_dropped"] + sum(counts["left_out"].values()),
        "exact_duplicates": counts["exact_duplicates"],
        "near_duplicates": counts["near_duplicates"],
        "findings": dict(manifest["findings"]),
        "personal_data": dict(manifest["personal_data"]["types"]),
        "masked": manifest["personal_data"]["masked"],
        "counted": tokens["how"],
        "tokens": dict(tokens["train"]),
    }


def summary_lines(manifest: Mapping[str, Any]) -> list[str]:
    """Return a few lines for the screen before the question."""
    it = summary_of(manifest)
    parts = [f"data: {it['read']:,} records: {it['train']:,} to train on"]
    for name, words in (
        ("validation", "held out"),
        ("left_out", "left out"),
        ("exact_duplicates", "exact copies left out"),
        ("near_duplicates", "near copies left out"),
    ):
        if it[name]:
            parts.append(f"{it[name]:,} {words}")
    lines = [", ".join(parts)]
    tokens = it["tokens"]
    if tokens["records"]:
        about = "about " if it["counted"].startswith("estimate") else ""
        said = f"{about}{tokens['total']:,} tokens, {tokens['trainable']:,} to learn from"
        lines.append(f"  {said}; median {tokens['p50']:,}, longest {tokens['max']:,}")
    if tokens.get("rows_over"):
        what = "Axolotl leaves them out"
        if manifest["settings"]["long"] == "truncate":
            nothing = tokens["rows_with_nothing_to_learn"]
            what = f"cut; {nothing:,} keep nothing to learn"
        lines.append(
            f"  {tokens['rows_over']:,} longer than sequence_len {tokens['sequence_len']:,}: {what}"
        )
    told = [
        f"{code} {n:,}"
        for code, n in it["findings"].items()
        if code not in _SAID and codes.CODES[code][0] not in ("fix", "keep")
    ]
    if told:
        lines.append("  findings: " + ", ".join(told))
    finds = ", ".join(f"{kind} {n:,}" for kind, n in it["personal_data"].items())
    if finds:
        lines.append(f"  personal data: {finds}" + (", masked" if it["masked"] else ""))
    return lines


_SAID = frozenset({"exceeds_sequence_len", "personal_data"})  # on lines of their own


def _left_alone(spec: JobSpec) -> str:
    data = spec.data
    if data.format is DataFormat.SEGMENTS:
        return "format segments goes as it is; not checked by the gate"
    if data.train is not None and data.train.suffix.lower() == ".arrow":
        return ".arrow goes as it is; not checked by the gate"
    return ""


def _template(chosen: Mapping[str, Any], folder: Path | None) -> str:
    """Return the gate's name for the template that Axolotl will use."""
    if chosen.get("chat_template_jinja"):
        return "jinja"  # taken on trust
    name = str(chosen.get("chat_template") or CHAT_TEMPLATE)
    if name not in (CHAT_TEMPLATE, "tokenizer_default"):
        return name
    if name == "tokenizer_default" or folder is None:
        return "" if folder else "chatml"
    try:
        return "" if templates.load(folder) else "chatml"
    except templates.TemplateError:
        return ""  # the check says why


def _on_prepared(spec: JobSpec, out: Path, manifest: Mapping[str, Any]) -> JobSpec:
    """Return the job with the prepared files for its data; the split is no longer Axolotl's."""
    form = spec.data.format
    if manifest["format"] == "completion":
        form = DataFormat.COMPLETION
    elif manifest["format"] == "chat_template":
        form = DataFormat.CHAT
    held = out / "validation.jsonl" if manifest["counts"]["validation"] else 0.0
    data = spec.data.model_copy(
        update={"train": out / "train.jsonl", "format": form, "columns": {}, "validation": held}
    )
    axolotl = spec.axolotl.model_copy(
        update={
            "keys": {k: v for k, v in spec.axolotl.keys.items() if k != "val_set_size"},
            "base": {k: v for k, v in spec.axolotl.base.items() if k != "val_set_size"},
        }
    )
    return spec.model_copy(update={"data": data, "axolotl": axolotl})


def _key(files: list[Path], options: Options) -> str:
    """Return the folder's name: what the prepared set depends on, hashed."""
    inputs = [output.input_of(path) for path in files]
    text = json.dumps([output.SCHEMA, inputs, options.settings()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _sweep(folder: Path, now: float, keep: Path) -> None:
    """Remove what was prepared long ago; mark what is used now."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        manifest = path / output.MANIFEST
        if path == keep and manifest.exists():
            os.utime(manifest, (now, now))
        elif manifest.exists() and manifest.stat().st_mtime < now - KEPT_S:
            shutil.rmtree(path, ignore_errors=True)


def _refuse(report: Report, train: Path) -> None:
    """Raise Refused with the findings that refuse the data; nothing where there are none."""
    errors = [found for found in report.findings if found.severity == "error"]
    if not errors:
        return
    lines = [f"the data gate refused {train.name}."]
    for found in errors[:SHOWN_FINDINGS]:
        place = f"{Path(found.file).name} line {found.line}" if found.line else found.file
        lines += [f"  {place}: {found.code}: {found.message}", f"    {found.remedy}"]
    more = len(errors) - SHOWN_FINDINGS
    if more > 0:
        lines.append(f"  and {more:,} more")
    raise Refused(
        "\n".join(lines),
        code=Exit.DATA_GATE,
        remedy=f"gpujob data check {train} shows all findings.",
    )
