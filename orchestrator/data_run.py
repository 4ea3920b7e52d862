"""What the `data` commands do between parsing and printing: job files, hub paths, progress."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jobs.data import exits, gate, jobfile, leakcheck, screen
from jobs.data import prepare as prepare_room
from jobs.data.codes import finding
from jobs.data.digest import Steps
from jobs.data.gate import Report
from jobs.data.jobfile import JobData
from jobs.data.lengths import CANDIDATES
from jobs.data.options import Options
from jobs.data.spill import BusyError
from orchestrator.clock import Clock, SystemClock
from orchestrator.data_hub import HubError, bring, tokenizer

_EVERY_S = 0.2
_JOB_SUFFIXES = (".yaml", ".yml")


def run_check(
    files: Sequence[Path],
    options: Options,
    validation: Sequence[Path],
    *,
    as_json: bool,
    processes: int,
) -> bool:
    """Check and print; return whether the data is refused."""
    job, early = _job(files, options)
    job.validation += [Path(p) for p in validation]
    train, held = _brought(job.train, early), _brought(job.validation, early)
    if not job.only_text and (job.model or job.options.chat_template or job.options.tokenizer):
        jobfile.check_template(job, early, str(files[0]))
    if train:
        report = gate.check(train, job.options, progress=bar(), processes=processes)
        if held and not report.refused:
            leakcheck.check(train, held, job.options, report)
        jobfile.check_records(
            job,
            report,
            str(files[0]),
            systems=bool(report.features["system"]),
            tools=bool(report.features["tools"]),
        )
        report.lengths.memory = memory_by_length(Path(files[0]), job.options.sequence_len)
    else:
        report = Report()
    report.findings = [*early.findings, *report.findings]
    report.counts.update(early.counts)
    _print(report, job.options, as_json=as_json)
    return report.refused


def run_stats(files: Sequence[Path], options: Options, *, as_json: bool, processes: int) -> bool:
    """Measure and print; return whether nothing could be read."""
    job, early = _job(files, options)
    train = _brought(job.train, early)
    steps = Steps(exact=True, lengths=True, survey=True)
    report = (
        gate.check(train, job.options, steps=steps, progress=bar(), processes=processes)
        if train
        else early
    )
    report.lengths.memory = memory_by_length(Path(files[0]), job.options.sequence_len)
    if as_json:
        body = report.as_dict()
        body["lengths"] = report.lengths.as_dict(job.options.sequence_len)
        del body["findings"], body["personal_data"]
        _out(json.dumps(body, ensure_ascii=False))
    else:
        for line in screen.stats_lines(
            report, sequence_len=job.options.sequence_len, width=_width()
        ):
            _out(line)
    if not report.records:
        for found in [*early.findings, *report.findings][:3]:
            sys.stderr.write(f"{found.file}: {found.message}. {found.remedy}\n")
    return not report.records


def run_prepare(
    files: Sequence[Path],
    out: Path,
    options: Options,
    validation: Sequence[Path],
    *,
    as_json: bool,
    processes: int,
) -> int:
    """Prepare and print; return the exit code."""
    job, early = _job(files, options)
    train = _brought(job.train, early)
    held = _brought([*job.validation, *validation], early)
    try:
        with stages() as stage:
            made = prepare_room.prepare(
                train,
                out,
                job.options,
                validation=held,
                progress=bar(),
                stage=stage,
                processes=processes,
            )
    except BusyError as error:
        sys.stderr.write(f"{error}: wait for it, or choose another --out\n")
        return exits.USAGE
    except OSError as error:
        sys.stderr.write(f"{out}: cannot be written: {error.strerror or error}\n")
        return exits.USAGE
    made.report.findings = [*early.findings, *made.report.findings]
    if as_json:
        body = {
            **made.report.as_dict(),
            "unchanged": made.unchanged,
            "manifest": made.manifest or None,
        }
        body["lengths"] = (
            made.report.lengths.as_dict(job.options.sequence_len)
            if made.report.lengths.total
            else None
        )
        _out(json.dumps(body, ensure_ascii=False))
    elif made.unchanged:
        _out(
            f"{out} holds just this already: {made.manifest['counts']['train']:,} records to "
            "train "
            "on."
        )
    else:
        for line in screen.lines(
            made.report, sequence_len=job.options.sequence_len, width=_width()
        ):
            _out(line)
        if made.manifest:
            _out("")
            for line in screen.prepared_lines(made.manifest, str(out), _width()):
                _out(line)
    return exits.REFUSED if made.report.refused or not made.manifest else exits.OK


def memory_by_length(job_file: Path, chosen: int) -> dict[int, float]:
    """Return GiB on one GPU by sequence length, for a job file whose model is known; else {}.

    Lengths that the model does not reach are left out.
    """
    if job_file.suffix.lower() not in _JOB_SUFFIXES:
        return {}
    from jobs.architectures import ArchitectureError
    from jobs.findings import JobFileError
    from jobs.load import load_job
    from jobs.memory import footprint
    from jobs.sizing import architecture_of, sizing_of
    from jobs.workload import WorkloadError

    try:
        spec = load_job(job_file).spec
        work = sizing_of(spec, architecture_of(spec)).work
    except (JobFileError, ArchitectureError):
        return {}
    found = {}
    for size in sorted({*CANDIDATES, chosen} - {0}):
        with contextlib.suppress(WorkloadError):
            found[size] = round(footprint(replace(work, sequence_len=size)).device_gib, 2)
    return found


def _job(files: Sequence[Path], options: Options) -> tuple[JobData, Report]:
    """Return the data side of a job file or of data files, and a report for early findings."""
    early = Report()
    first = Path(files[0])
    if first.suffix.lower() not in _JOB_SUFFIXES:
        return JobData(train=list(files), options=options), early
    import yaml

    try:
        body = yaml.safe_load(first.read_text(encoding="utf-8-sig"))
    except OSError as error:
        early.add(str(first), 0, "missing_file", f"cannot be read: {error.strerror}")
        return JobData(options=options), early
    except UnicodeError:
        early.add(str(first), 0, "encoding", "the job file is not UTF-8")
        return JobData(options=options), early
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        early.findings.append(
            finding(
                str(first),
                line,
                "job_file",
                f"not YAML: {getattr(error, 'problem', None) or error}",
            )
        )
        return JobData(options=options), early
    job = jobfile.read(body if isinstance(body, dict) else {}, first.parent, options)
    if not job.train:
        early.add(str(first), 0, "job_file", "no data.train (or datasets[].path) in it")
    job.train += list(files[1:])
    return job, early


def _brought(paths: Sequence[Path], early: Report) -> list[Path]:
    """Return local paths; hf:// ones are fetched first, missing ones become findings."""
    out = []
    for path in paths:
        text = (
            str(path).replace("hf:/datasets", "hf://datasets")
            if str(path).startswith("hf:/")
            else str(path)
        )
        if text.startswith("hf://"):
            try:
                out.append(bring(text, _cache()))
            except HubError as error:
                early.add(text, 0, "missing_file", str(error))
        else:
            out.append(Path(path))
    return out


