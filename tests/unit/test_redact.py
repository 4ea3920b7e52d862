"""No secret is written: those we were told of, in three spellings, and those shaped like one."""

from __future__ import annotations

import base64
import json
import logging
from urllib.parse import quote

import pytest
import structlog

from orchestrator import redact as module
from orchestrator.logging import setup
from orchestrator.redact import redact, remember_environment, remember_secrets, secrets_in, told

SECRET = "s3ntinel/+ value="


@pytest.fixture(autouse=True)
def forget():
    before = set(module._known)
    yield
    module._known.clear()
    module._known.update(before)


@pytest.mark.parametrize(
    "text",
    [
        "hf_abcdefghijklmnopqrst",
        "rpa_ABCDEFGHIJKLMNOPQRSTUVWX",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz012345",
        "Authorization: Bearer abcdef.ghijkl-mnop",
        "postgresql://ada:lovelace@db/x",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut short",
    ],
)
def test_shapes(text):
    shown = redact(f"before {text} after")
    assert "***" in shown
    for part in ("abcdefghij", "ABCDEFGHIJ", "IOSFODNN7", "lovelace", "b3BlbnNzaA", "ghijkl"):
        assert part not in shown
    assert shown.startswith("before ")


def test_ordinary_words_are_left_alone():
    text = "step 512 of 902, https://host:22/path, half_open, bearer of news"
    assert redact(text) == text


@pytest.mark.parametrize(
    "spelling",
    [SECRET, quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode()],
)
def test_a_known_secret_in_any_spelling(spelling):
    assert spelling in redact(f"x {spelling} y")
    remember_secrets([SECRET])
    assert redact(f"x {spelling} y") == "x *** y"


@pytest.mark.parametrize("before", ["", "x", "xy"])
def test_a_known_secret_inside_a_longer_base64(before):
    remember_secrets([SECRET])
    text = redact(base64.b64encode(f"{before}:{SECRET}!".encode()).decode())
    assert "***" in text
    assert len(text) < 16


def test_the_environment_says_what_is_secret(tmp_path, monkeypatch):
    environ = {
        "HF_TOKEN": "one-one", "AWS_SECRET_ACCESS_KEY": "two-two", "wandb_api_key": "three-3",
        "UV_INDEX_OURS_PASSWORD": "four-4", "HTTPS_PROXY": "http://me:five%2F5@proxy:80/",
        "GPUJOB_DATABASE_URL": "postgresql+psycopg://me:six/@6@db/x", "SHORT_URL": "me:seven-7@db",
        "PWD": "/work", "SSH_KEY": "/home/me/.ssh/id", "TOKENIZERS_PARALLELISM": "falsely",
        "KEYBOARD": "qwerty", "LINK": "https://me@host:22/a@b", "PATH": "/bin:/opt/a@1/bin",
    }  # fmt: skip
    assert {"one-one", "two-two", "three-3", "four-4", "five%2F5", "six/@6", "seven-7"} <= (
        found := secrets_in(environ)
    )
    assert not found & {"/work", "/home/me/.ssh/id", "falsely", "qwerty"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("RUNPOD_API_KEY=eight-8\n")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    remember_environment()
    shown = redact("eight-8 one-one five/5 five%2F5")
    assert shown == "*** *** *** ***"


def test_an_error_is_masked_before_it_is_cut():
    remember_secrets([SECRET])
    said = told(ValueError("x" * 480 + SECRET))
    assert said.startswith("ValueError: xxx")
    assert SECRET[:5] not in said


def test_short_values_are_not_secrets():
    remember_secrets(["on", ""])
    assert redact("on and on") == "on and on"


@pytest.fixture
def quiet_root():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_log_line_goes_to_the_file_of_its_job_without_the_secret(tmp_path, quiet_root, capsys):
    (tmp_path / "jobs" / "3f2a91").mkdir(parents=True)
    setup(tmp_path)
    remember_secrets([SECRET])
    log = structlog.get_logger("test")
    log.info("launched", job="3f2a91", deep={"key": [SECRET]})
    log.warning("elsewhere", key=SECRET)
    logging.getLogger("foreign").warning("told %s", SECRET)
    own = [json.loads(x) for x in (tmp_path / "jobs/3f2a91/gpujob.log").read_text().splitlines()]
    rest = [json.loads(x) for x in (tmp_path / "gpujob.log").read_text().splitlines()]
    assert [entry["event"] for entry in own] == ["launched"]
    assert own[0]["deep"] == {"key": ["***"]}
    assert [entry["event"] for entry in rest] == ["elsewhere", "told ***"]
    assert {"timestamp", "level", "logger"} <= rest[0].keys()
    console = capsys.readouterr().err
    assert "warning: elsewhere  key=***" in console
    assert "launched" not in console
    assert SECRET not in console


def test_an_exception_is_logged_without_the_secret(tmp_path, quiet_root):
    setup(tmp_path)
    remember_secrets([SECRET])
    try:
        int(f"refused {SECRET}")
    except ValueError:
        structlog.get_logger("test").exception("failed")
    text = (tmp_path / "gpujob.log").read_text()
    assert "Traceback" in text
    assert SECRET not in text


def test_a_job_id_that_is_a_path_is_not_followed(tmp_path, quiet_root):
    setup(tmp_path)
    structlog.get_logger("test").warning("x", job="../..")
    assert not (tmp_path.parent / "gpujob.log").exists()
