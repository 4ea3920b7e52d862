"""One chunk read, checked, normalised and measured: the work a process can do alone."""

import gc
import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from . import codes, decode, lengths, minhash, tokens
from .chunks import Chunk
from .codes import CODES, Finding
from .lengths import Lengths
from .options import Options
from .pii import mask, scan
from .records import Record, normalise

#: Codes said once a file, however many lines they hold on.
ONCE = frozenset({"bom", "crlf", "array_in_jsonl", "pretty_printed_json", "empty_file"})
EMPTY_PROMPT, SHORT, NOTHING_TO_LEARN, TOO_LONG = 1, 2, 4, 8  # bits of `flags`


@dataclass(slots=True)
class Digest:
    """What came out of a chunk. The arrays run over the kept records, in the order of the file."""

    file: str
    records: int = 0
    dropped: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, list[int]] = field(default_factory=dict)  # kind -> [count, first line]
    turns: Counter[int] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)  # records with: system, tools
    pii: Counter[str] = field(default_factory=Counter)
    pii_lines: list[tuple[int, str, str]] = field(default_factory=list)  # line, type, rule
    lengths: Lengths = field(default_factory=Lengths)
    rows: list[bytes] = field(default_factory=list)
    lines: Any = field(default_factory=lambda: array("Q"))
    flags: Any = field(default_factory=lambda: array("B"))
    exact: list[bytes] = field(default_factory=list)  # 16 bytes a record
    prompts: Any = field(default_factory=lambda: array("Q"))
    groups: Any = field(default_factory=lambda: array("Q"))
    bands: Any = field(default_factory=lambda: array("q"))  # minhash.BANDS a record
    shingles: Any = field(default_factory=lambda: array("I"))  # of all records, end to end
    shingle_counts: Any = field(default_factory=lambda: array("I"))
    sketches: list[bytes] = field(default_factory=list)  # minhash.BINS bytes a record
    changes: list[tuple[int, str, str]] = field(default_factory=list)  # line, action, code


@dataclass(frozen=True, slots=True)
class Steps:
    """Which of the costly steps to do on each record."""

    keep_rows: bool = False
    exact: bool = False
    near: bool = False
    pii: bool = False
    lengths: bool = True
    survey: bool = False  # languages and turns


def digest(chunk: Chunk, options: Options, steps: Steps) -> Digest:
    """Return the digest of a chunk; pure but for a tokenizer loaded once a process."""
    collecting = gc.isenabled()
    gc.disable()  # records hold no cycles; the collector would walk them all again and again
    try:
        return _digest(chunk, options, steps)
    finally:
        if collecting:
            gc.enable()


def _digest(chunk: Chunk, options: Options, steps: Steps) -> Digest:
    out = Digest(chunk.file)
    seen: Counter[str] = Counter()

    def add(line: int, code: str, message: str, column: int = 0) -> None:
        out.counts[code] += 1
        seen[code] += 1
        if seen[code] <= (1 if code in ONCE else options.max_findings):
            out.findings.append(codes.finding(chunk.file, line, code, message, column))

    kept: list[tuple[int, Record]] = []
    faults: list[tuple[str, str]] = []
    for line, value in decode.values(chunk, add):
        faults.clear()
        kind, record = normalise(value, options, faults)
        mark = out.kinds.get(kind)
        if mark is None:
            out.kinds[kind] = [1, line]
        else:
            mark[0] += 1
        if faults:
            for code, message in faults:
                add(line, code, message)
            if steps.keep_rows:
                out.changes += [
                    (line, CODES[c][0], c)
                    for c, _ in faults
                    if CODES[c][0] in ("fix", "drop", "error")
                ]
        if record is None:
            out.dropped += 1
        else:
            kept.append((line, record))
    out.records = sum(mark[0] for mark in out.kinds.values())
    settings = pii_settings(options) if steps.pii else None
    if settings is not None:
        kept = [
            (line, _private(line, record, settings, options, out=out, add=add))
            for line, record in kept
        ]
    if steps.lengths:
        _measure(kept, options, out, add)
    if steps.survey:
        for _, record in kept:
            out.turns[sum(m["role"] in ("user", "assistant") for m in record.messages or ())] += 1
            out.languages[language(_sample(record))] += 1
            if record.messages:
                out.features["system"] += record.messages[0]["role"] == "system"
                out.features["tools"] += any("tool_calls" in m for m in record.messages)
    if steps.keep_rows or steps.exact:
        _keep(kept, options, steps, out)
    return out


_settings: dict[tuple[object, ...], scan.Settings] = {}


def pii_settings(options: Options) -> scan.Settings:
    """Return the scan's settings, built once a process (the terms become one pattern)."""
    key = (options.pii_regions, options.pii_terms, options.pii_keep, options.with_names)
    if key not in _settings:
        terms = scan.terms_pattern(options.pii_terms)
        _settings[key] = scan.Settings(
            options.pii_regions, terms, options.with_names, frozenset(options.pii_keep)
        )
    return _settings[key]


