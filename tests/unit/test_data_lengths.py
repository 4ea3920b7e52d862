"""Lengths, templates and job files."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from jobs.data import gate, jobfile, templates, tokens
from jobs.data.lengths import Lengths, estimate, packed
from jobs.data.options import Options
from jobs.data.records import normalise
from orchestrator.data_run import run_stats
from tests.e2e.data_formats import chat, pairs, text

STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}</s>{% "
    "endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([f"{p} {a}" for p, a in pairs()], trainer)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": templates.BUILT_IN["chatml"]})
    )
    return path


def records(content):
    out = []
    for line in content.splitlines():
        record = normalise(json.loads(line), Options(), [])[1]
        assert record is not None
        out.append(record)
    return out


def test_pieces_add_up_to_the_whole(folder):
    rows = records(chat())
    counted, how = tokens.count(rows, Options(tokenizer=str(folder)))
    assert how == tokens.EXACT
    tokenizer, template = tokens.load(str(folder)), templates.load(folder)
    assert template is not None
    for row, (total, prompt, answer) in zip(rows, counted, strict=True):
        whole = len(
            tokenizer.encode(template.render(row.messages, row.tools), add_special_tokens=False)
        )
        assert total == whole
        assert 0 < prompt < total
        assert 0 < answer < total


def test_words_are_counted_once_only_where_that_is_exact(folder):
    tokenizer = tokens.load(str(folder))
    texts = [f"{p}  and\n\n{a} " for p, a in pairs(30)] * 40
    whole = [len(tokenizer.encode(t, add_special_tokens=False)) for t in texts]
    counter = tokens._Counter(tokenizer)
    assert counter.sizes(texts) == whole
    joined = Tokenizer(models.BPE())  # no pre-tokenizer: tokens reach over blanks
    joined.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400))
    counter = tokens._Counter(joined)
    assert counter.sizes(texts) == [len(joined.encode(t)) for t in texts]
    assert not counter.by_word


def test_a_prompt_that_repeats_the_answer_is_not_cut_there(folder):
    row = records('{"prompt":"yes yes","completion":"yes"}')[0]
    total, prompt, answer = tokens.count([row], Options(tokenizer=str(folder)))[0][0]
    assert prompt > answer
    assert total > prompt


def test_estimate_marks_scripts():
    assert estimate("a" * 100) == 21
    assert estimate("The café is open. " + "It serves bread. " * 20) < 18 * 21 / 4
    assert estimate("güneş değil mi? " * 20) > 16 * 20 / 3
    assert estimate("مرحبا بالعالم " * 20) > 14 * 20 / 3


def test_advice_and_table():
    lengths = Lengths()
    for i in range(1000):
        lengths.total.append(300 if i < 995 else 5000)
        lengths.prompt.append(100 if i != 999 else 4999)
        lengths.answer.append(200 if i < 995 else 1)
    size, _ = lengths.advice()
    assert size == 512
    row = lengths.row(512)
    assert (row["rows_over"], row["rows_with_nothing_to_learn"]) == (5, 1)
    assert row["tokens_lost_if_truncated"] == 5 * (5000 - 512)
    assert lengths.outliers() == list(range(995, 1000))
    assert packed([300] * 10, 1000) == 4
    table = {row["sequence_len"]: row for row in lengths.table(512)}
    assert table[512]["price_vs_recommended"] == 1.0
    # 5 rows of 5,000 tokens are computed whole, where 512 would cut or drop them
    assert table[8192]["tokens_computed"] == packed(lengths.total, 8192) * 8192
    assert table[8192]["price_vs_recommended"] > 1.05
    assert table[8192]["memory_gib"] is None


def test_a_job_file_shows_the_memory_of_each_length(tmp_path, capsys):
    rows = [{"prompt": f"say {i}", "completion": "yes " * 40} for i in range(30)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "job.yaml").write_text(
        "name: a\nmodel: meta-llama/Llama-2-7b-hf\nmethod: qlora\n"
        "data: {train: data.jsonl, format: prompt-completion}\n"
    )
    assert not run_stats([tmp_path / "job.yaml"], Options(), as_json=True, processes=1)
    table = json.loads(capsys.readouterr().out)["lengths"]["table"]
    gib = {row["sequence_len"]: row["memory_gib"] for row in table}
    assert gib[8192] is None  # the model ends at 4,096
    assert 4 < gib[512] < gib[1024] < gib[2048] < gib[4096] < 40
    assert not run_stats([tmp_path / "job.yaml"], Options(), as_json=False, processes=1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.endswith(f"{gib[2048]:.1f}") for line in lines)
    assert not run_stats([tmp_path / "data.jsonl"], Options(), as_json=False, processes=1)
    assert "GiB" not in capsys.readouterr().out.split("full price")[1].splitlines()[0]


def job(tmp_path, body, tokenizer_config=None):
    if tokenizer_config is not None:
        model = tmp_path / "model"
        model.mkdir()
        (model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
        body = {**body, "model": "model"}
    data = jobfile.read(body, tmp_path, Options())
    report = gate.Report()
    jobfile.check_template(data, report, "job.yaml")
    return data, [f.code for f in report.findings]


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("Qwen/Qwen3-0.6B", "chat_template_unverified"),
        ("Qwen/Qwen3-8B-Base", "chat_template_unverified"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "chat_template_unverified"),
        ("google/gemma-2-9b-it", "chat_template_unverified"),
        ("acme/baseball-7b", "chat_template_unverified"),
        ("meta-llama/Llama-3.1-8B", "no_chat_template"),
        ("meta-llama/Llama-2-7b-hf", "no_chat_template"),
        ("mistralai/Mistral-7B-v0.3", "no_chat_template"),
        ("google/gemma-3-4b-pt", "no_chat_template"),
        ("google/gemma-2-9b", "no_chat_template"),
        ("EleutherAI/pythia-160m", "no_chat_template"),
        ("HuggingFaceTB/SmolLM2-1.7B", "no_chat_template"),
    ],
)
def test_only_a_base_model_is_said_to_lack_a_template(tmp_path, model, code):
    assert job(tmp_path, {"model": model})[1] == [code]


def test_template_of_the_job(tmp_path, folder):
    assert job(tmp_path, {"model": "acme/base-7b"})[1] == ["no_chat_template"]
    assert job(tmp_path, {"model": "acme/tiny-instruct"})[1] == ["chat_template_unverified"]
    assert job(tmp_path, {"model": "acme/base-7b", "axolotl": {"chat_template": "chatml"}})[1] == []
    assert job(tmp_path, {"model": "acme/base-7b", "data": {"format": "completion"}})[1] == []
    assert job(tmp_path, {"model": str(folder)})[1] == []


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ({}, ["no_chat_template"]),
        ({"chat_template": "{% for m in messages %}{{ broken"}, ["chat_template_fails"]),
        ({"chat_template": "nothing of the messages"}, ["chat_template_fails"]),
        ({"chat_template": STRICT}, []),
    ],
)
def test_local_template(tmp_path, config, codes):
    data, found = job(tmp_path, {"data": {"train": "x.jsonl"}}, config)
    assert found == codes
    assert data.options.alternation == (config.get("chat_template") == STRICT)


def test_strict_template_refuses_what_it_cannot_render(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]}\n'
    )
    data, _ = job(tmp_path, {"data": {"train": "x.jsonl"}}, {"chat_template": STRICT})
    report = gate.check(data.train, data.options)
    assert "template_needs_alternation" in [f.code for f in report.findings]
    joined = gate.check(data.train, Options(fix=True, alternation=True))
    assert not joined.refused
    report = gate.Report()
    jobfile.check_records(data, report, "job.yaml", systems=True, tools=False)
    assert [f.code for f in report.findings] == ["chat_template_fails"]


def test_text_needs_no_template(folder):
    rows = records(text())
    counted, _ = tokens.count(rows, Options(tokenizer=str(folder)))
    assert all(prompt == 0 and total >= answer - 1 for total, prompt, answer in counted)
