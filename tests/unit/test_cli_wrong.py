"""What goes wrong at a person's hands: said harmlessly, with the way out, and all at once."""

from __future__ import annotations

import json

import pytest

from orchestrator.exits import Exit

JOB = """\
name: mine
model: Qwen/Qwen3-0.6B
method: lora
data: {train: train.jsonl, format: chat}
limits: {hours: 1}
output: out
"""
ROW = {
    "messages": [
        {"role": "user", "content": "How far is the moon from here, tonight?"},
        {"role": "assistant", "content": "About as far as every other night."},
    ]
}


@pytest.fixture
def job(tmp_path):
    """Return a function that writes a job file with changes, and its data."""
    rows = []
    for n in range(60):
        words = [f"{sum(map(ord, word)) * (n + 3)}" for word in ("a", "moon", "is", "near", "us")]
        user, assistant = ({**turn} for turn in ROW["messages"])
        user["content"] = f"Tell me of {' and '.join(words)}, please."
        rows.append(json.dumps({"messages": [user, assistant]}))
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")

    def write(*more: str) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(JOB + "\n".join(more) + "\n")
        return str(path)

    return write


@pytest.mark.parametrize(
    "line", ['"\\e[31mred\\e[2J": 1', '"\\r\\nnothing was launched": 1', '"\\u202ebidi": 1']
)
@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_job_file_moves_no_cursor_and_forges_no_line(cli_home, answer, job, command, line):
    code, out, err = answer(command, job(line))
    assert (code, out) == (Exit.USAGE, "")
    assert "unknown key" in err
    assert not [char for char in err if char != "\n" and not char.isprintable()]
    assert len(err.splitlines()) == 2


def test_a_readme_model_passes_the_gate(cli_home, answer, job):
    code, out, err = answer("data", "check", job())
    assert (code, err) == (Exit.OK, "")
    assert "chat_template_unverified" in out
    assert "no_chat_template" not in out


@pytest.mark.parametrize(("given", "share"), [((), 12), (("--val-share", "0.1"), 6)])
@pytest.mark.usefixtures("cli_home")
def test_prepare_holds_out_what_the_job_says(answer, job, tmp_path, given, share):
    path = job()
    text = (
        (tmp_path / "job.yaml").read_text().replace("format: chat", "format: chat, validation: 0.2")
    )
    (tmp_path / "job.yaml").write_text(text)
    code, out, _ = answer("data", "prepare", path, "--out", "prep", "--json", "--no-near", *given)
    assert code == 0
    assert json.loads(out)["manifest"]["counts"]["validation"] == share


def test_a_dry_run_shows_the_axolotl_file_where_nothing_fits(cli_home, answer, job):
    code, out, err = answer("submit", job(), "--dry-run", "--set", "gpu.types=H100")
    assert code == Exit.NO_OFFER
    assert "base_model: Qwen/Qwen3-0.6B" in out
    assert "no offer fits this job" in err
    assert "nothing was launched" in err


@pytest.mark.parametrize("command", ["plan", "submit"])
def test_an_unknown_provider_is_bad_usage(cli_home, answer, job, command):
    code, out, err = answer(command, job(), "--set", "gpu.providers=nope")
    assert (code, out) == (Exit.USAGE, "")
    assert "gpu.providers: nope: not set up here" in err


def test_a_provider_without_its_key_is_planned_for(cli_home, answer, job):
    code, out, _ = answer("plan", job(), "--set", "gpu.providers=runpod")
    assert code == 0
    assert "list" in out


@pytest.mark.parametrize("command", [["ps"], ["ps", "--json"], ["status", "x"], ["cost"]])
def test_a_broken_database_is_named_with_the_way_out(cli_home, answer, command):
    cli_home.mkdir()
    (cli_home / "gpujob.db").write_bytes(b"\x93garbage" * 1000)
    code, _, err = answer(*command)
    assert code == Exit.USAGE
    assert str(cli_home / "gpujob.db") in err
    assert "gpujob sweep --adopt" in err


def test_doctor_goes_on_over_a_broken_database(cli_home, answer):
    cli_home.mkdir()
    (cli_home / "gpujob.db").write_bytes(b"\x93garbage" * 1000)
    code, out, _ = answer("doctor", "--json")
    rows = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == Exit.USAGE
    assert rows["database"]["level"] == "fail"
    assert "sweep --adopt" in rows["database"]["remedy"]
    assert rows["python"]["level"] == "ok"
