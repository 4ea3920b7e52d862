"""The gate on anything: no traceback, no find left after masking, no pair the proof misses."""

import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.data import gate, screen
from jobs.data.digest import normal
from jobs.data.minhash import jaccard, shingles
from jobs.data.options import Options
from jobs.data.pii import mask
from jobs.data.pii.scan import Settings, scan
from jobs.data.records import Record, normalise
from jobs.data.split import Index

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
TEXT = st.text(max_size=40) | st.sampled_from(
    ["user", "assistant", "gpt", "0532 123 45 67", "a@b.co", "[]", "{}"]
)
KEYS = st.sampled_from(
    [
        "messages",
        "conversations",
        "role",
        "content",
        "from",
        "value",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "instruction",
        "input",
        "output",
        "prompt",
        "completion",
        "question",
        "answer",
        "text",
        "chosen",
        "rejected",
        "tools",
        "system",
        "history",
        "image",
        "label",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | TEXT, inner, max_size=5),
    max_leaves=25,
)
NAMES = st.sampled_from(
    [
        "a.jsonl",
        "a.json",
        "a.csv",
        "a.tsv",
        "a.txt",
        "a.parquet",
        "a.jsonl.gz",
        "a.jsonl.zst",
        "a.xyz",
    ]
)
PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\n",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xc3",
        b"'",
        b"\\",
        b"\\ud800",
        b'"messages"',
        b'"role"',
        b'"user"',
        b'"content"',
        b"null",
        b"1e999",
        b"-",
        b"NaN",
        b"\x00",
        b" ",
        b'{"prompt":"a","completion":"b"}\n',
    ]
)


def looked(path, **options):
    report = gate.check([path], Options(max_findings=50, **options))
    json.dumps(report.as_dict()).encode()
    for line in screen.lines(report, width=80):
        assert len(line) <= 80
        assert line.isprintable()


@QUICK
@given(st.binary(max_size=300) | st.lists(PIECES, max_size=30).map(b"".join), NAMES)
def test_any_bytes_give_a_report(tmp_path_factory, data, name):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(data)
    looked(path)


@QUICK
@given(st.lists(JSON, max_size=5), st.booleans(), st.sampled_from(["", "chat", "chosen"]))
def test_any_json_gives_a_report(tmp_path_factory, rows, fix, to):
    path = tmp_path_factory.mktemp("fuzz") / "a.jsonl"
    path.write_bytes("".join(json.dumps(r) + "\n" for r in rows).encode())
    looked(path, fix=fix, to=to, skip_bad_lines=fix)


@QUICK
@given(JSON)
def test_what_is_kept_is_trainable_and_stays_as_it_is(value):
    record = normalise(value, Options(fix=True), [])[1]
    if record is None:
        return
    row = record.as_json()
    faults: list[tuple[str, str]] = []
    again = normalise(json.loads(row), Options(fix=True), faults)[1]
    assert again is not None, faults
    assert again.as_json() == row
    if record.messages is not None:
        assert record.messages[-1]["role"] == "assistant"
        assert {m["role"] for m in record.messages} <= {"user", "assistant", "system", "tool"}


PERSONAL = st.sampled_from(
    [
        "0532 123 45 67",
        "+966 55 765 4321",
        "784 141 225 26",
        "TC kimlik 78414122526",
        "هويتي ١٠١٣٤٠٨٩١٧",
        "a.b@mail.example",
        ("TR24 0001 0077 6266 8694 0944 78"),
        "4453 3314 7893 2885",
        ("card 5380-6998-3397-6267"),
        "Dr. Serkan Balcı",
        "ali nokta k et gmail nokta com",
        "order",
        "sipariş",
        "my name is",
        "اسمي خالد المنصوري",
        "198.51.100.23",
        "password: aB3$dE5gH7",
        "\u200f",
        "\u0640",
    ]
)


@QUICK
@given(
    st.lists(PERSONAL | st.text(max_size=12), max_size=8),
    st.sampled_from([" ", "", ", ", "\n", ": "]),
)
def test_nothing_is_left_after_masking(parts, joint):
    text = joint.join(parts)
    row = Record("text", None, text, "", "", empty_prompt=False)
    _, out = mask.record(row, Settings(), replace=True)
    assert scan(out.text, Settings()) == []


@QUICK
@given(st.text(max_size=200))
def test_finds_are_in_order_and_inside(text):
    spans = scan(text, Settings())
    ends = [0, *(s.end for s in spans)]
    assert all(a <= s.start < s.end <= len(text) for a, s in zip(ends, spans, strict=False))


@QUICK
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.6, 0.8]))
def test_the_proof_misses_no_pair(seed, threshold):
    rng = random.Random(seed)
    base = [rng.sample(range(60), rng.randint(4, 20)) for _ in range(6)]
    sets = [
        set(rng.choice(base)) ^ set(rng.sample(range(60), rng.randint(0, 4))) for _ in range(24)
    ]
    held, train = list(enumerate(sets[:8])), list(enumerate(sets[8:]))
    index = Index(held, threshold)
    for _, found in train:
        near = {n for n, _ in index.neighbours(found)}
        assert near == {n for n, other in held if found and jaccard(found, other) >= threshold}


@QUICK
@given(st.text(max_size=80))
def test_compare_form_is_stable(text):
    once = normal(text)
    assert shingles(once) == shingles(" ".join(once.split())) or " " not in once
