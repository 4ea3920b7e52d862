"""load_job: what a good file gives, and the doors by which a bad one comes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.findings import Finding, JobFileError
from jobs.load import LoadedJob, load_job
from jobs.spec import Method

ALPACA = {"instruction": "a", "input": "", "output": "b"}
GOOD = """\
name: a
model: owner/name
method: qlora
data:
  train: rows.jsonl
  format: alpaca
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ALPACA) + "\n", encoding="utf-8")
    return tmp_path


def load(folder: Path, text: str, *overrides: str) -> LoadedJob:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return load_job(folder / "job.yaml", overrides)


def findings(folder: Path, text: str, *overrides: str) -> list[Finding]:
    with pytest.raises(JobFileError) as caught:
        load(folder, text, *overrides)
    return list(caught.value.findings)


def test_paths_are_absolute_and_count_from_the_file(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "job.yaml").write_text(
        GOOD.replace("rows", "../rows") + "output: ../results\n", encoding="utf-8"
    )
    spec = load_job(folder / "deep" / "job.yaml").spec
    assert spec.data.train == folder / "rows.jsonl"
    assert spec.output_folder == folder / "results"
    assert not (folder / "results").exists()  # looking changes nothing


def test_the_output_folder_defaults_to_out_beside_the_file(folder: Path) -> None:
    assert load(folder, GOOD).spec.output_folder == folder / "out"


def test_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    spec = load(folder, GOOD.replace("rows.jsonl", "~/rows.jsonl") + "output: ~/res\n").spec
    assert spec.data.train == folder / "rows.jsonl"
    assert spec.output_folder == folder / "res"


def test_line_of_a_key(folder: Path) -> None:
    job = load(folder, GOOD)
    assert job.line_of("data.format") == 6
    assert job.line_of("training.seed") is None
    assert job.text == GOOD


def test_sections_whose_keys_are_all_commented_out_are_absent(folder: Path) -> None:
    assert load(folder, GOOD + "training:\n  # seed: 3\ngpu:\n").spec.training.seed == 42


def test_an_anchor_and_a_merge_key(folder: Path) -> None:
    text = GOOD.replace("data:", "data: &d") + "training:\n  lora_r: &r 8\n  lora_alpha: *r\n"
    training = load(folder, text).spec.training
    assert (training.lora_r, training.lora_alpha) == (8, 8)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-4", 1e-4), ("1E-4", 1e-4), ("2.5e-05", 2.5e-5), (".001", 1e-3), ("0.1", 0.1)],
)
def test_numbers_as_people_write_them(folder: Path, text: str, number: float) -> None:
    job = load(folder, GOOD + f"training:\n  learning_rate: {text}\n")
    assert job.spec.training.learning_rate == number
    job = load(folder, GOOD + f"axolotl:\n  learning_rate: {text}\n")
    assert job.spec.axolotl.keys["learning_rate"] == number


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("off", False), ("true", True)])
def test_yes_and_no_where_true_or_false_belongs(folder: Path, word: str, value: bool) -> None:
    assert load(folder, GOOD + f"training: {{packing: {word}}}\n").spec.training.packing is value
    job = load(folder, GOOD + f"axolotl: {{group_by_length: {word}}}\n")
    assert job.spec.axolotl.keys["group_by_length"] is value


def test_no_stays_a_word_where_text_belongs(folder: Path) -> None:
    assert load(folder, GOOD.replace("name: a", "name: no")).spec.name == "no"


def test_a_number_where_text_belongs_asks_for_quotes(folder: Path) -> None:
    (finding,) = findings(folder, GOOD.replace("name: a", "name: 12"))
    assert (finding.field, finding.remedy) == ("name", "Put it in quotes")
    assert load(folder, GOOD.replace("name: a", "name: '12'")).spec.name == "12"


# ------------------------------------------------------------------ --set
def test_set_lays_values_over_the_file(folder: Path) -> None:
    spec = load(
        folder, GOOD, "training.learning_rate=1e-3", "gpu.types=[A100, H100]", "method=lora"
    ).spec
    assert spec.training.learning_rate == 1e-3
    assert spec.gpu.types == ("A100", "H100")
    assert spec.method is Method.LORA


def test_set_makes_the_section_it_needs(folder: Path) -> None:
    job = load(folder, GOOD + "axolotl:\n", "axolotl.special_tokens.pad_token=<pad>")
    assert job.spec.axolotl.keys == {"special_tokens": {"pad_token": "<pad>"}}


def test_set_of_one_length_takes_the_other_away(folder: Path) -> None:
    training = load(folder, GOOD + "training: {epochs: 3}\n", "training.max_steps=5").spec.training
    assert (training.epochs, training.max_steps) == (None, 5)
    training = load(folder, GOOD + "training: {max_steps: 3}\n", "training.epochs=2").spec.training
    assert (training.epochs, training.max_steps) == (2.0, None)
    both = findings(folder, GOOD, "training.epochs=2", "training.max_steps=5")
    assert "both given" in both[0].message


@pytest.mark.parametrize(
    ("override", "field", "message"),
    [
        ("training.lr=3", "training.lr", "unknown key"),
        ("training.lora_r=0", "training.lora_r", "out of range"),
        ("training.lora_r", "", "not a key and a value"),
        ("=3", "", "not a key and a value"),
        ("a..b=3", "", "not a key and a value"),
        ("name.x=3", "name", "is a value, not a section"),
        ("gpu.types=[A", "", "broken YAML"),
        ("axolotl.output_dir=x", "axolotl.output_dir", "gpujob's own key"),
        ("data.train=nope.jsonl", "data.train", "no such file"),
    ],
)
def test_a_fault_of_set_names_the_set(
    folder: Path, override: str, field: str, message: str
) -> None:
    (finding,) = findings(folder, GOOD, override)
    assert finding.file == f"--set {override}"
    assert finding.field == field
    assert message in finding.message
    assert str(finding).startswith(f"--set {override}")