def tokenizer_folder(word: str) -> str:
    """Return the folder that --tokenizer means: as it is, or fetched for an id of the hub.

    Raises HubError where neither has a tokenizer.json.
    """
    from jobs.spec import HUB_ID

    if not word or (Path(word) / "tokenizer.json").is_file():
        return word
    if "/" not in word or not HUB_ID.fullmatch(word) or Path(word).exists():
        raise HubError("no tokenizer.json in this folder")
    return str(tokenizer(word, _cache() / "tokenizers"))


def _cache() -> Path:
    import platformdirs

    return Path(os.environ.get("GPUJOB_HOME") or platformdirs.user_data_dir("gpujob")) / "hub"


def _print(report: Report, options: Options, *, as_json: bool) -> None:
    if as_json:
        body = report.as_dict()
        body["lengths"] = (
            report.lengths.as_dict(options.sequence_len) if report.lengths.total else None
        )
        _out(json.dumps(body, ensure_ascii=False))
        return
    for line in screen.lines(report, sequence_len=options.sequence_len, width=_width()):
        _out(line)


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def bar(clock: Clock | None = None) -> Callable[[int, int, int], None] | None:
    """Return a painter of the progress line with a rate, None where nobody looks at a terminal."""
    if not sys.stderr.isatty():
        return None
    clock = clock or SystemClock()
    began = shown = clock.monotonic()

    def paint(done: int, whole: int, records: int) -> None:
        nonlocal shown
        now = clock.monotonic()
        last = done >= whole
        if now - shown < _EVERY_S and not last:
            return
        shown = now
        share = min(1.0, done / whole) if whole else 1.0
        rate = records / max(now - began, 1e-6)
        left = (1 - share) / share * (now - began) if share else 0.0
        text = (
            f"\r  {'#' * round(share * 30):-<30} {share:4.0%}  {records:,} records  "
            f"{rate:,.0f}/s  {left:,.0f} s left "
        )
        sys.stderr.write(text + ("\r" + " " * len(text) + "\r" if last else ""))
        sys.stderr.flush()

    return paint


@contextlib.contextmanager
def stages(clock: Clock | None = None) -> Iterator[Callable[[str, int, int], None] | None]:
    """Lend a painter of what the passes after reading do, with their rate; None where nobody looks.

    Its line is gone after the block, however that ends: what is printed next begins on a clean one.
    """
    if not sys.stderr.isatty():
        yield None
        return
    clock = clock or SystemClock()
    widest = 0
    began: dict[str, tuple[float, int]] = {}  # stage -> when it was first heard of, and how far

    def paint(name: str, done: int, whole: int) -> None:
        nonlocal widest
        since, first = began.setdefault(name, (clock.monotonic(), done))
        rate = (done - first) / max(clock.monotonic() - since, 1e-6)
        text = f"  {name} {done:,}/{whole:,} records"
        if rate > 0:
            text += f"  {rate:,.0f}/s  {(whole - done) / rate:,.0f} s left"
        widest = max(widest, len(text))
        sys.stderr.write(f"\r{text:<{widest}}")
        sys.stderr.flush()

    try:
        yield paint
    finally:
        if widest:
            sys.stderr.write("\r" + " " * widest + "\r")
            sys.stderr.flush()
