"""Prepare: the same bytes again, nothing lost to a SIGKILL, no leak across the split."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.data import gate, leakcheck, output, prepare
from jobs.data.minhash import jaccard, shingles
from jobs.data.options import Options
from jobs.data.pii.scan import Settings, scan
from jobs.data.spill import BusyError, Spill

WORDS = [f"word{i}" for i in range(3000)]
ROOT = Path(__file__).parents[2]


def record(rng, prompt=None, **extra):
    said = prompt or " ".join(rng.choices(WORDS, k=12))
    answer = " ".join(rng.choices(WORDS, k=30))
    return {
        "messages": [{"role": "user", "content": said}, {"role": "assistant", "content": answer}],
        **extra,
    }


def write(path, rows):
    path.write_text(
        "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8"
    )
    return path


def near_copy(rng, row, changes=2):
    out = json.loads(json.dumps(row))
    words = out["messages"][1]["content"].split()
    for _ in range(changes):
        words[rng.randrange(len(words))] = "changed"
    out["messages"][1]["content"] = " ".join(words)
    return out


def sample(n=400, seed=1):
    rng = random.Random(seed)
    rows = [record(rng) for _ in range(n)]
    rows += [json.loads(json.dumps(rng.choice(rows[:n]))) for _ in range(20)]
    rows += [near_copy(rng, rng.choice(rows[:n])) for _ in range(30)]
    rng.shuffle(rows)
    return rows


def hashes(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_same_bytes_twice_and_by_two_processes(tmp_path):
    source = write(tmp_path / "in.jsonl", sample())
    before = source.read_bytes()
    first = prepare.prepare([source], tmp_path / "a", Options(), processes=1)
    prepare.prepare([source], tmp_path / "b", Options(), processes=2)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert source.read_bytes() == before
    assert not first.unchanged
    assert prepare.prepare([source], tmp_path / "a", Options()).unchanged
    assert not prepare.prepare([source], tmp_path / "a", Options(seed=7)).unchanged
    assert not list(tmp_path.glob(".*.work"))


def test_near_copies_are_searched_by_two_processes_alike(tmp_path):
    """The second one judges pairs of its own, finds what the first finds alone, and is heard."""
    rng = random.Random(3)
    rows = [record(rng) for _ in range(100)]
    source = write(tmp_path / "in.jsonl", rows + [near_copy(rng, row, 3) for row in rows])
    options, clusters, judged = Options(validation=0), [], []
    for processes in (1, 2):
        found = prepare.near_only([source], tmp_path / str(processes), options, processes)
        clusters.append([found.find(i) for i in range(200)])
        judged.append(found.candidates)
    assert clusters[0] == clusters[1]
    assert len(set(clusters[0])) < 120
    assert judged[1] > judged[0] > 80


def test_a_file_that_was_touched_is_made_anew(tmp_path):
    source = write(tmp_path / "in.jsonl", sample())
    prepare.prepare([source], tmp_path / "a", Options())
    good = hashes(tmp_path / "a")
    with (tmp_path / "a" / "train.jsonl").open("a") as file:
        file.write("x\n")
    assert not prepare.prepare([source], tmp_path / "a", Options()).unchanged
    assert hashes(tmp_path / "a") == good


def test_copies_are_found_and_written_down(tmp_path):
    source = write(tmp_path / "in.jsonl", sample())
    made = prepare.prepare([source], tmp_path / "a", Options(validation=0))
    counts = made.manifest["counts"]
    assert counts["exact_duplicates"] == 20
    assert 29 <= counts["near_duplicates"] <= 30
    assert counts["train"] == 450 - counts["exact_duplicates"] - counts["near_duplicates"]
    notes = read(tmp_path / "a" / "changes.jsonl")
    lines = source.read_text().splitlines()
    for note in notes:
        a, b = (
            shingles(" ".join(m["content"] for m in json.loads(lines[n - 1])["messages"]))
            for n in (note["line"], note["kept"]["line"])
        )
        assert jaccard(a, b) >= 0.6


def test_no_leak_by_copy_prompt_or_group(tmp_path):
    rng = random.Random(3)
    rows = sample(600, seed=3)
    rows += [record(rng, prompt=f"the same question {i % 9}") for i in range(90)]
    rows += [record(rng, author=f"author{i % 7}") for i in range(140)]
    source = write(tmp_path / "in.jsonl", rows)
    made = prepare.prepare(
        [source], tmp_path / "a", Options(validation=0.2, near=False, exact=False, group="author")
    )
    train, held = read(tmp_path / "a" / "train.jsonl"), read(tmp_path / "a" / "validation.jsonl")
    assert len(held) > 60
    sets = [shingles(" ".join(m["content"] for m in r["messages"])) for r in train]
    for row in held:
        mine = shingles(" ".join(m["content"] for m in row["messages"]))
        assert max(jaccard(mine, other) for other in sets) < 0.6
    prompts = {r["messages"][0]["content"] for r in train}
    assert not prompts & {r["messages"][0]["content"] for r in held}
    side: dict[str, str] = {}
    author = {r["messages"][1]["content"]: r.get("author") for r in rows}
    for name, part in (("train", train), ("held", held)):
        for row in part:
            who = author[row["messages"][1]["content"]]
            if who:
                assert side.setdefault(who, name) == name
    assert made.manifest["split_proof"]["validation_records_with_a_train_neighbour"] == 0


def test_a_planted_leak_is_caught(tmp_path):
    rng = random.Random(5)
    rows = [record(rng) for _ in range(60)]
    train = write(tmp_path / "train.jsonl", rows)
    held = write(tmp_path / "held.jsonl", [record(rng), near_copy(rng, rows[7]), rows[9]])
    report = gate.check([train], Options())
    assert leakcheck.check([train], [held], Options(), report) == 2
    assert {f.line for f in report.findings if f.code == "split_leak"} == {2, 3}
    assert report.refused
    made = prepare.prepare([train], tmp_path / "a", Options(), validation=[held])
    assert made.report.refused
    assert not (tmp_path / "a").exists()
    clean = write(tmp_path / "clean.jsonl", [record(rng)])
    made = prepare.prepare([train], tmp_path / "a", Options(), validation=[clean])
    assert made.manifest["counts"]["validation"] == 1


def test_masked_set_scans_clean(tmp_path):
    rng = random.Random(6)
    rows = [record(rng) for _ in range(30)]
    rows[4]["messages"][0]["content"] += " my phone is 0532 123 45 67 and mail ayse@ornek.example"
    source = write(tmp_path / "in.jsonl", rows)
    made = prepare.prepare([source], tmp_path / "a", Options(mask=True))
    text = (tmp_path / "a" / "train.jsonl").read_text() + (
        tmp_path / "a" / "validation.jsonl"
    ).read_text()
    assert "<PHONE_1>" in text
    assert "<EMAIL_1>" in text
    assert scan(text, Settings()) == []
    for path in (tmp_path / "a").iterdir():
        assert "532 123" not in path.read_text()
    assert made.manifest["personal_data"]["types"] == {"EMAIL": 1, "PHONE": 1}


def test_prepared_data_prepares_to_itself(tmp_path):
    source = write(tmp_path / "in.jsonl", sample())
    prepare.prepare([source], tmp_path / "a", Options(validation=0))
    prepare.prepare([tmp_path / "a" / "train.jsonl"], tmp_path / "b", Options(validation=0))
    assert (tmp_path / "a" / "train.jsonl").read_bytes() == (
        tmp_path / "b" / "train.jsonl"
    ).read_bytes()


def test_nothing_left_is_refused(tmp_path):
    source = write(tmp_path / "in.jsonl", [record(random.Random(1))])
    made = prepare.prepare([source], tmp_path / "a", Options(sequence_len=8))
    assert {f.code for f in made.report.findings} >= {"prompt_exceeds_sequence_len", "nothing_left"}
    assert made.report.refused


def test_empty_prompts_become_text_only_if_all_are(tmp_path):
    rng = random.Random(2)
    answers = [" ".join(rng.choices(WORDS, k=20)) for _ in range(40)]
    source = write(tmp_path / "in.jsonl", [{"prompt": "", "completion": a} for a in answers])
    made = prepare.prepare([source], tmp_path / "a", Options())
    assert made.manifest["format"] == "completion"
    assert read(tmp_path / "a" / "train.jsonl")[0].keys() == {"text"}
    assert (
        output.axolotl_datasets(tmp_path / "a", made.manifest)["datasets"][0]["type"]
        == "completion"
    )
    mixed = [{"prompt": "" if i == 3 else f"p{i}", "completion": a} for i, a in enumerate(answers)]
    made = prepare.prepare([write(tmp_path / "in.jsonl", mixed)], tmp_path / "a", Options())
    assert made.manifest["counts"]["left_out"] == {"empty_prompt": 1}


def test_two_runs_into_one_folder_do_not_mix(tmp_path):
    source = write(tmp_path / "in.jsonl", sample(40))
    held = Spill(tmp_path / ".a.work", {})
    with pytest.raises(BusyError):
        prepare.prepare([source], tmp_path / "a", Options())
    held.close(remove=True)


CHILD = """
import sys
from pathlib import Path
from jobs.data import prepare
from jobs.data.options import Options
prepare.prepare([Path(sys.argv[1])], Path(sys.argv[2]), Options(mask=True), processes=1)
"""


@pytest.mark.parametrize("entries", [1, 2, 4])
def test_killed_run_resumes_to_the_same_bytes(tmp_path, entries):
    rng = random.Random(8)
    rows = [record(rng, prompt="p" * 400 + str(i)) for i in range(9000)]
    source = write(tmp_path / "in.jsonl", rows)
    work = tmp_path / ".a.work" / "journal"
    child = subprocess.Popen([sys.executable, "-c", CHILD, source, tmp_path / "a"], cwd=ROOT)
    deadline = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < deadline:
        if work.exists() and work.read_bytes().count(b"\n") >= entries:
            child.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    assert child.wait() == -signal.SIGKILL
    with work.open("ab") as file:
        file.write(b'{"sizes": {"rows"')  # a line that was being written when the power went
    with (tmp_path / ".a.work" / "rows").open("ab") as file:
        file.write(os.urandom(99))
    made = prepare.prepare([source], tmp_path / "a", Options(mask=True), processes=1)
    assert made.resumed_chunks >= entries
    prepare.prepare([source], tmp_path / "b", Options(mask=True), processes=1)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


TASK = "Read the review and say in one word whether the buyer was content with it or not: "


def task_record(rng, label):
    said = TASK + " ".join(rng.choices(WORDS, k=14))
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": label}]
    return {"messages": turns}


def test_one_wording_for_all_is_no_copy(tmp_path):
    rng = random.Random(8)
    rows = [task_record(rng, rng.choice(["content", "cross"])) for _ in range(300)]
    rows += [json.loads(json.dumps(rows[5]).replace(TASK, TASK + "please now "))]
    source = write(tmp_path / "in.jsonl", rows)
    made = prepare.prepare([source], tmp_path / "a", Options(validation=0.1))
    assert made.manifest["counts"]["near_duplicates"] == 1
    assert made.manifest["counts"]["validation"] == 30


def test_a_leak_is_told_from_a_shared_wording(tmp_path):
    rng = random.Random(9)
    rows = [task_record(rng, rng.choice(["content", "cross"])) for _ in range(300)]
    source = write(tmp_path / "in.jsonl", rows)
    held = [task_record(rng, "cross") for _ in range(10)]
    clean = gate.check([source], Options())
    given = write(tmp_path / "held.jsonl", held)
    assert leakcheck.check([source], [given], Options(), clean) == 0
    leak = json.loads(json.dumps(rows[7]))
    leak["messages"][0]["content"] += " indeed"
    given = write(tmp_path / "held.jsonl", [*held, leak])
    report = gate.check([source], Options())
    assert leakcheck.check([source], [given], Options(), report) == 1
    assert [(f.line, f.code) for f in report.findings if f.severity == "error"] == [
        (11, "split_leak")
    ]
