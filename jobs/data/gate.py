"""The gate itself: read, recognise, check, measure; one report for all files of a set."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from . import codes, read, recognise, workers
from .chunks import Chunk, Issue
from .codes import Finding
from .digest import Digest, Steps
from .lengths import Lengths
from .options import Options

Progress = Callable[[int, int, int], None]  # bytes read, bytes in all, records so far


@dataclass(slots=True)
class Report:
    """All that the gate found in a set of files. `refused` decides: exit code 6, no launch."""

    files: list[str] = field(default_factory=list)
    records: int = 0
    dropped: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, tuple[int, str, int]] = field(
        default_factory=dict
    )  # kind -> count, file, line
    turns: Counter[int] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    pii: Counter[str] = field(default_factory=Counter)
    lengths: Lengths = field(default_factory=Lengths)
    duplicates: int | None = None
    pii_checked: bool = False

    @property
    def kept(self) -> int:
        """Return the records that remain."""
        return self.records - self.dropped

    @property
    def refused(self) -> bool:
        """Return whether any finding refuses the run."""
        return any(f.severity == "error" for f in self.findings)

    def add(self, file: str, line: int, code: str, message: str, column: int = 0) -> None:
        """Take in a finding about the set as a whole or a file of it."""
        self.counts[code] += 1
        self.findings.append(codes.finding(file, line, code, message, column))

    def as_dict(self) -> dict[str, Any]:
        """Return the report in the shape of --json."""
        return {
            "refused": self.refused,
            "files": self.files,
            "records": self.records,
            "kept": self.kept,
            "dropped": self.dropped,
            "kinds": {
                k: {"records": n, "file": f, "first_line": line}
                for k, (n, f, line) in self.kinds.items()
            },
            "counts": dict(sorted(self.counts.items())),
            "findings": [f.as_dict() for f in self.findings],
            "exact_duplicates": self.duplicates,
            "turns": dict(sorted(self.turns.items())),
            "features": dict(+self.features),
            "languages": dict(self.languages.most_common()),
            "personal_data": {"scanned": self.pii_checked, "types": dict(self.pii.most_common())},
        }


def check(
    paths: Sequence[Path],
    options: Options,
    *,
    steps: Steps | None = None,
    progress: Progress | None = None,
    processes: int = 0,
) -> Report:
    """Return the report on files or folders. Reads the local files given, writes nothing.

    `progress` hears (bytes read, bytes in all, records). Raises no error for bad data: what is
    wrong stands in the report.
    """
    steps = steps or Steps(
        pii=options.with_pii, lengths=options.with_lengths, exact=True, survey=True
    )
    report = Report(pii_checked=steps.pii)
    seen: set[bytes] = set()
    sources = sources_of(paths, report)
    for part in stream(sources, report, options, steps, progress=progress, processes=processes):
        before = len(seen)
        seen.update(part.exact)
        if steps.exact:
            report.duplicates = (report.duplicates or 0) + len(part.exact) - (len(seen) - before)
    conclude(report, options)
    if report.duplicates:
        report.add(
            report.files[0],
            0,
            "exact_duplicate",
            f"{report.duplicates:,} records stand in the set more than once",
        )
    return report


def sources_of(paths: Sequence[Path], report: Report) -> list[read.Source]:
    """Return the files of the paths; those that cannot be there become findings of the report."""
    sources: list[read.Source] = []
    for path in paths:
        try:
            sources += read.expand(path)
        except read.ReadError as error:
            report.add(str(path), 0, error.code, str(error))
    report.files = [s.name for s in sources] or [str(p) for p in paths]
    return sources


def stream(
    sources: Sequence[read.Source],
    report: Report,
    options: Options,
    steps: Steps,
    *,
    progress: Progress | None = None,
    processes: int = 0,
    skip: int = 0,
) -> Iterator[Digest]:
    """Yield the digests of all chunks in order, each taken into the report.

    The first `skip` chunks are read but not worked on: a resumed run has them already.
    """
    sizes = [s.path.stat().st_size for s in sources]
    whole, at = sum(sizes), [0]

    def chunks() -> Iterator[Chunk]:
        base = 0
        for source, size in zip(sources, sizes, strict=True):

            def tell(n: int, base: int = base) -> None:
                at[0] = base + n

            try:
                yield from read.chunks(source, options.encoding, tell)
            except (OSError, read.ReadError, UnicodeError, LookupError) as error:
                yield Chunk(source.name, 0, 0, issues=[_unreadable(error, options)], last=True)
            base += size

    todo = islice(chunks(), skip, None)
    for part in workers.digests(todo, options, steps, workers.processes(whole, processes)):
        absorb(report, part, options)
        if progress:
            progress(at[0], whole, report.records)
        yield part


def _unreadable(error: Exception, options: Options) -> Issue:
    if isinstance(error, read.ReadError):
        return Issue(0, error.code, str(error))
    if isinstance(error, LookupError):
        return Issue(0, "encoding", f"no encoding is called {options.encoding!r}")
    if isinstance(error, UnicodeError):
        return Issue(0, "encoding", f"not {options.encoding}: {str(error)[:160]}")
    return Issue(0, "missing_file", f"cannot be read: {getattr(error, 'strerror', None) or error}")


def absorb(report: Report, part: Digest, options: Options) -> None:
    """Take a digest's counts and findings into the report."""
    room = {code: options.max_findings - report.counts[code] for code in part.counts}
    for found in part.findings:
        if room[found.code] > 0 and not (found.code in _ONCE and _said(report, found)):
            report.findings.append(found)
            room[found.code] -= 1
    report.counts.update(part.counts)
    report.records += part.records
    report.dropped += part.dropped
    for kind, (count, line) in part.kinds.items():
        known = report.kinds.get(kind)
        report.kinds[kind] = (known[0] + count, *known[1:]) if known else (count, part.file, line)
    report.turns.update(part.turns)
    report.languages.update(part.languages)
    report.features.update(part.features)
    report.pii.update(part.pii)
    report.lengths.extend(part.lengths)
    report.lengths.how = part.lengths.how if part.lengths.total else report.lengths.how


