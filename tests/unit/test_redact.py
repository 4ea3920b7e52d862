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
from orchestrator.redact import redact, remember_environment, remember_secrets

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


def test_secrets_of_the_environment_are_known_by_their_names():
    names = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "RUNPOD_API_KEY", "my_credentials")
    remember_environment({name: f"value-of-{name}" for name in names} | {"HOME": "/home/ada"})
    for name in names:
        assert redact(f"x value-of-{name}") == "x ***"
    assert redact("/home/ada") == "/home/ada"


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
