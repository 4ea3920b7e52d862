"""The files a prepare run leaves: written beside their names, renamed, the manifest last."""

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import read
from .digest import EMPTY_PROMPT
from .gate import Report
from .lengths import Lengths, packed
from .options import Options
from .pii.policy import NOT_CHECKED
from .spill import Spill

MANIFEST = "manifest.json"
SCHEMA = 1
_DATA_FILES = ("train.jsonl", "validation.jsonl")


def input_of(path: Path) -> dict[str, Any]:
    """Return name, size and SHA-256 of an input file: what the output depends on."""
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": read.sha256(path)}


def present(
    out: Path, inputs: list[dict[str, Any]], given: list[dict[str, Any]], options: Options
) -> dict[str, Any] | None:
    """Return the manifest of `out` if made from just this and its files are whole, else None."""
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        fits = (
            manifest["schema"] == SCHEMA
            and manifest["inputs"] == inputs
            and manifest["validation_inputs"] == given
            and manifest["settings"] == json.loads(json.dumps(options.settings()))
            and all(read.sha256(out / f["name"]) == f["sha256"] for f in manifest["files"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if fits else None


def write(
    out: Path,
    spill: Spill,
    report: Report,
    options: Options,
    *,
    alive: bytearray,
    held: set[int],
    removed: Counter[str],
    notes: list[tuple[int, str, int]],
    proof: dict[str, Any],
    inputs: list[dict[str, Any]],
    given: list[dict[str, Any]],
    given_rows: Sequence[bytes],
) -> dict[str, Any]:
    """Return the manifest, all files written: where a manifest stands its files are whole."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    rows = spill.rows()
    flags = spill.column("flags")
    plain = not options.shape and bool(len(flags)) and all(f & EMPTY_PROMPT for f in flags)

    def of(wanted: bool) -> Iterator[bytes]:
        for i in range(len(alive)):
            if alive[i] and (i in held) == wanted:
                yield _as_text(rows[i]) if plain else rows[i]

    files = [_file(out, "train.jsonl", of(wanted=False))]
    validation = of(wanted=True) if not given_rows else iter(given_rows)
    if held or given_rows:
        files.append(_file(out, "validation.jsonl", validation))
    else:
        (out / "validation.jsonl").unlink(missing_ok=True)
    files.append(_file(out, "changes.jsonl", _changes(spill, report, notes)))
    files.append(_file(out, "pii_report.csv", _pii_report(spill)))
    kinds = set(report.kinds)
    text = kinds <= {"text"} or plain
    manifest = {
        "schema": SCHEMA,
        "format": "completion" if text else options.shape or "chat_template",
        "inputs": inputs,
        "validation_inputs": given,
        "settings": options.settings(),
        "counts": {
            "read": report.records,
            "usable": report.kept,
            "bad_or_dropped": report.dropped,
            "exact_duplicates": removed["exact_duplicate"],
            "near_duplicates": removed["near_duplicate"],
            "left_out": {k: v for k, v in sorted(removed.items()) if not k.endswith("duplicate")},
            "train": files[0]["records"],
            "validation": files[1]["records"] if len(files) > 3 else 0,
        },
        "findings": dict(sorted(report.counts.items())),
        "personal_data": {
            "scanned": report.pii_checked or options.mask,
            "masked": options.mask,
            "types": dict(sorted(report.pii.items())),
            "not_checked": list(NOT_CHECKED),
        },
        "split_proof": proof,
        "tokens": {**_tokens(report), "train": _train_tokens(spill, report, options, alive, held)},
        "files": files,
    }
    text_form = json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    _replace(out / MANIFEST, [text_form.encode()])
    return json.loads(text_form)  # type: ignore[no-any-return]


def _tokens(report: Report) -> dict[str, Any]:
    lengths = report.lengths
    return {"how": lengths.how, "total": sum(lengths.total), **lengths.percentiles()}


def _train_tokens(
    spill: Spill, report: Report, options: Options, alive: bytearray, held: set[int]
) -> dict[str, Any]:
    """Return what the training set alone comes to; what a forecast of time and price is made of."""
    flat = spill.column("lengths")
    train = Lengths(report.lengths.how)
    for i in range(len(alive)):
        if alive[i] and i not in held:
            train.total.append(flat[3 * i])
            train.prompt.append(flat[3 * i + 1])
            train.answer.append(flat[3 * i + 2])
    size = options.sequence_len
    fits: dict[str, Any] = {}
    if size:
        row = train.row(size)
        within = [total for total in train.total if total <= size]
        sequences = packed(within, size)
        fits = {
            "sequence_len": size,
            "rows_over": row["rows_over"],
            "rows_with_nothing_to_learn": row["rows_with_nothing_to_learn"],
            "tokens_within": sum(within),
            "packed_sequences": sequences,
            "packing_efficiency": round(sum(within) / (sequences * size), 4) if sequences else 0.0,
        }
    return {
        "records": len(train.total),
        "total": sum(train.total),
        "trainable": sum(train.answer),
        **train.percentiles(),
        **fits,
    }


def axolotl_datasets(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the Axolotl keys that name prepared data: datasets, test_datasets, val_set_size.

    `val_set_size` must be 0 beside test_datasets: Axolotl refuses both together.
    """
    chat = manifest["format"] == "chat_template"
    entry: dict[str, Any] = {"ds_type": "json", "type": "chat_template" if chat else "completion"}
    if chat:
        entry["field_messages"] = "messages"
    keys: dict[str, Any] = {
        "datasets": [{"path": str(out / "train.jsonl"), **entry}],
        "val_set_size": 0,
    }
    if manifest["counts"]["validation"]:
        keys["test_datasets"] = [{"path": str(out / "validation.jsonl"), "split": "train", **entry}]
    return keys


def _as_text(row: bytes) -> bytes:
    answer = json.loads(row)["messages"][-1]["content"]
    return (json.dumps({"text": answer}, ensure_ascii=False) + "\n").encode()


def _changes(spill: Spill, report: Report, notes: list[tuple[int, str, int]]) -> Iterator[bytes]:
    """Yield every change: those made while reading, then what was left out and beside what."""
    with (spill.folder / "changes").open("rb") as file:
        yield from file
    files, lines = spill.column("files"), spill.column("lines")
    for i, code, kept in sorted(notes):
        note: dict[str, Any] = {
            "file": Path(report.files[files[i]]).name,
            "line": lines[i],
            "action": "drop",
            "code": code,
        }
        if kept >= 0:
            note["kept"] = {"file": Path(report.files[files[kept]]).name, "line": lines[kept]}
        yield (json.dumps(note, ensure_ascii=False) + "\n").encode()


def _pii_report(spill: Spill) -> Iterator[bytes]:
    """Yield the table of finds: file, line, type, rule. Never a value, nor a hash of one."""
    yield b"file,line,type,rule\r\n"
    with spill.journal.open(encoding="utf-8") as journal:
        for entry in journal:
            part = json.loads(entry)["digest"]
            text = io.StringIO()
            csv.writer(text).writerows([Path(part["file"]).name, *row] for row in part["pii_lines"])
            yield text.getvalue().encode()


def _file(out: Path, name: str, rows: Iterable[bytes]) -> dict[str, Any]:
    digest, size, count = hashlib.sha256(), 0, 0

    def counted() -> Iterator[bytes]:
        nonlocal size, count
        for row in rows:
            digest.update(row)
            size += len(row)
            count += row.count(b"\n")
            yield row

    _replace(out / name, counted())
    records = {"records": count} if name in _DATA_FILES else {}
    return {"name": name, "bytes": size, "sha256": digest.hexdigest(), **records}


def _replace(path: Path, rows: Iterable[bytes]) -> None:
    """Write a file beside its name, force it to disk, then give it its name."""
    beside = path.with_name(f".{path.name}.part")
    with beside.open("wb") as file:
        file.writelines(rows)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
