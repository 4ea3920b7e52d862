"""The gate's one screen of text: verdict, findings, pictures of the set. Data in, lines out."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .codes import CODES, Finding
from .gate import Report
from .lengths import ESTIMATE_BAND, Lengths
from .pii.policy import NOT_CHECKED, NOTICE
from .recognise import TITLES

_BAR = "█"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ORDER = ("error", "drop", "warn_or_fix", "warn", "fix", "keep")
_WORDS = {
    "error": "refused",
    "drop": "left out",
    "warn_or_fix": "warning",
    "warn": "warning",
    "fix": "repaired",
    "keep": "noted",
}
LANGUAGES = {
    "ar": "Arabic",
    "tr": "Turkish",
    "en": "English or ASCII",
    "latin": "other Latin",
    "other": "other",
}


def lines(report: Report, *, sequence_len: int = 0, width: int = 80, samples: int = 2) -> list[str]:
    """Return the report as lines of at most `width` columns."""
    out = [*_head(report, width), ""]
    out += _findings(report, width, samples)
    if report.lengths.total:
        out += ["", *length_lines(report.lengths, sequence_len, width)]
    out += _pictures(report, width)
    out += ["", *pii_lines(report, width)]
    return [_clip(line, width) for line in out]


def stats_lines(report: Report, *, sequence_len: int = 0, width: int = 80) -> list[str]:
    """Return the pictures alone: lengths, languages, turns, duplicates."""
    out = _head(report, width)
    if report.lengths.total:
        out += ["", *length_lines(report.lengths, sequence_len, width)]
    return [_clip(line, width) for line in out + _pictures(report, width)]


def _head(report: Report, width: int) -> list[str]:
    names = ", ".join(report.files[:3]) + (
        f" and {len(report.files) - 3} more" if len(report.files) > 3 else ""
    )
    kinds = (
        ", ".join(f"{TITLES[k]} {n:,}" for k, (n, _, _) in report.kinds.items())
        or "nothing readable"
    )
    verdict = "REFUSED" if report.refused else "ok"
    return [
        f"{verdict}   {report.records:,} records, {report.kept:,} kept   {kinds}",
        _clip(f"  {names}", width),
    ]


def _findings(report: Report, width: int, samples: int) -> list[str]:
    if not report.findings:
        return ["no findings"]
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append(finding)
    out: list[str] = []
    codes = sorted(
        by_code, key=lambda c: (_ORDER.index(by_code[c][0].severity), -report.counts[c], c)
    )
    for code in codes:
        group = by_code[code]
        severity = group[0].severity
        out.append(f"{_WORDS[severity]:9} {code:30} {report.counts[code]:>8,} x")
        if severity in ("fix", "keep"):
            continue
        for finding in group[:samples]:
            place = f"line {finding.line}" if finding.line else "whole set"
            if len(report.files) > 1:
                place = f"{finding.file} {place}"
            out += _wrap(f"{place}: {finding.message}", width, indent=12)
        out += _wrap(f"-> {group[0].remedy}", width, indent=12)
    return out


def length_lines(lengths: Lengths, sequence_len: int, width: int) -> list[str]:
    """Return the picture of lengths, the advice table and the recommendation."""
    marks = lengths.percentiles()
    size, why = lengths.advice()
    sure = (
        f"estimated by script, +-{ESTIMATE_BAND:.0%}"
        if lengths.how == "estimate"
        else f"counted with {lengths.how}"
    )
    out = [
        *_wrap(
            f"Lengths in tokens ({sure})   {sum(lengths.total):,} in all, "
            f"{sum(lengths.answer):,} to learn from",
            width,
            indent=0,
        ),
        "  " + "   ".join(f"{k} {v:,}" for k, v in marks.items()),
        *_histogram(lengths.total, width),
        "",
        (
            f"  {'length':>7} {'rows over':>9} {'tokens cut':>11} {'answer cut':>10} "
            f"{'no answer':>9} {'packed to':>9} {'full':>4} {'price':>5}"
            + (f" {'GiB':>5}" if lengths.memory else "")
        ),
    ]
    for row in lengths.table(sequence_len):
        sign = (
            "*"
            if row["sequence_len"] == size
            else ">"
            if row["sequence_len"] == sequence_len
            else " "
        )
        line = (
            f"{sign} {row['sequence_len']:>7,} {row['rows_over']:>9,} "
            f"{row['tokens_lost_if_truncated']:>11,} "
            f"{row['answer_tokens_lost_if_truncated']:>10,} "
            f"{row['rows_with_nothing_to_learn']:>9,} "
            f"{row['packed_sequences']:>9,} {row['packing_efficiency']:>4.0%} "
            f"{row['price_vs_recommended']:>5.2f}"
        )
        gib = row["memory_gib"]
        out.append(
            line + (f" {'-' if gib is None else format(gib, '.1f'):>5}" if lengths.memory else "")
        )
    out += _wrap(f"* recommended: {size:,}. {why}.", width, indent=2)
    out += _wrap(
        "Axolotl drops rows over it by default. price: tokens computed, beside those at the "
        "recommended length; longer attention is on top. "
        + (
            "GiB: of one GPU, as this job trains; - where the model does not reach so far."
            if lengths.memory
            else "Kept activations grow in step with it; a job file in place of the data shows GiB."
        ),
        width,
        indent=2,
    )
    odd = lengths.outliers()
    if odd:
        out.append(
            f"  {len(odd)} record(s) over four times the 99th percentile, the longest "
            f"{marks['max']:,} "
            "tokens"
        )
    return out


def _histogram(values: Sequence[int], width: int) -> list[str]:
    """Return a one-line picture of lengths on a scale of doublings, with its scale below."""
    top = max(values).bit_length()
    bins = Counter(
        max(5, v.bit_length() * 2 - (v < 3 << (v.bit_length() - 2)) if v > 3 else 5) for v in values
    )
    cells = range(10, max(top * 2 + 1, 16))
    bins[10] += sum(n for k, n in bins.items() if k < 10)
    most = max(bins[k] for k in cells)
    picture = "".join(
        _EIGHTHS[0 if not bins[k] else max(1, round(bins[k] / most * 8))] * 3 for k in cells
    )
    scale = "".join(f"{1 << (k // 2 - 1):<6,}" for k in cells if k % 2 == 0)
    return [f"  |{picture}|"[:width], f"   {scale}"[:width]]


def _pictures(report: Report, width: int) -> list[str]:
    out: list[str] = []
    if report.languages:
        named = {LANGUAGES.get(k, k): n for k, n in report.languages.most_common(5)}
        out += ["", "Languages (by letters)", *bars(named, width)]
    if len(report.turns) > 1 or report.turns.keys() - {0, 2}:
        shown = {f"{k} turns": n for k, n in sorted(report.turns.items())[:6]}
        more = sum(n for _, n in sorted(report.turns.items())[6:])
        out += ["", "Turns", *bars(shown | ({"more": more} if more else {}), width)]
    if report.duplicates is not None and report.kept:
        unique = report.kept - report.duplicates
        out += [
            "",
            "Duplicates",
            *bars({"unique": unique, "exact copies": report.duplicates}, width),
        ]
    return out


def bars(values: Mapping[str, int], width: int) -> list[str]:
    """Return a bar chart: name, number, share, bar."""
    whole = sum(values.values()) or 1
    room = max(4, width - 42)
    return [
        f"  {name:18} {n:>10,} {n / whole:>6.1%}  {_BAR * round(n / whole * room)}"
        for name, n in values.items()
    ]


def pii_lines(report: Report, width: int) -> list[str]:
    """Return what the scan for personal data found, and what it did not look for."""
    if not report.pii_checked:
        return ["Personal data: NOT scanned."]
    found = ", ".join(f"{kind} {n:,}" for kind, n in report.pii.most_common()) or "none found"
    out = [f"Personal data and secrets: {found}"]
    out += _wrap("not looked for: " + "; ".join(NOT_CHECKED) + ".", width, indent=2)
    return out + _wrap(NOTICE, width, indent=2)


def prepared_lines(manifest: Mapping[str, Any], out: str, width: int = 80) -> list[str]:
    """Return the closing lines of a prepare run."""
    counts = manifest["counts"]
    kept = {
        "train": counts["train"],
        "validation": counts["validation"],
        "exact copies": counts["exact_duplicates"],
        "near copies": counts["near_duplicates"],
        "left out": counts["bad_or_dropped"] + sum(counts["left_out"].values()),
    }
    lines = [f"Written to {out}", *bars({k: n for k, n in kept.items() if n}, width)]
    proof = manifest["split_proof"]
    if proof.get("validation_records"):
        lines.append(
            f"  split proven: 0 of {proof['validation_records']:,} validation records has a "
            "neighbour "
            f">= {proof['threshold']} in train"
        )
    if manifest["personal_data"]["masked"]:
        lines.append(
            f"  masked: {sum(manifest['personal_data']['types'].values()):,} finds; a second "
            "scan "
            "finds none"
        )
    return [_clip(line, width) for line in lines]


def remedy(code: str) -> str:
    """Return the remedy of a code."""
    return CODES[code][1]


def _columns(text: str) -> int:
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
        for c in text
    )


def _clip(line: str, width: int) -> str:
    """Cut a line to the width; control characters cannot reach the terminal."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in line)
    if _columns(line) <= width:
        return line
    while line and _columns(line) > width - 1:
        line = line[:-1]
    return line + "…"


def _wrap(text: str, width: int, indent: int) -> list[str]:
    room, out, line = max(20, width - indent), [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > room:
            out.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [" " * indent + part for part in [*out, line] if part]
