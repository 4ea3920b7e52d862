"""The command line in this process: what it prints, where, and with which code."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator import complaint
from orchestrator.__main__ import main, run
from orchestrator.exits import MEANING, PRECEDENCE, Exit, Refused, worst
from orchestrator.states import EXIT_PRECEDENCE
from tests.support.filled_store import fill

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(cli_home):
    return cli_home


@pytest.fixture
def ids(home):
    _, store, found = fill(home)
    store.close()
    return found


def test_ps_on_a_new_home(home, answer):
    code, out, err = answer("ps")
    assert (code, err) == (0, "")
    assert "no jobs yet" in out


def test_ps_shows_what_bills_first_and_exits_0(ids, answer):
    code, out, _ = answer("ps", "--all")
    assert code == 0
    assert out.startswith("STILL BILLING ")
    assert re.search(rf"^STILL BILLING +stuck #{ids['billing']}", out, flags=re.MULTILINE)
    assert "STRAY   runpod i-9" in out
    for job_id in ids.values():
        assert job_id in out


def test_ps_leaves_out_what_was_closed_long_ago(ids, answer):
    _, recent, _ = answer("ps", "--json")
    _, everything, _ = answer("ps", "--all", "--json")
    shown = {job["id"] for job in json.loads(recent)["jobs"]}
    assert ids["succeeded"] not in shown  # it was closed years away from this machine's clock
    assert {ids["running"], ids["billing"]} <= shown
    assert {job["id"] for job in json.loads(everything)["jobs"]} == set(ids.values())


@pytest.mark.parametrize(
    ("which", "code"),
    [
        ("succeeded", 0),
        ("failed", 4),
        ("billing", 5),
        ("refused", 3),
        ("running", 5),
        ("queued", 0),
    ],
)
def test_the_jobs_code_only_where_asked(ids, answer, which, code):
    # "running" is long past its deadline by this machine's clock, so it bills as well
    assert answer("status", ids[which])[0] == 0
    assert answer("status", ids[which], "--exit-code")[0] == code


def test_status_by_name_prefix_and_hash(ids, answer):
    for word in ("stuck", ids["billing"][:2], f"#{ids['billing']}"):
        code, out, _ = answer("status", word)
        assert code == 0
        assert f"stuck #{ids['billing']}" in out


def test_status_with_its_journal(ids, answer):
    _, out, _ = answer("status", ids["succeeded"], "--events")
    assert "the training runs" in out
    _, out, _ = answer("status", ids["succeeded"], "--events", "--json")
    events = json.loads(out)["events"]
    assert events[0]["event"] == "JobSubmitted"
    assert events[-1]["event"] == "JobClosed"


@pytest.mark.parametrize("command", [("status",), ("logs",), ("attach",), ("ssh",), ("cancel",)])
def test_an_unknown_job(home, ids, answer, command):
    code, out, err = answer(*command, "nope")
    assert code == 2
    assert out == ""
    assert "no job 'nope'" in err
    assert "(exit 2)" in err
    assert "Traceback" not in err


def test_an_unknown_job_in_json(ids, answer):
    code, out, _ = answer("status", "nope", "--json")
    error = json.loads(out)["error"]
    assert code == 2
    assert error["exit_code"] == 2
    assert "nope" in error["message"]


def test_cost_adds_up_in_every_form(ids, answer):
    _, text, _ = answer("cost", "--json")
    body = json.loads(text)
    _, text, _ = answer("cost", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["key"] for row in rows] == [row["key"] for row in body["rows"]]
    over = {row["key"]: row["total_usd"] for row in body["rows"] if not row["open"]}
    assert over == {row["key"]: row["total_usd"] for row in rows if row["open"] == "no"}
    assert ids["succeeded"] in over
    assert {row["name"] for row in rows} >= {"support-tone", "stuck"}
    _, table, _ = answer("cost")
    assert table.splitlines()[-1].startswith("+ still grows") or "all" in table
    for by in ("day", "provider"):
        _, text, _ = answer("cost", "--by", by, "--json")
        grown = Decimal(json.loads(text)["total_usd"]) - Decimal(body["total_usd"])
        assert 0 <= grown < Decimal("0.1")  # meters run on between two answers


def test_cost_of_nothing(home, answer):
    assert answer("cost")[:2] == (0, "nothing was spent yet.\n")
    assert json.loads(answer("cost", "--json")[1])["rows"] == []


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("frob",), "No such command"),
        (("ps", "--frob"), "No such option"),
        (("status",), "Missing argument"),
        (("cost", "--by", "moon"), "moon"),
        (("logs", "x", "--attempt", "0"), "attempt"),
        (("submit",), "Missing argument"),
    ],
)
def test_usage_errors_are_one_message_with_code_2(home, answer, argv, word):
    code, out, err = answer(*argv)
    assert code == 2
    assert out == ""
    assert word in err
    assert "--help" in err
    assert "(exit 2)" in err


def test_submit_says_that_nothing_was_launched(home, answer):
    code, _, err = answer("submit", "nowhere.yaml")
    assert code == 2
    assert "nowhere.yaml" in err
    assert "nothing was launched.   (exit 2)" in err


def test_no_arguments_show_the_help(home, answer):
    code, _, err = answer()
    assert code == 2
    assert "Commands" in err


def test_version(home, answer):
    code, out, _ = answer("--version")
    assert (code, out[:7]) == (0, "gpujob ")


def test_rm_takes_closed_jobs_only(ids, home, answer):
    folder = home / "jobs" / ids["succeeded"]
    folder.mkdir(parents=True)
    assert answer("rm", ids["succeeded"])[0] == 0
    assert not folder.exists()
    assert ids["succeeded"] not in answer("ps", "--all")[1]
    assert ids["succeeded"] in answer("cost")[1]
    code, _, err = answer("rm", ids["running"])
    assert code == 2
    assert "is not over" in err
    assert ids["running"] in answer("ps", "--all")[1]


def test_cancel_needs_one_of_jobs_and_all(ids, answer):
    assert answer("cancel")[0] == 2
    assert answer("cancel", ids["running"], "--all")[0] == 2


def test_cancel_detached_only_asks(ids, answer):
    code, _, err = answer("cancel", ids["running"], "--detach")
    assert code == 0
    assert "asked to end" in err
    assert "asked already" in answer("cancel", ids["running"], "--detach")[2]
    assert answer("cancel", "--all", "--detach")[0] == 0


def test_logs_give_the_bytes(ids, home, capfdbinary):
    path = home / "jobs" / ids["running"] / "attempt-1" / "train.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\r\xff\x00\x1b[2Jtwo")
    code = run(["logs", ids["running"]])
    assert code == 0
    assert capfdbinary.readouterr().out == b"one\r\xff\x00\x1b[2Jtwo"


def test_logs_of_a_job_without_any(ids, answer):
    code, _, err = answer("logs", ids["booting"])
    assert code == 0
    assert "no log yet" in err
    assert answer("logs", ids["queued"])[0] == 2


def test_ssh_without_a_machine(ids, answer):
    code, _, err = answer("ssh", ids["succeeded"])
    assert code == 2
    assert "no living machine" in err or "no ssh command" in err


def test_a_fault_is_one_line_and_a_crash_file(home, answer, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "s3ntinel-value")

    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("hf_abcdefghijklmnopqrstuv s3ntinel-value")

    monkeypatch.setattr("orchestrator.cli_read.ps", broken)
    code, out, err = answer("ps")
    assert code == 1
    assert out == ""
    assert "ZeroDivisionError: *** ***" in err
    assert "Traceback" not in err
    (crash,) = (home / "crashes").iterdir()
    text = crash.read_text()
    assert "Traceback" in text
    assert "hf_" not in text
    assert "s3ntinel" not in text
    assert crash.stat().st_mode & 0o077 == 0
    assert str(crash) in err


@pytest.mark.parametrize(("error", "expected"), [(ZeroDivisionError(), 1), (Refused("no"), 2)])
def test_one_document_also_when_it_fails_after_the_answer(
    ids, answer, monkeypatch, error, expected
):
    def broken(_state):
        raise error

    monkeypatch.setattr("orchestrator.cli_read.see_that_jobs_are_driven", broken)
    code, out, _ = answer("ps", "--json")
    assert code == expected
    json.loads(out)


def test_a_bad_setting_is_named(home, answer, monkeypatch):
    monkeypatch.setenv("GPUJOB_LOG_LEVEL", "loud")
    code, _, err = answer("doctor")
    assert code == 2
    assert "GPUJOB_LOG_LEVEL" in err


def test_a_home_that_cannot_be(answer, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("GPUJOB_HOME", str(blocked / "home"))
    monkeypatch.chdir(tmp_path)
    code, _, err = answer("ps")
    assert code == 2
    assert "GPUJOB_HOME" in err


def test_windows_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "Windows" in capsys.readouterr().err


def test_exit_codes_are_total_and_documented():
    assert set(MEANING) == set(Exit) == set(PRECEDENCE)
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)}
    assert documented == {int(code) for code in Exit}
    shared = [code for code in PRECEDENCE if code in EXIT_PRECEDENCE]
    assert [int(code) for code in shared] == [
        code for code in EXIT_PRECEDENCE if code in set(map(int, Exit))
    ]


def test_precedence():
    assert worst() == Exit.OK
    assert worst(4, 5, 130, 7) == Exit.STILL_BILLING
    assert worst(4, 130, 7) == Exit.INTERRUPTED
    assert worst(4, 7) == Exit.ARTIFACTS


def test_every_command_stands_in_the_help(home, answer):
    _, out, _ = answer("--help")
    for command in (
        "submit", "ps", "status", "logs", "attach", "ssh", "cancel", "cost", "supervise",
        "sweep", "doctor", "providers", "init", "schema", "rm", "rehearse",
    ):  # fmt: skip
        assert re.search(rf"^  {command} ", out, flags=re.MULTILINE), command
    summaries = out.partition("Commands:")[2]
    assert "..." not in summaries  # a summary that was cut says nothing


def test_refusals_of_other_rooms_keep_their_words(home, capsys):
    from providers.errors import AuthFailed, NoCapacity

    assert complaint.complain(AuthFailed("key refused"), ["submit", "x"]) == 2
    assert "key refused\nnothing was launched" in capsys.readouterr().err
    assert complaint.complain(NoCapacity("sold out"), ["sweep"]) == 3
    assert "nothing was launched" not in capsys.readouterr().err
    launched = Refused("lost sight of it", launched=True)
    complaint.complain(launched, ["submit", "x"])
    assert "nothing was launched" not in capsys.readouterr().err


def test_init_writes_a_file_to_start_from(home, answer, tmp_path):
    code, out, _ = answer("init")
    assert code == 0
    assert "gpujob submit job.yaml --dry-run" in out
    text = (tmp_path / "job.yaml").read_text()
    assert text.startswith("#")
    code, _, err = answer("init")
    assert code == 2
    assert "--force" in err
    (tmp_path / "job.yaml").write_text("mine")
    assert answer("init", "--force")[0] == 0
    assert (tmp_path / "job.yaml").read_text() == text
    folder = tmp_path / "folder"
    folder.mkdir()
    assert answer("init", "folder")[0] == 0
    assert (folder / "job.yaml").exists()
    assert answer("init", "nowhere/job.yaml")[0] == 2


def test_schema_is_json_schema(home, answer):
    code, out, _ = answer("schema")
    body = json.loads(out)
    assert code == 0
    assert {"name", "model", "method"} <= set(body["properties"])


def test_doctor_looks_at_this_machine(home, answer):
    code, out, _ = answer("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert {"python", "sqlite", "home", "disk", "ssh", "daemon", "provider local"} <= set(checks)
    failed = any(check["level"] == "fail" for check in checks.values())
    assert code == (2 if failed else 0)
    _, text, _ = answer("doctor")
    assert "provider local" in text


def test_providers_list_what_they_offer(home, answer, monkeypatch):
    monkeypatch.setenv("GPUJOB_LOCAL_PRICE_USD_PER_HOUR", "0.25")
    code, out, _ = answer("providers", "--json")
    assert code == 0
    listed = json.loads(out)["providers"]
    local = next(one for one in listed if one["name"] == "local")
    assert local["proves_absence"] is True
    assert local["offers"][0]["price_usd_per_hour"] == "0.250000"
    assert "0.25 notional" in answer("providers")[1]


def test_a_sweep_of_a_clean_house(home, answer):
    code, out, _ = answer("sweep")
    assert code == 0
    assert "nothing that should not be there" in out
    assert json.loads(answer("sweep", "--json")[1])["findings"] == []