# ------------------------------------------------------------------ the file itself
def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"nope\.yaml: no such file"):
        load_job(tmp_path / "nope.yaml")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="is a folder, not a file"):
        load_job(tmp_path)


def test_a_name_that_no_file_can_have() -> None:
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(JobFileError):
            load_job(Path(name))


def test_not_utf8(folder: Path) -> None:
    (folder / "job.yaml").write_bytes(GOOD.encode() + b"output: caf\xe9\n")
    with pytest.raises(JobFileError, match="line 7: is not UTF-8 text"):
        load_job(folder / "job.yaml")


def test_a_byte_order_mark_is_taken_off(folder: Path) -> None:
    (folder / "job.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    job = load_job(folder / "job.yaml")
    assert job.spec.name == "a"
    assert job.text.startswith("name")


def test_a_data_set_instead_of_a_job(folder: Path) -> None:
    (folder / "job.yaml").write_text("a" * (1 << 20) + "b", encoding="utf-8")
    with pytest.raises(JobFileError, match="larger than 1 MiB"):
        load_job(folder / "job.yaml")


def test_a_pipe_of_a_device(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="larger than 1 MiB"):
        load_job(Path("/dev/zero"))


def test_aliases_that_multiply(folder: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (finding,) = (f for f in findings(folder, "\n".join(lines)) if "values" in f.message)
    assert finding.message == "more than 20000 values"


def test_deep_nesting(folder: Path) -> None:
    (finding,) = findings(folder, "a: " + "[" * 20_000)
    assert "nested too deeply" in finding.message


# ------------------------------------------------------------------ output and model folders
def test_an_output_folder_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The system's answer is set by hand: the tests may run as root, who may write anywhere.
    may = os.access
    monkeypatch.setattr("jobs.load_paths.os.access", lambda p, how: how == os.R_OK and may(p, how))
    (finding,) = findings(folder, GOOD + "output: locked/out\n")
    assert f"locked/out: {folder} can't be written" in finding.message


def test_a_folder_whose_permissions_lie_is_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As below /proc, where root seems to be allowed everything; and a trial leaves nothing.
    before = sorted(folder.iterdir())
    load(folder, GOOD + "output: new/out\n")
    (folder / "job.yaml").unlink()
    assert sorted(folder.iterdir()) == before

    def refused(path: Path, mode: int = 0o777) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr("tempfile._os.mkdir", refused)
    (finding,) = findings(folder, GOOD + "output: odd/out\n")
    assert f"odd/out: {folder} can't be written: Operation not permitted" in finding.message


def test_a_broken_link_as_output(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "nowhere")
    (finding,) = findings(folder, GOOD + "output: link/out\n")
    assert "broken link" in finding.message


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json"),
        ({"config.json": "{"}, "is not valid JSON"),
        ({"config.json": "[]"}, "is not valid JSON"),
        ({"config.json": "{}"}, "has no weights"),
        ({"config.json": "{}", "model.safetensors": ""}, "has no tokenizer"),
    ],
)
def test_a_model_folder_that_is_none(folder: Path, files: dict[str, str], message: str) -> None:
    (folder / "m").mkdir()
    for name, text in files.items():
        (folder / "m" / name).write_text(text, encoding="utf-8")
    (finding,) = findings(folder, GOOD.replace("owner/name", "./m"))
    assert finding.field == "model"
    assert message in finding.message


def test_a_folder_named_like_an_id_is_the_folder(folder: Path) -> None:
    (folder / "owner" / "name").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / "owner" / "name" / name).write_text("{}", encoding="utf-8")
    spec = load(folder, GOOD).spec
    assert spec.model == str(folder / "owner" / "name")
    assert spec.model_folder == folder / "owner" / "name"


def test_a_chat_model_without_template_is_noted(folder: Path) -> None:
    (folder / "m").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / "m" / name).write_text("{}", encoding="utf-8")
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    (folder / "rows.jsonl").write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    text = GOOD.replace("owner/name", "./m").replace("alpaca", "chat")
    assert "ChatML is used" in load(folder, text).notes[0]
    assert load(folder, text + "axolotl: {chat_template: llama3}\n").notes == ()
    (folder / "m" / "chat_template.jinja").write_text("x", encoding="utf-8")
    assert load(folder, text).notes == ()


# ------------------------------------------------------------------ effective values
def test_axolotl_keys_show_up_in_training(folder: Path) -> None:
    spec = load(
        folder,
        GOOD + "axolotl:\n  sequence_len: 4096\n  num_epochs: 2\n  val_set_size: 0.2\n"
        "  lora_target_modules: [q_proj]\n  sample_packing: false\n",
    ).spec
    assert spec.training.sequence_len == 4096
    assert spec.training.epochs == 2.0
    assert spec.training.lora_targets == ("q_proj",)
    assert spec.training.packing is False
    assert spec.data.validation == 0.2


def test_renamed_keys_are_put_right_with_a_note(folder: Path) -> None:
    job = load(folder, GOOD + "axolotl: {flash_attention: true, dataset_processes: 4}\n")
    assert job.spec.axolotl.keys == {
        "attn_implementation": "flash_attention_2",
        "dataset_num_proc": 4,
    }
    assert len(job.notes) == 2
