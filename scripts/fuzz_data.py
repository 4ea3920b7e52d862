"""Fuzz the data gate with atheris: no input may end in a traceback.

    python scripts/fuzz_data.py [--seconds 600]

Needs `pip install atheris` (coverage-guided; no dependency of gpujob). The first byte of an input
chooses the kind of file and, from PREPARE up, that it is prepared too; the second the options, the
rest is the file. Prints one line of JSON: runs, seconds, crashes. Seeds are the files of
tests/cases.
Exit code 1 after a crash.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".jsonl.gz")
MAX_BYTES = 4096
PREPARE = 222  # a multiple of the kinds, so that kind + PREPARE is the same kind


def parent(seconds: int) -> int:
    """Run the fuzzer in a process of its own; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(seeds()):
            (corpus / f"{number}").write_bytes(data)
        limits = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-rss_limit_mb=2048"]
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(corpus), f"-artifact_prefix={folder}/",
             *limits],
            cwd=ROOT, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        found = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
        crashes = list(Path(folder).glob("crash-*"))
        if not found or crashes or done.returncode:
            sys.stderr.write(done.stderr[-1000:] + done.stdout[-6000:])  # atheris uses both
        for path in crashes:
            sys.stderr.write(f"{path.name}: {base64.b64encode(path.read_bytes()).decode()}\n")
        runs, took = (int(found[1]), int(found[2])) if found else (0, 0)
    print(json.dumps({"runs": runs, "seconds": took, "crashes": len(crashes)}))
    return 1 if crashes or done.returncode or not found else 0


def seeds() -> list[bytes]:
    """Return the starting inputs: every known bad file, as the kind that its name says."""
    bad = sorted((ROOT / "tests" / "cases" / "bad_inputs").glob("*.jsonl"))
    found = [b"\0\0" + path.read_bytes()[:MAX_BYTES] for path in bad]
    for line in (ROOT / "tests" / "cases" / "data_kinds.jsonl").read_text().splitlines():
        case = json.loads(line)
        kind = next((i for i, s in enumerate(SUFFIXES) if case["name"].endswith(s)), 0)
        if "text" in case:
            found.append(bytes([kind, 0]) + case["text"].encode())
    return [*found, *(bytes([data[0] + PREPARE]) + data[1:] for data in found)]


def child(argv: list[str]) -> None:
    """Fuzz until libFuzzer ends the process."""
    atheris = importlib.import_module("atheris")  # it has no types

    with atheris.instrument_imports(include=["jobs.data"]):
        from jobs.data import gate, prepare, screen
        from jobs.data.options import Options
    folder = Path(tempfile.mkdtemp())

    def one(data: bytes) -> None:
        if len(data) < 2:
            return
        path = folder / f"in{SUFFIXES[data[0] % len(SUFFIXES)]}"
        path.write_bytes(data[2:])
        bits = data[1]
        options = Options(
            fix=bool(bits & 1), skip_bad_lines=bool(bits & 2), mask=bool(bits & 4),
            to=("", "chat", "chosen", "")[bits >> 3 & 3], sequence_len=bits & 32,
            shape=("", "alpaca")[bits >> 6 & 1],
        )  # fmt: skip
        report = gate.check([path], options, processes=1)
        json.dumps(report.as_dict(), ensure_ascii=False).encode("utf-8", "replace")
        screen.lines(report)
        if data[0] >= PREPARE:
            made = prepare.prepare([path], folder / "out", options, processes=1)
            assert made.report.refused or made.manifest["counts"]["train"]

    atheris.Setup([sys.argv[0], *argv], one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if "--child" in sys.argv:
        child(sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--seconds", type=int, default=600)
        sys.exit(parent(parser.parse_args().seconds))
