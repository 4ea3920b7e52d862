"""Clean, mask, de-duplicate, split and write: the same bytes for the same input, settings and seed.

Passes: (1) digest every chunk into a spill folder, committed chunk by chunk; (2) duplicates and
clusters; (3) choice and proof of the split; (4) files written beside their names and renamed,
the manifest last. A killed run resumes at the last committed chunk. Nothing is changed in place.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import codes, gate, leakcheck, output, read, split, workers
from .dedup import Clusters, Near, exact, same_keys
from .digest import EMPTY_PROMPT, NOTHING_TO_LEARN, SHORT, Steps
from .gate import Progress, Report
from .minhash import BANDS, jaccard
from .options import Options
from .spill import Spill

SCHEMA = 1
Stage = Callable[[str, int, int], None]  # name of the stage, done, of how many


@dataclass(slots=True)
class Prepared:
    """What a run made: the report, the manifest (empty when refused), whether it was all there."""

    report: Report
    manifest: dict[str, Any] = field(default_factory=dict)
    unchanged: bool = False
    resumed_chunks: int = 0


@dataclass(slots=True)
class _Run:
    """The state the passes share."""

    options: Options
    spill: Spill
    report: Report
    alive: bytearray
    clusters: Clusters
    processes: int = 1
    removed: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[int, str, int]] = field(default_factory=list)  # record, code, kept record


def prepare(
    paths: Sequence[Path],
    out: Path,
    options: Options,
    *,
    validation: Sequence[Path] = (),
    progress: Progress | None = None,
    stage: Stage | None = None,
    processes: int = 0,
) -> Prepared:
    """Return what was prepared into the folder `out`: data, reports, manifest.

    Refused sets (see the report) write nothing. Raises spill.BusyError where another process
    prepares into the same folder, OSError where it cannot be written.
    """
    report = Report(pii_checked=options.with_pii)
    sources = gate.sources_of(paths, report)
    if report.refused:
        return Prepared(report)
    inputs = [output.input_of(s.path) for s in sources]
    given = [output.input_of(s.path) for p in validation for s in read.expand(p)]
    old = output.present(out, inputs, given, options)
    if old is not None:
        return Prepared(_from_manifest(report, old), old, unchanged=True)
    plan = {"schema": SCHEMA, "inputs": [*inputs, *given], "settings": options.settings()}
    spill = Spill(out.parent / f".{out.name}.work", plan)
    done = False
    try:
        result = _passes(
            sources,
            out,
            options,
            spill,
            report,
            inputs=inputs,
            given=given,
            validation=validation,
            progress=progress,
            stage=stage,
            processes=processes,
        )
        done = True
    finally:
        spill.close(remove=done)
    return result


def _passes(
    sources: list[read.Source],
    out: Path,
    options: Options,
    spill: Spill,
    report: Report,
    *,
    inputs: list[dict[str, Any]],
    given: list[dict[str, Any]],
    validation: Sequence[Path],
    progress: Progress | None,
    stage: Stage | None,
    processes: int,
) -> Prepared:
    resumed = spill.chunks
    digest_all(sources, options, spill, report, progress=progress, processes=processes)
    gate.conclude(report, options)
    if report.refused:
        return Prepared(report)
    run = _Run(
        options, spill, report, bytearray(b"\x01") * len(spill.column("offsets")), Clusters(0),
        workers.processes(sum(entry["bytes"] for entry in inputs), processes),
    )  # fmt: skip
    _leave_out(run)
    _duplicates(run, stage)
    held_file = leakcheck.load(validation, options) if validation else None
    held, proof = (set[int](), {}) if held_file else _split(run, stage)
    if held_file:
        report.findings += held_file.report.findings
        leaks = leakcheck.compare(held_file, _train_rows(run), report)
        proof = {"method": "exact search", "threshold": options.near_threshold, "leaks": leaks}
    if run.alive.count(1) == len(held):
        report.add(report.files[0], 0, "nothing_left", "no record is left to train on")
    if report.refused:
        return Prepared(report)
    manifest = output.write(
        out,
        run.spill,
        report,
        options,
        alive=run.alive,
        held=held,
        removed=run.removed,
        notes=run.notes,
        proof=proof,
        inputs=inputs,
        given=given,
        given_rows=held_file.rows if held_file else [],
    )
    return Prepared(report, manifest, resumed_chunks=resumed)


def digest_all(
    sources: list[read.Source],
    options: Options,
    spill: Spill,
    report: Report,
    *,
    progress: Progress | None,
    processes: int,
    steps: Steps | None = None,
) -> None:
    """Bring every chunk of the sources into the spill; chunks it has already are only counted."""
    steps = steps or Steps(
        keep_rows=True,
        exact=True,
        near=options.near,
        pii=options.with_pii or options.mask,
        lengths=True,
        survey=True,
    )
    for part in spill.past:
        gate.absorb(report, part, options)
    numbers = {s.name: i for i, s in enumerate(sources)}
    for part in gate.stream(
        sources, report, options, steps, progress=progress, processes=processes, skip=spill.chunks
    ):
        spill.add(part, numbers[part.file])
    for file in spill.out.values():
        file.flush()
    spill.past = []
    report.lengths = spill.all_lengths(report.lengths.how)


def _leave_out(run: _Run) -> None:
    """Leave out records by their flags: empty prompts (unless all are), short, nothing to learn."""
    flags = run.spill.column("flags")
    prompts = sum(1 for f in flags if f & EMPTY_PROMPT)
    all_empty = prompts == len(flags) > 0
    for i, f in enumerate(flags):
        code = ""
        if f & SHORT:
            code = "too_short"
        elif f & EMPTY_PROMPT and not all_empty:
            code = "empty_prompt"
        elif f & NOTHING_TO_LEARN:
            code = "prompt_exceeds_sequence_len"
        if code:
            run.alive[i] = 0
            run.removed[code] += 1
            run.notes.append((i, code, -1))
    left = len(flags) - run.alive.count(1)
    lost = run.report.dropped + left
    if lost > run.report.records * codes.MAX_DROPPED_SHARE and run.alive.count(1):
        run.report.add(
            run.report.files[0],
            0,
            "too_many_dropped",
            f"{lost:,} of {run.report.records:,} records would be left out",
        )


def _duplicates(run: _Run, stage: Stage | None) -> None:
    run.clusters = Clusters(len(run.alive))
    if run.options.exact:
        run.removed["exact_duplicate"] = exact(
            run.spill, run.alive, lambda i, kept: run.notes.append((i, "exact_duplicate", kept))
        )
        run.report.duplicates = run.removed["exact_duplicate"]
    if run.options.near:
        near = Near(run.spill, run.options.near_threshold)
        n = len(run.alive)
        tell = (lambda k: stage("near duplicates", n * k // BANDS, n)) if stage else None
        near.run(run.alive, tell, run.processes)
        run.clusters = near.clusters
        run.removed["near_duplicate"] = near.drop(
            run.alive, lambda i, kept: run.notes.append((i, "near_duplicate", kept))
        )


def _split(run: _Run, stage: Stage | None) -> tuple[set[int], dict[str, Any]]:
    """Return (held-out records, proof): chosen by cluster, then mended until the proof is clean."""
    n = len(run.alive)
    for name in ("prompts", "groups"):
        for group in same_keys(run.spill.column(name), n, run.alive):
            for i in group[1:]:
                run.clusters.join(group[0], i)
    if not run.options.exact:
        for group in same_keys(_exact_keys(run.spill), n, run.alive):
            for i in group[1:]:
                run.clusters.join(group[0], i)
    held = split.choose(
        run.clusters, run.spill.raw("exact"), run.alive, run.options.held_out, run.options.seed
    )
    if run.options.held_out > 0 and not held and run.alive.count(1) >= 20:
        run.report.add(
            run.report.files[0], 0, "no_validation", "no cluster is small enough to be held out"
        )
    shingles = run.spill.shingles(run.alive)
    back: set[int] = set()
    while held:
        sets = [(i, shingles[i]) for i in sorted(held)]
        index = split.Index(sets, run.options.near_threshold)
        again: set[int] = set()
        for seen, i in enumerate(i for i in range(n) if run.alive[i] and i not in held):
            if stage and seen % 5000 == 0:
                stage("proving the split", seen, n)
            again.update(number for number, _ in index.neighbours(shingles[i]))
        if not again:
            break
        moved = {run.clusters.find(i) for i in again}
        back |= {i for i in held if run.clusters.find(i) in moved}
        held -= back
    proof = {
        "method": "exact search by prefix filtering over word 3-grams",
        "threshold": run.options.near_threshold,
        "validation_records": len(held),
        "validation_records_with_a_train_neighbour": 0,
        "moved_back_to_train": len(back),
        "shared_prompts": 0,
        "shared_groups": 0,
    }
    return held, proof if held else {}


def _exact_keys(spill: Spill) -> list[bytes]:
    raw = spill.raw("exact")
    return [raw[i : i + 16] for i in range(0, len(raw), 16)]


def _train_rows(run: _Run) -> Iterator[tuple[str, int, bytes, bytes]]:
    rows, files, lines = run.spill.rows(), run.spill.column("files"), run.spill.column("lines")
    raw = run.spill.raw("exact")
    for i in range(len(run.alive)):
        if run.alive[i]:
            yield run.report.files[files[i]], lines[i], rows[i], raw[16 * i : 16 * i + 16]


def _from_manifest(report: Report, manifest: dict[str, Any]) -> Report:
    counts = manifest["counts"]
    report.records, report.dropped = counts["read"], counts["read"] - counts["usable"]
    report.duplicates = counts["exact_duplicates"]
    report.pii.update(manifest["personal_data"]["types"])
    return report


@dataclass(slots=True)
class NearFigures:
    """The near-duplicate pass alone, for the bench."""

    records: int
    candidates: int
    verified: int
    find: Callable[[int], int]
    alike: Callable[[int, int], float]


def near_only(
    paths: Sequence[Path], folder: Path, options: Options, processes: int = 1
) -> NearFigures:
    """Return the figures of reading and near-duplicate search, nothing dropped."""
    report = Report()
    sources = gate.sources_of(paths, report)
    spill = Spill(folder / "work", {})
    digest_all(
        sources,
        options,
        spill,
        report,
        progress=None,
        processes=processes,
        steps=Steps(keep_rows=True, exact=True, near=True, lengths=False),
    )
    near = Near(spill, options.near_threshold)
    near.run(bytearray(b"\x01") * report.kept, processes=processes)
    spill.close(remove=False)
    return NearFigures(
        report.records,
        near.candidates,
        near.verified,
        near.clusters.find,
        lambda a, b: jaccard(near.sets[a], near.sets[b]),
    )