def _private(
    line: int,
    record: Record,
    settings: scan.Settings,
    options: Options,
    *,
    out: Digest,
    add: decode.Add,
) -> Record:
    found, record = mask.record(record, settings, replace=options.mask)
    if not found:
        return record
    for kind, rule in found:
        out.pii[kind] += 1
        out.pii_lines.append((line, kind, rule))
    kinds = Counter(kind for kind, _ in found)
    said = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()) if kind != "SECRET")
    if options.mask:
        out.changes.append((line, "masked", ",".join(sorted(kinds))))
        return record
    if said:
        add(line, "personal_data", said, 0)
    if kinds["SECRET"]:
        add(line, "secret", f"{kinds['SECRET']} key(s) or password(s)", 0)
    return record


def _measure(
    kept: list[tuple[int, Record]], options: Options, out: Digest, add: decode.Add
) -> None:
    if options.tokenizer:
        counted, out.lengths.how = tokens.count([record for _, record in kept], options)
    else:
        counted = [lengths.estimate_record(record) for _, record in kept]
    totals, prompts, answers = out.lengths.total, out.lengths.prompt, out.lengths.answer
    size = options.sequence_len or 1 << 32
    for (line, _), (total, prompt, answer) in zip(kept, counted, strict=True):
        totals.append(total)
        prompts.append(prompt)
        answers.append(answer)
        if total > size:
            about = "about " if out.lengths.how.startswith("estimate") else ""
            if prompt >= size:
                add(
                    line,
                    "prompt_exceeds_sequence_len",
                    f"the prompt alone has {about}{prompt:,} tokens of {size:,}: dropped by "
                    "Axolotl "
                    "by default, "
                    "and nothing to learn when truncated",
                    0,
                )
            else:
                add(
                    line,
                    "exceeds_sequence_len",
                    f"{about}{total:,} tokens, sequence_len is {size:,}",
                    0,
                )


def _keep(kept: list[tuple[int, Record]], options: Options, steps: Steps, out: Digest) -> None:
    size = options.sequence_len
    if not steps.keep_rows and not steps.near:
        out.exact = [_digest16(normal(whole(record))) for _, record in kept]
        return
    for i, (line, record) in enumerate(kept):
        flags = EMPTY_PROMPT if record.empty_prompt else 0
        if options.min_response_chars and len(record.answer().strip()) < options.min_response_chars:
            flags |= SHORT
        if size and steps.lengths and out.lengths.total[i] > size:
            flags |= TOO_LONG
            # An estimate is high on purpose: a record goes only where its low end is too long.
            sure = 1 - lengths.ESTIMATE_BAND if out.lengths.how == tokens.ESTIMATE else 1
            flags |= NOTHING_TO_LEARN if out.lengths.prompt[i] * sure >= size else 0
        if options.fix and record.messages:
            for message in record.messages:
                if not message["content"].isprintable():
                    message["content"] = decode.CONTROL_CHARACTERS.sub("", message["content"])
        plain = normal(whole(record))
        out.lines.append(line)
        out.flags.append(flags)
        out.exact.append(_digest16(plain))
        if steps.keep_rows:
            out.rows.append((record.as_json(options.shape) + "\n").encode())
            prompt = normal(_prompt(record)) if options.held_out else ""
            out.prompts.append(_short_hash(prompt) if prompt else 0)
            out.groups.append(_short_hash(record.group) if record.group else 0)
        if steps.near or steps.keep_rows:
            found = minhash.shingles(plain)
            out.shingles.extend(found)
            out.shingle_counts.append(len(found))
        if steps.near:
            keys, sketch = minhash.sketch(found)
            out.bands.extend(keys)
            out.sketches.append(sketch)


def _digest16(plain: str) -> bytes:
    return hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=16).digest()


def _short_hash(text: str) -> int:
    raw = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(raw, "big") or 1


def whole(record: Record) -> str:
    """Return all text of a record, turns apart by a blank, speakers left out."""
    if record.messages is None:
        return record.text
    parts = [message["content"] for message in record.messages]
    for message in record.messages:
        if "tool_calls" in message:
            parts += [c["function"]["arguments"] for c in message["tool_calls"]]
    return " ".join(parts)


def _prompt(record: Record) -> str:
    """Return what comes before the first answer (system too); a text's first 200 characters."""
    if record.messages is None:
        return record.text[:200]
    parts = []
    for message in record.messages:
        if message["role"] == "assistant":
            break
        parts.append(message["content"])
    return "\n\n".join(parts)


def normal(text: str) -> str:
    """Return the compare form: NFKC, case folded, blanks as one space."""
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if "\n" in text or "  " in text or "\t" in text or "\r" in text:
        return " ".join(text.split())
    return text.strip()


def _sample(record: Record) -> str:
    return record.text[:160] if record.messages is None else record.messages[-1]["content"][:160]


_ARABIC = re.compile("[\u0600-\u06ff]+")
_TURKISH = re.compile("[ığşİĞŞ]")
_FAR = re.compile("[^\u0000-\u024f]+")


def language(text: str) -> str:
    """Return ar, tr, en, latin or other by letters alone: a hint for the report, not a detector."""
    if text.isascii():
        return "en" if text else "other"
    size = len(text)
    if len(_ARABIC.sub("", text)) * 3 < size * 2:
        return "ar"
    if _TURKISH.search(text):
        return "tr"
    return "other" if len(_FAR.sub("", text)) * 3 < size * 2 else "latin"