_ONCE = frozenset({"crlf", "bom"})


def _said(report: Report, found: Finding) -> bool:
    return any(f.code == found.code and f.file == found.file for f in report.findings)


def conclude(report: Report, options: Options) -> None:
    """Add what only the whole set can tell: mixed kinds, too much dropped, nothing left."""
    where = report.files[0] if report.files else ""
    kinds = {k: v for k, v in report.kinds.items() if k not in ("unknown", "preference")}
    if len(kinds) > 1 and options.to not in ("chat", "chosen"):
        said = "; ".join(
            f"{recognise.TITLES[kind]}: {count:,} (first at {_place(file, line, report)})"
            for kind, (count, file, line) in sorted(kinds.items(), key=lambda kv: -kv[1][0])
        )
        second = sorted(kinds.values(), key=lambda v: (v[1] != where, v[2]))[1]
        report.add(second[1], second[2], "mixed_schema", f"{len(kinds)} kinds of records: {said}")
    if "text" in kinds and len(kinds) > 1 and options.to in ("chat", "chosen"):
        count, file, line = kinds["text"]
        report.add(
            file,
            line,
            "mixed_schema",
            f"{count:,} plain texts have no prompt: they cannot become chat messages",
        )
    lost = report.dropped
    if options.skip_bad_lines:
        _excuse(report)
    if not report.refused and lost > report.records * codes.MAX_DROPPED_SHARE:
        report.add(
            where,
            0,
            "too_many_dropped",
            f"{lost:,} of {report.records:,} records would be left out",
        )
    elif not report.records and not report.refused:
        report.add(where, 0, "empty_file", "there is no record in the set")
    if options.alternation and not options.fix and report.counts["roles_not_alternating"]:
        report.add(
            where,
            0,
            "template_needs_alternation",
            (f"{report.counts['roles_not_alternating']:,} places where one speaker has two turns"),
        )


#: Errors of single lines, which --skip-bad-lines turns into dropped records.
SKIPPABLE = frozenset(
    [
        "json_syntax",
        "truncated_last_line",
        "duplicate_key",
        "line_too_long",
        "csv_columns",
        "not_an_object",
        "unknown_role",
        "missing_role",
        "null_messages",
        "null_content",
        "structure_not_text",
        "tool_args_invalid",
        "tool_call_invalid",
        "tools_invalid",
        "lone_surrogate",
        "multimodal_unsupported",
        "encoding",
        "unknown_schema",
    ]
)


#: Faults of the bytes, whatever the records mean: no reader takes such a file.
UNREADABLE = frozenset(
    [
        "json_syntax",
        "truncated_last_line",
        "truncated_file",
        "duplicate_key",
        "line_too_long",
        "csv_columns",
        "empty_file",
        "encoding",
        "lone_surrogate",
    ]
)


def _excuse(report: Report) -> None:
    report.findings = [
        replace(f, severity="drop", remedy="left out, as --skip-bad-lines asks")
        if f.code in SKIPPABLE and f.line
        else f
        for f in report.findings
    ]


def _place(file: str, line: int, report: Report) -> str:
    return f"line {line}" if len(report.files) == 1 else f"{file} line {line}"
