"""Speed and memory of the data gate on invented chat records, and the generator of them.

    python benches/data_speed.py generate FILE [--records 100000] [--seed 1]
    python benches/data_speed.py run FILE [--steps read,lengths,exact,...] [--json]

Steps: read, lengths, exact, near, pii, tokens, prepare.

About 770 bytes a record; Arabic 40 %, Turkish 30 %, English 30 %; of 100 records 8 are exact
copies and 7 near copies (4 % of the words replaced) of an earlier one. FILE.pairs.json holds the
planted pairs. Figures are records per CPU second of one process; the peak is ru_maxrss in MiB.
json_loads_beside is what bare json.loads made right before and after the step: on a busy machine
both shrink, so their ratio tells more than either.
"""

import argparse
import json
import multiprocessing
import pathlib
import random
import resource
import sys
import tempfile
import time
from itertools import islice

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

_SYLLABLES = {
    "en": [
        "ta",
        "re",
        "in",
        "con",
        "me",
        "tion",
        "er",
        "al",
        "is",
        "the",
        "an",
        "pro",
        "ver",
        "da",
        "li",
        "mo",
        "ing",
        "ex",
        "per",
        "com",
        "st",
        "ble",
        "de",
        "un",
        "sol",
        "ra",
        "pla",
        "ne",
        "wor",
        "ke",
    ],
    "tr": [
        "ka",
        "la",
        "ri",
        "yor",
        "mış",
        "ler",
        "den",
        "çı",
        "gö",
        "rü",
        "şe",
        "bi",
        "ür",
        "ıl",
        "eş",
        "dağ",
        "sı",
        "nü",
        "tı",
        "ö",
        "ya",
        "ve",
        "bu",
        "ne",
        "ki",
        "da",
        "ge",
        "li",
        "mi",
        "ğı",
    ],
    "ar": [
        "ال",
        "من",
        "في",
        "على",
        "م",
        "ت",
        "ي",
        "ن",
        "كت",
        "عل",
        "سم",
        "قو",
        "در",
        "بي",
        "ها",
        "وا",
        "را",
        "لا",
        "جد",
        "شر",
        "حس",
        "نا",
        "مر",
        "كا",
        "تو",
        "هي",
        "سا",
        "فر",
        "مت",
        "عا",
    ],
}
_PERSONAL = {
    "en": (
        " Call me on +44 7911 123456.",
        " My mail is jane.roe@example.org.",
        " Card 4453 3314 7893 2885 please.",
    ),
    "tr": (" Numaram 0532 123 45 67.", " TC kimlik 78414122526.", " E-posta ayse@ornek.example."),
    "ar": (" رقم الجوال 0551234567.", " هويتي 1441763651.", " بريدي sara@example.sa."),
}

TOKENIZER = [""]  # the folder for the step `tokens`


def vocabulary(rng, language, size=4000):
    parts = _SYLLABLES[language]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 4))) for _ in range(size)]


def text(rng, words, count):
    out = []
    for i in range(count):
        word = (
            words[min(int(rng.paretovariate(0.8)) - 1, len(words) - 1)]
            if rng.random() < 0.5
            else rng.choice(words)
        )
        out.append(word.capitalize() if i % 14 == 0 else word)
        if i % 14 == 13:
            out[-1] += "."
        elif rng.random() < 0.02:
            out.append(str(rng.randint(1, 9999)))
    return " ".join(out)


