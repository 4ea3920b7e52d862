"""The data gate as a step of submit: refused before offers, and Axolotl gets what was prepared."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.axolotl import Layout, axolotl_config, uploads
from jobs.load import load_job
from orchestrator import data_gate, submit
from orchestrator.data_run import stages
from orchestrator.exits import Exit, Refused
from orchestrator.report_plan import dry_run_lines, plan_document
from orchestrator.report_text import Screen
from providers.fake import FakeProvider
from providers.fake_cloud import FakeCloud
from tests.support.clocks import VirtualClock

NOW = 1_700_000_000.0
JOB = "name: a\nmodel: acme/base\nmethod: qlora\ndata: {{train: {name}, format: {form}{more}}}\n"


def rows(form: str, n: int = 40) -> list[dict[str, Any]]:
    rng = random.Random(form)
    words = [f"w{i}" for i in range(500)]
    said = [
        (" ".join(rng.choices(words, k=9)), " ".join(rng.choices(words, k=20))) for _ in range(n)
    ]
    make = {
        "chat": lambda p, a: {
            "messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]
        },
        "sharegpt": lambda p, a: {
            "conversations": [{"from": "human", "value": p}, {"from": "gpt", "value": a}]
        },
        "alpaca": lambda p, a: {"instruction": p, "input": f"given {a[:9]}", "output": a},
        "prompt-completion": lambda p, a: {"prompt": p, "completion": a},
        "completion": lambda p, a: {"text": f"{p} {a}"},
    }
    return [make[form](p, a) for p, a in said]


@pytest.fixture
def job(tmp_path):
    def make(form="chat", records=None, more="", changes=(), name="data.jsonl"):
        records = rows(form) if records is None else records
        text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / "job.yaml").write_text(JOB.format(name=name, form=form, more=more))
        return load_job(tmp_path / "job.yaml", changes)

    return make


@pytest.fixture
def through(tmp_path):
    return lambda loaded: data_gate.through(loaded, tmp_path / "home", now=NOW)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("form", "keys", "kind"),
    [
        ("chat", {"messages"}, "chat_template"),
        ("sharegpt", {"messages"}, "chat_template"),
        ("alpaca", {"instruction", "input", "output"}, "alpaca"),
        ("prompt-completion", {"prompt", "completion"}, None),
        ("completion", {"text"}, "completion"),
    ],
)
def test_axolotl_gets_what_was_prepared(job, through, form, keys, kind):
    given = rows(form)
    gated = through(job(form, [*given, given[0]]))
    spec = gated.loaded.spec
    assert spec.data.train != job(form).spec.data.train
    train, held = lines_of(spec.data.train), lines_of(spec.data.validation)
    assert all(row.keys() == keys for row in train + held)
    assert (len(train), len(held)) == (38, 2)
    config = axolotl_config(spec, layout=Layout("/j"), stack="cuda")
    assert config["val_set_size"] == 0
    assert [d["path"] for d in config["datasets"]] == ["/j/data/train.jsonl"]
    assert [d["path"] for d in config["test_datasets"]] == ["/j/data/validation.jsonl"]
    if kind:
        assert config["datasets"][0]["type"] == kind
    sent = {up.remote: up.local for up in uploads(spec, Layout("/j"))}
    assert sent["/j/data/train.jsonl"] == spec.data.train
    assert "1 exact copies left out" in gated.lines[0]
    assert gated.summary["tokens"]["records"] == 38
    if form == "alpaca":  # its prompt keeps the two apart
        assert sorted(map(str, train + held)) == sorted(map(str, given))


def test_refused_data_ends_with_six_before_any_offer(job, through):
    with pytest.raises(Refused, match="line 41: unknown_role") as refused:
        through(job("chat", [*rows("chat"), {"messages": [{"role": "usr", "content": "x"}]}]))
    assert refused.value.code is Exit.DATA_GATE
    assert "gpujob data check" in refused.value.remedy


def test_a_part_that_the_axolotl_section_asks_for_is_held_out_by_the_gate(job, through):
    gated = through(job("chat", changes=["axolotl.val_set_size=0.2"]))
    config = axolotl_config(gated.loaded.spec, layout=Layout("/j"), stack="cuda")
    assert config["val_set_size"] == 0
    assert len(lines_of(gated.loaded.spec.data.validation)) == 8


def test_a_leaking_validation_file_is_refused(job, through, tmp_path):
    records = rows("chat")
    (tmp_path / "held.jsonl").write_text(json.dumps(records[3]) + "\n")
    loaded = job("chat", records, more=", validation: held.jsonl")
    with pytest.raises(Refused, match="split_leak"):
        through(loaded)


def test_columns_within_turns_are_understood(job, through):
    records = [
        {"talk": [{"who": "user", "says": f"q {i}"}, {"who": "assistant", "says": f"a {i}"}]}
        for i in range(30)
    ]
    more = ", columns: {messages: talk, role: who, content: says}"
    spec = through(job("chat", records, more=more)).loaded.spec
    assert lines_of(spec.data.train)[0]["messages"][0].keys() == {"role", "content"}
    assert spec.data.columns == {}


def test_the_same_data_is_worked_over_once_and_old_folders_go(job, through, tmp_path):
    first = through(job())
    stamp = first.loaded.spec.data.train.stat().st_mtime_ns
    assert through(job()).loaded.spec.data.train.stat().st_mtime_ns == stamp
    assert through(job()).lines == first.lines
    folder = first.loaded.spec.data.train.parent
    later = NOW + data_gate.KEPT_S + 1
    data_gate.through(job("alpaca"), tmp_path / "home", now=later)
    assert not folder.exists()


def test_what_the_gate_cannot_read_goes_as_it_is_and_says_so(job, through):
    records = [{"segments": [{"label": True, "text": "x"}]}]
    loaded = job("segments", records)
    gated = through(loaded)
    assert gated.loaded is loaded
    assert "not checked" in gated.lines[0]


MAIL = "write to maria.lopez@example.org"


def planned_with(gated, *, reviewed=False):
    fake = FakeProvider(FakeCloud(VirtualClock(), random.Random(1)))
    regions = itertools.cycle(("EU-RO-1", "US-KS-2"))
    offers = [replace(offer, region=next(regions)) for offer in fake.offers()]
    vendor = SimpleNamespace(offers=lambda: offers, traits=fake.traits)
    planned = submit.plan(gated.loaded, {"fake": vendor})
    return submit.with_data(planned, gated, pii_reviewed=reviewed)


def test_personal_data_stays_in_its_region(job, through):
    records = rows("chat")
    records[0]["messages"][1]["content"] = MAIL
    gated = through(job("chat", records))
    with pytest.raises(Refused, match="personal data") as refused:
        planned_with(gated)
    assert refused.value.code is Exit.DATA_GATE
    assert planned_with(gated, reviewed=True).matching.quotes
    assert {q.offer.region for q in planned_with(through(job())).matching.quotes} > {"US-KS-2"}
    inside = planned_with(through(job("chat", records, more=", region: EU")))
    assert {quote.offer.region for quote in inside.matching.quotes} == {"EU-RO-1"}
    assert any("personal data" in lost.reason for lost in inside.matching.rejected)
    masked = through(job("chat", records, more=", mask: true"))
    assert planned_with(masked).matching.quotes
    spec = masked.loaded.spec
    whole = spec.data.train.read_text() + spec.data.validation.read_text()
    assert "maria.lopez" not in whole
    assert "<EMAIL_1>" in whole


def test_the_preview_says_what_the_gate_found(job, through):
    records = rows("chat")
    records[2]["messages"][1]["content"] = ""
    records[3]["messages"][0]["content"] = "long " * 4000
    gated = through(job("chat", records))
    planned = planned_with(gated)
    text = "\n".join(dry_run_lines(planned, "x: 1\n", Screen(width=200)))
    assert "40 records: 36 to train on, 2 held out, 2 left out" in text
    assert "empty_response 1, prompt_exceeds_sequence_len 1" in text
    body = plan_document(planned, "x: 1\n", NOW)
    assert body["data"]["findings"]["empty_response"] == 1
    assert body["data"]["tokens"]["packed_sequences"] >= 1
    assert body["data"]["left_out"] == 2


def own(tmp_path, text):
    (tmp_path / "own.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "axolotl.yml").write_text(
        "base_model: acme/base\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n"
        "lora_target_linear: true\n"
        "learning_rate: 0.0002\noptimizer: adamw_torch\nmicro_batch_size: 1\nnum_epochs: 1\n"
        "datasets:\n- {path: own.jsonl, ds_type: json, type: chat_template}\n"
    )
    (tmp_path / "job.yaml").write_text("name: a\naxolotl: {config: axolotl.yml}\n")
    return load_job(tmp_path / "job.yaml")


def test_the_data_of_an_own_axolotl_file_is_read_and_scanned(through, tmp_path):
    text = "".join(json.dumps(row) + "\n" for row in rows("chat")).replace("w1 ", f"{MAIL} ")
    loaded = own(tmp_path, text)
    gated = through(loaded)
    assert gated.loaded is loaded
    assert "40 records go as your Axolotl file says" in gated.lines[0]
    assert gated.found["EMAIL"] >= 1
    with pytest.raises(Refused, match="personal data"):
        planned_with(gated)
    with pytest.raises(Refused, match="truncated_last_line"):
        through(own(tmp_path, text[:-20]))


def test_what_the_passes_paint_leaves_the_line_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with stages() as paint:
        assert paint is not None
        paint("proving the split", 95_000, 96_000)
        paint("proving the split", 0, 9)
    line = [" "] * 80
    column = 0
    for sign in capsys.readouterr().err:
        if sign == "\r":
            column = 0
        else:
            line[column], column = sign, column + 1
    assert column == 0
    assert "".join(line).strip() == ""


def test_the_passes_tell_their_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    moments = itertools.count(100.0, 5.0)  # every look at the clock comes five seconds later
    clock: Any = SimpleNamespace(monotonic=lambda: next(moments))
    with stages(clock) as paint:
        assert paint is not None
        paint("near duplicates", 1_000, 9_000)
        paint("near duplicates", 5_000, 9_000)
    said = capsys.readouterr().err
    assert re.search(r"5,000/9,000 records  [1-9]\d*/s  [1-9]\d* s left", said)
