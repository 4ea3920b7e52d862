"""The files of our own that go with a result: its card, the curve's picture, the evaluation report.

Facts come from the job's record, its metrics at home and the data gate's manifest; what a stranger
must not read (paths, secrets) is left out here, not by those who draw.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.metrics import MetricsReader

if TYPE_CHECKING:
    from jobs.spec import JobSpec
    from orchestrator.bootstrap import Machine
    from orchestrator.home import Home
    from orchestrator.site_order import SiteOrder
    from orchestrator.store import Store

CARD, CURVE, EVALUATION = "README.md", "loss.svg", "evaluation.json"
SCHEMA = 1
READS = 4096  # of 8 MB each: a curve of any length, and an end for a file that grows for ever
# Settings worth a line in the card; the rest of a job file is the person's own affair.
CARD_SETTINGS = (
    "epochs", "max_steps", "sequence_len", "micro_batch_size", "gradient_accumulation_steps",
    "learning_rate", "optimizer", "lr_scheduler", "warmup_ratio", "weight_decay", "max_grad_norm",
    "lora_r", "lora_alpha", "lora_dropout", "lora_targets", "packing", "seed",
)  # fmt: skip
# Counts of the data gate's manifest (jobs/data/output.py), in words.
COUNTS = {
    "read": "records read", "bad_or_dropped": "left out as bad", "exact_duplicates": "exact copies",
    "near_duplicates": "near copies", "train": "trained on", "validation": "held out",
}  # fmt: skip


def own_files(
    order: SiteOrder,
    spec: JobSpec,
    machine: Machine | None,
    *,
    store: Store,
    home: Home,
    now: float,
    best: int | None = None,
) -> Mapping[str, bytes]:
    """Return README.md, and where there is something to show loss.svg and evaluation.json.

    best: the step of the adapter that lies in `best/`.
    """
    from orchestrator.artifacts.card import CardFacts, render
    from orchestrator.artifacts.picture import loss_svg
    from orchestrator.redact import redact

    job = store.job(order.job_id, now=now)
    attempt = job.attempts[-1] if job.attempts else None
    seen = curves(home, order.job_id, order.attempt)
    picture = loss_svg(seen.curve.points, seen.evaluations.points)
    training = spec.training.model_dump(mode="json", include=set(CARD_SETTINGS))
    if spec.method == "full":
        training = {key: value for key, value in training.items() if key[:5] != "lora_"}
    facts = CardFacts(
        name=spec.name,
        base_model=bare_model(spec),
        method=str(spec.method),
        data=data_of(spec),
        counts=counts_of(spec),
        settings={k: training[k] for k in CARD_SETTINGS if training.get(k) is not None},
        results=_results(seen),
        evaluations=tuple(seen.evaluations.points),
        curve=CURVE if picture else "",
        best_step=best,
        versions=machine.axolotl.versions if machine is not None else {},
        gpu=_gpu(attempt),
        cost_usd=job.cost_usd,
        cost_is_notional=attempt is not None and attempt.price_is_notional,
    )
    files = {CARD: redact(render(facts)).encode()}
    if picture:
        files[CURVE] = picture.encode()
    if seen.evaluations.points:
        files[EVALUATION] = _evaluation(seen)
    return files


def best_step(home: Home, job_id: str, last: int) -> int | None:
    """Return the step of the lowest evaluation loss; None without one, or if it is the last."""
    seen = curves(home, job_id, last)
    points = seen.evaluations.points
    step = min(points, key=lambda point: point[1])[0] if points else None
    return None if step == seen.latest.step else step


def curves(home: Home, job_id: str, last: int) -> MetricsReader:
    """Return what all attempts of a job wrote, in order: a resumed one goes on from the former."""
    reader = MetricsReader()
    for number in range(1, last + 1):
        path = home.log_path(job_id, number, "metrics.jsonl")
        one = MetricsReader()
        for _ in range(READS):
            before = one.offset
            one.read(path)
            if one.offset == before:
                break
        for step, loss in one.curve.points:
            reader.curve.add(step, loss)
        for step, loss in one.evaluations.points:
            reader.evaluations.add(step, loss)
        reader.latest = one.latest if one.latest.step is not None else reader.latest
    return reader


def _results(seen: MetricsReader) -> dict[str, object]:
    last, points = seen.latest, seen.evaluations.points
    found: dict[str, object | None] = {
        "optimizer steps": last.step,
        "training loss, last": last.loss,
        "training loss, mean": last.train_loss,
        "training time, s": None if last.train_runtime_s is None else round(last.train_runtime_s),
        "evaluation loss, last": points[-1][1] if points else None,
        "evaluation loss, best": min(loss for _, loss in points) if points else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _evaluation(seen: MetricsReader) -> bytes:
    points = seen.evaluations.points
    best = min(points, key=lambda point: point[1])
    document = {
        "schema": SCHEMA,
        "metric": "eval_loss",
        "best": {"step": best[0], "eval_loss": best[1]},
        "last": {"step": points[-1][0], "eval_loss": points[-1][1]},
        "evaluations": [{"step": step, "eval_loss": loss} for step, loss in points],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _gpu(attempt: Any) -> str:
    if attempt is None or attempt.gpu == "CPU":
        return ""
    return f"{attempt.gpu_count}x {attempt.gpu}" if attempt.gpu_count > 1 else str(attempt.gpu)


def bare_model(spec: JobSpec) -> str:
    """Return the base model as a stranger may read it: a hub id, or a folder's bare name."""
    return spec.model_folder.name if spec.model_folder is not None else spec.model


def data_of(spec: JobSpec) -> list[Any]:
    """Return the data files by bare name, with records and sha256: the gate's inputs, if any."""
    from orchestrator.artifacts.card import DataFile

    manifest = _manifest(spec)
    listed = [*manifest.get("inputs", ()), *manifest.get("validation_inputs", ())]
    found = [
        DataFile(Path(str(one["name"])).name, None, str(one["sha256"]))
        for one in listed
        if isinstance(one, dict) and {"name", "sha256"} <= set(one)
    ]
    return found + [
        DataFile(path.name, records_in(path), sha256_of(path)) for path in data_files(spec)
    ]


def counts_of(spec: JobSpec) -> dict[str, int]:
    """Return what the data gate did with the records; {} where it did not see them."""
    counts = _manifest(spec).get("counts") or {}
    return {words: counts[key] for key, words in COUNTS.items() if type(counts.get(key)) is int}


def _manifest(spec: JobSpec) -> dict[str, Any]:
    """Return the data gate's manifest beside the training records; {} where there is none."""
    if not isinstance(spec.data.train, Path):
        return {}
    try:
        found = json.loads((spec.data.train.parent / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(found, dict) and isinstance(found.get("counts"), dict) and "inputs" in found
    return found if ours else {}


def data_files(spec: JobSpec) -> list[Path]:
    """Return the local files of records that are still there."""
    named = [spec.data.train, spec.data.validation]
    return [path for path in named if isinstance(path, Path) and path.is_file()]


def records_in(path: Path) -> int | None:
    """Return how many records a .jsonl file has; None for formats that would have to be parsed."""
    if path.suffix.lower() != ".jsonl":
        return None
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