def generate(path, records, seed):
    rng = random.Random(seed)
    words = {k: vocabulary(rng, k) for k in _SYLLABLES}
    made: list[tuple[int, list[dict[str, str]], str]] = []
    pairs: dict[str, list[tuple[int, int]]] = {"exact": [], "near": []}
    size = {"en": 62, "tr": 56, "ar": 44}  # words of the two turns, for about 770 bytes
    with open(path, "w", encoding="utf-8") as file:
        for i in range(records):
            draw = rng.random()
            if made and draw < 0.15:
                first = rng.choice(made)
                turns = [dict(t) for t in first[1]]
                if draw < 0.08:
                    pairs["exact"].append((first[0], i))
                else:
                    pairs["near"].append((first[0], i))
                    for turn in turns:
                        parts = turn["content"].split(" ")
                        for _ in range(max(1, round(len(parts) * 0.04))):
                            parts[rng.randrange(len(parts))] = rng.choice(words[first[2]])
                        turn["content"] = " ".join(parts)
                language = first[2]
            else:
                language = rng.choices(("ar", "tr", "en"), (40, 30, 30))[0]
                n = max(12, int(rng.gauss(size[language], size[language] * 0.3)))
                turns = [
                    {"role": "user", "content": text(rng, words[language], n // 2)},
                    {"role": "assistant", "content": text(rng, words[language], n)},
                ]
                if rng.random() < 0.05:
                    turns[0]["content"] += rng.choice(_PERSONAL[language])
                if len(made) < 50000:
                    made.append((i, turns, language))
            file.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")
    pathlib.Path(f"{path}.pairs.json").write_text(json.dumps(pairs))
    return pairs


def pace(path, records=10_000):
    """Records that json.loads alone reads in a CPU second just now: other work slows it as well."""
    with open(path, encoding="utf-8") as file:
        lines = list(islice(file, records))
    began = time.process_time()
    for line in lines:
        json.loads(line)
    return len(lines) / (time.process_time() - began)


def measure(name, path, queue):
    """One step in a fresh process: (records, CPU seconds, peak MiB, notes)."""
    from jobs.data import gate
    from jobs.data.digest import Steps
    from jobs.data.options import Options

    steps = {
        "read": Steps(lengths=False),
        "lengths": Steps(lengths=True),
        "exact": Steps(lengths=False, exact=True),
        "near": Steps(lengths=False, exact=True, near=True),
        "pii": Steps(lengths=False, pii=True),
        "tokens": Steps(lengths=True),
    }
    notes = {}
    before = pace(path)
    began = time.process_time()
    if name == "prepare":
        from jobs.data import prepare

        with tempfile.TemporaryDirectory() as folder:
            result = prepare.prepare(
                [pathlib.Path(path)], pathlib.Path(folder) / "out", Options(), processes=1
            )
            records = result.report.records
            notes = {
                k: result.manifest["counts"][k] for k in ("train", "validation", "near_duplicates")
            }
    elif name == "near":
        from jobs.data import prepare

        with tempfile.TemporaryDirectory() as folder:
            found = prepare.near_only(
                [pathlib.Path(path)], pathlib.Path(folder), Options(validation=0)
            )
        records = found.records
        planted = json.loads(pathlib.Path(f"{path}.pairs.json").read_text())
        same = lambda a, b: found.find(a) == found.find(b)  # noqa: E731
        real = [(a, b) for a, b in planted["near"] if found.alike(a, b) >= 0.6]
        notes = {
            "planted": len(planted["near"]),
            "planted_over_0.6": len(real),
            "found": sum(same(a, b) for a, b in planted["near"]),
            "found_share": round(sum(same(a, b) for a, b in real) / len(real), 4),
            "verified_pairs": found.verified,
            "candidates": found.candidates,
        }
    else:
        options = Options(tokenizer=TOKENIZER[0] if name == "tokens" else "")
        report = gate.check([pathlib.Path(path)], options, steps=steps[name], processes=1)
        records = report.records
        notes = {"duplicates": report.duplicates, "pii": sum(report.pii.values())}
    used = time.process_time() - began
    notes["json_loads_beside"] = round((before + pace(path)) / 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.send((records, used, peak, notes))


def run(path, steps, tokenizer, as_json):
    results = {}
    began, count = time.process_time(), 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            json.loads(line)
            count += 1
    used = time.process_time() - began
    results["json.loads alone"] = {"per_cpu_second": round(count / used)}
    if not as_json:
        print(
            f"json.loads alone {count / used:,.0f} records/CPU-s: the machine's own pace in "
            "this "
            "run"
        )
    for name in steps:
        TOKENIZER[0] = tokenizer
        here, there = multiprocessing.get_context("fork").Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=measure, args=(name, path, there)
        )
        child.start()
        there.close()
        try:
            records, used, peak, notes = here.recv()
        except EOFError:
            sys.exit(f"the step {name} failed; see above")
        child.join()
        results[name] = {
            "records": records,
            "cpu_seconds": round(used, 2),
            "per_cpu_second": round(records / used),
            "peak_mib": round(peak),
            **notes,
        }
        if not as_json:
            print(
                (
                    f"{name:9} {records / used:>9,.0f} records/CPU-s  {used:6.1f} s  {peak:5.0f} "
                    "MiB "
                    f" {notes}"
                ),
                flush=True,
            )
    if as_json:
        print(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("generate")
    make.add_argument("file")
    make.add_argument("--records", type=int, default=100_000)
    make.add_argument("--seed", type=int, default=1)
    go = commands.add_parser("run")
    go.add_argument("file")
    go.add_argument("--steps", default="read,lengths,exact,near,pii,prepare")
    go.add_argument(
        "--tokenizer", default="", help="folder with tokenizer.json, for the step `tokens`"
    )
    go.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.command == "generate":
        pairs = generate(args.file, args.records, args.seed)
        size = pathlib.Path(args.file).stat().st_size
        print(
            f"{args.records:,} records, {size / args.records:.0f} bytes each, "
            f"{len(pairs['exact']):,} exact and {len(pairs['near']):,} near copies"
        )
    else:
        run(args.file, args.steps.split(","), args.tokenizer, args.json)


if __name__ == "__main__":
    main()
