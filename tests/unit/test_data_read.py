"""Files of every kind, compressed or in folders, whole or cut."""

import gzip
import json
import tracemalloc

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from jobs.data import gate
from jobs.data.chunks import CHUNK_BYTES
from jobs.data.options import Options

ROWS = [{"prompt": f"question {i}", "completion": f"answer {i}"} for i in range(5)]
JSONL = "".join(json.dumps(r) + "\n" for r in ROWS)
CSV = "prompt,completion\n" + "".join(f'"{r["prompt"]}","{r["completion"]}"\n' for r in ROWS)


def check(path, **options):
    return gate.check([path], Options(with_pii=False, **options))


def codes(report):
    return [f.code for f in report.findings]


@pytest.mark.parametrize(
    ("name", "data", "noted"),
    [
        ("a.jsonl", JSONL.encode(), []),
        ("a.json", json.dumps(ROWS).encode(), []),
        ("a.json", json.dumps({"data": ROWS}, indent=2).encode(), []),
        ("a.json", json.dumps(ROWS, indent=2).encode(), []),
        (
            "a.jsonl",
            "".join(json.dumps(r, indent=1) + "\n" for r in ROWS).encode(),
            ["pretty_printed_json"],
        ),
        ("a.jsonl", JSONL.replace("\n", "\r\n").encode(), ["crlf"]),
        ("a.jsonl", JSONL.replace("\n", "\r").encode(), ["crlf"]),
        ("a.csv", CSV.encode(), []),
        ("a.csv", b"\xef\xbb\xbf" + CSV.encode(), ["bom"]),
        ("a.csv", CSV.replace(",", ";").encode(), []),
        ("a.tsv", CSV.replace(",", "\t").encode(), []),
        ("a.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0), []),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0), []),
        ("a.jsonl.zst", zstandard.compress(JSONL.encode()), []),
        ("a.txt", "\n\n".join(f"paragraph {i}\nof two lines" for i in range(5)).encode(), []),
    ],
)
def test_kinds_of_files(tmp_path, name, data, noted):
    path = tmp_path / name
    path.write_bytes(data)
    report = check(path)
    assert report.records == report.kept == 5
    assert codes(report) == noted


def test_parquet(tmp_path):
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert check(tmp_path / "a.parquet").kept == 5
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    assert codes(check(tmp_path / "b.parquet")) == ["truncated_file"]


def test_folder(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "b.jsonl").write_text(JSONL)
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "notes.pdf").write_bytes(b"%PDF")
    report = check(tmp_path)
    assert report.kept == 10
    assert [f.rpartition("/")[2] for f in report.files] == ["a.csv", "b.jsonl"]


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.jsonl.gz", gzip.compress(JSONL.encode() * 500, mtime=0)[:-30], "truncated_file"),
        ("a.jsonl.zst", zstandard.compress(JSONL.encode() * 500)[:-9], "truncated_file"),
        ("a.jsonl.zst", b"not zstandard", "truncated_file"),
        ("a.jsonl.gz", b"not gzip at all", "truncated_file"),
        ("a.csv", b"prompt,completion\na,b\nonly one\n", "csv_columns"),
        ("a.csv", b'prompt,completion\na,"never closed\n', "truncated_last_line"),
        ("a.csv", b"prompt,prompt\na,b\n", "duplicate_key"),
        ("a.csv", "prompt,completion\ngüneş,değil\n".encode("cp1254"), "encoding"),
        ("a.csv", b"prompt,completion\n", "empty_file"),
        ("a.txt", "güneş\n".encode("cp1254"), "encoding"),
        ("a.pdf", b"%PDF", "unsupported_file"),
        (
            "a.jsonl",
            json.dumps(ROWS[0]).encode() + b"\n" + b"[" * 100_000 + b"\n" + JSONL.encode(),
            "json_syntax",
        ),
    ],
)
def test_broken_files(tmp_path, name, data, code):
    path = tmp_path / name
    path.write_bytes(data)
    assert code in codes(check(path))


def test_missing_file_and_unknown_encoding(tmp_path):
    assert codes(check(tmp_path / "no.jsonl")) == ["missing_file"]
    (tmp_path / "a.jsonl").write_text(JSONL)
    assert codes(check(tmp_path / "a.jsonl", encoding="nonsense")) == ["encoding"]


def test_lines_are_counted_across_chunks(tmp_path):
    path = tmp_path / "a.jsonl"
    filler = JSONL * (3 * CHUNK_BYTES // len(JSONL))
    path.write_text(filler + '{"prompt":1,}\n' + JSONL)
    report = check(path)
    assert [(f.code, f.line) for f in report.findings if f.severity == "error"] == [
        ("json_syntax", filler.count("\n") + 1)
    ]


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "a.json"
    with path.open("w") as file:
        file.write(
            "["
            + ",\n".join(json.dumps({"text": f"{i} " + "x" * 2000}) for i in range(20_000))
            + "]"
        )
    tracemalloc.start()
    report = gate.check([path], Options(with_pii=False, with_lengths=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.kept == 20_000
    assert peak < 12 << 20 < path.stat().st_size / 3
