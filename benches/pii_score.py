"""Precision and recall of the personal-data scan on a labelled file.

    python benches/pii_score.py FILE.jsonl [--json] [--misses]

Columns of FILE: id, lang, text, spans [{start, end, type, text}]. A hit has the same type and an
overlap over union of at least 0.5. "structured" are EMAIL, PHONE, CARD, IBAN, ID.
"""

import argparse
import json
import pathlib
import sys
import time
from collections import defaultdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from jobs.data.pii.scan import Settings, scan
from jobs.data.pii.spans import STRUCTURED


def iou(a, b):
    shared = min(a["end"], b["end"]) - max(a["start"], b["start"])
    return max(0, shared) / (max(a["end"], b["end"]) - min(a["start"], b["start"]))


def match(wanted, found):
    """Return (hits, missed, wrong) by greedy best overlap, one to one, same type."""
    pairs = sorted(
        (
            (iou(w, f), i, j)
            for i, w in enumerate(wanted)
            for j, f in enumerate(found)
            if w["type"] == f["type"]
        ),
        key=lambda p: (-p[0], p[1], p[2]),
    )
    used_w, used_f = set(), set()
    for overlap, i, j in pairs:
        if overlap >= 0.5 and i not in used_w and j not in used_f:
            used_w.add(i)
            used_f.add(j)
    hits = [wanted[i] for i in used_w]
    missed = [w for i, w in enumerate(wanted) if i not in used_w]
    wrong = [f for j, f in enumerate(found) if j not in used_f]
    return hits, missed, wrong


def figures(hit, miss, wrong):
    return {
        "precision": round(hit / (hit + wrong), 4) if hit + wrong else None,
        "recall": round(hit / (hit + miss), 4) if hit + miss else None,
        "n": hit + miss,
        "found": hit + wrong,
    }


def score(lines, settings):
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    by_language: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    notes = []
    for line in lines:
        found = [
            {
                "start": s.start,
                "end": s.end,
                "type": s.type,
                "rule": s.rule,
                "text": line["text"][s.start : s.end],
            }
            for s in scan(line["text"], settings)
        ]
        for column, spans in enumerate(match(line["spans"], found)):
            for span in spans:
                counts[span["type"]][column] += 1
                if span["type"] in STRUCTURED:
                    by_language[line.get("lang", "?")][column] += 1
                if column:
                    notes.append(
                        (("", "missed", "wrong")[column], line.get("id"), span, line["text"])
                    )
    structured = [sum(counts[t][i] for t in STRUCTURED) for i in range(3)]
    return {
        "structured": figures(*structured),
        "names": figures(*counts["NAME"]),
        "types": {t: figures(*c) for t, c in sorted(counts.items())},
        "structured_by_language": {k: figures(*c) for k, c in sorted(by_language.items())},
    }, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--misses", action="store_true", help="print what was missed or wrong")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    began = time.process_time()
    result, notes = score(lines, Settings())
    seconds = time.process_time() - began
    if args.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    print(f"{len(lines)} lines, {len(lines) / seconds:,.0f} lines a CPU second")
    print(f"{'':14}{'precision':>10}{'recall':>8}{'n':>5}{'found':>7}")
    rows = {"structured": result["structured"], **result["types"]}
    rows |= {f"structured {k}": v for k, v in result["structured_by_language"].items()}
    for name, row in rows.items():
        cells = [f"{row[k]:.3f}" if row[k] is not None else "-" for k in ("precision", "recall")]
        print(f"{name:14}{cells[0]:>10}{cells[1]:>8}{row['n']:>5}{row['found']:>7}")
    if args.misses:
        for what, number, span, text in notes:
            print(
                f"{what} {span['type']} {span.get('rule', '')} [{span['text']}] line {number}: "
                f"{text}"
            )


if __name__ == "__main__":
    main()
