"""A sentinel secret in every settable place, searched for in all that gpujob writes or starts.

The same searcher must find leaks that are planted: by hand, and by breaking gpujob's protections.
"""

from __future__ import annotations

import base64
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization

from tests.support.gpujob_process import ROOT, Done, Gpujob
from tests.support.leaks import Leak, Sampler, Searcher, spellings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

# None has the shape of an issuer's keys: only what gpujob knows of its settings can mask them.
PLAIN = {
    "HF_TOKEN": "Sentinel1/hf+t0ken one~Zq",
    "AWS_SECRET_ACCESS_KEY": "Sentinel2/aws+S3cret/two=",
    "AWS_SESSION_TOKEN": "Sentinel3/aws+session&three",
    "WANDB_API_KEY": "Sentinel4wandbFour0123456789",
    "MY_DB_PASSWORD": "Sentinel5?db#five%25",
}
IN_DOTENV = {"RUNPOD_API_KEY": "Sentinel6/runpod+six:0x"}
IN_ADDRESS = {"HTTPS_PROXY": "Sentinel7-proxy.seven", "PIP_INDEX_URL": "Sentinel8-index.eight"}
SECRETS = {**PLAIN, **IN_DOTENV, **IN_ADDRESS}


@pytest.fixture
def gpujob(tmp_path):
    addresses = {name: f"http://me:{word}@127.0.0.1:9/x" for name, word in IN_ADDRESS.items()}
    names = {"GPUJOB_TEST_SECRETS": " ".join([*PLAIN, *IN_DOTENV, *IN_ADDRESS])}
    tool = Gpujob(tmp_path, **PLAIN, **addresses, **names)
    (tmp_path / ".env").write_text("".join(f"{k}='{v}'\n" for k, v in IN_DOTENV.items()))
    yield tool
    tool.end_all()


def crasher(tool: Gpujob, *argv: str, **settings: str) -> Done:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "support" / "crasher.py"), *argv],
        cwd=tool.folder, env={**tool.environ, **settings}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return tool.finish(process)


def sampler(tool: Gpujob) -> Sampler:
    return Sampler(str(tool.home).encode(), (tool.home / "instances", tool.out))


def keys_of(tool: Gpujob) -> dict[Path, dict[str, bytes]]:
    """Return every job's private key file, with what of it may stand nowhere else."""
    found = {}
    for file in (tool.home / "keys").glob("*/id_ed25519"):
        pem = file.read_bytes()
        key = serialization.load_ssh_private_key(pem, password=None)
        raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw
        seed = key.private_bytes(*raw, serialization.NoEncryption())
        name = f"key of {file.parent.name}"
        found[file] = {name: seed, f"{name}, hex": seed.hex().encode(), f"{name}, file": pem[80:]}
    return found


def leaks(tool: Gpujob, said: list[Done], samples: Sampler | None = None) -> list[Leak]:
    """Return all that was found: home, database, result, what was printed, what was sampled."""
    keys = keys_of(tool)
    secrets = {name: word.encode() for name, word in SECRETS.items()}
    for parts in keys.values():
        secrets |= parts
    searcher = Searcher(secrets)
    found = searcher.tree(tool.home, but=keys)
    found += searcher.database(tool.home / "gpujob.db")
    if tool.out.exists():
        found += searcher.tree(tool.out)
    for done in said:
        found += searcher.data((done.out + done.err).encode(errors="surrogateescape"), "screen")
    return found + (samples.leaks(searcher) if samples is not None else [])


def test_nothing_leaks_from_whole_jobs(gpujob):
    """One job in the foreground; one under the daemon, which is killed; all that reads."""
    samples = sampler(gpujob)
    with samples.running():
        said = [
            gpujob.run("submit", str(gpujob.write_job(steps=20, seconds_per_step=0.05)), "--yes")
        ]
        assert said[0].code == 0, said[0].out + said[0].err
        gpujob.environ["GPUJOB_LOG_LEVEL"] = "debug"
        path = gpujob.write_job(steps=60, seconds_per_step=0.2)
        said.append(gpujob.run("submit", str(path), "--yes", "--detach"))
        gpujob.wait_for(lambda job: job["state"] == "RUNNING", "running")
        assert list((gpujob.home / "instances").glob("*/instance.json"))
        os.kill(int((gpujob.home / "supervise.lock").read_text()), signal.SIGKILL)
        said.append(gpujob.run("ps"))
        gpujob.wait_for(lambda job: job["closed_at_unix_s"] is not None, "closed")
        commands = (
            ["status", "stub-job", "--events"], ["status", "stub-job", "--json"], ["ps", "--json"],
            ["logs", "stub-job"], ["cost"], ["doctor"], ["providers"], ["sweep"],
        )  # fmt: skip
        said += [gpujob.run(*command) for command in commands]
    assert [done.code for done in said[:6]] == [0] * 6, [done.err for done in said]
    assert any(b"daemon" in argv or b"local_guard" in argv for argv in samples.environs.values())
    assert any(b"train" in argv and b"axolotl" in argv for argv in samples.argv)
    assert any(name.endswith("order.json") for name, _ in samples.files.values())
    assert len(keys_of(gpujob)) == 2
    assert (gpujob.out / "adapter_model.safetensors").is_file()
    assert leaks(gpujob, said, samples) == []


@pytest.mark.parametrize(
    ("point", "trace"),
    [
        ("journal.before:JobSubmitted#1", "crashes/*.txt"),  # in the command: a crash file
        ("provider.before:launch#1", "gpujob.db"),  # "launch failed" in the journal
        ("journal.before:StepDone#1", "jobs/*/gpujob.log"),  # a mistake of ours in the driver
        ("site.before:prepare#1", "jobs/*/gpujob.log"),
    ],
)
def test_an_error_tells_no_secret(gpujob, point, trace):
    path = gpujob.write_job()
    late = {"READS": "1", "GAP_S": "0.2", "LATE_1_S": "0.4", "LATE_2_S": "0.5"}
    gpujob.environ |= {f"GPUJOB_SETTLE_{name}": value for name, value in late.items()}
    said = [crasher(gpujob, "submit", str(path), "--yes", GPUJOB_TEST_CRASH_AT=point)]
    assert (said[0].code == 0) == ("launch" in point), said[0].out  # that one is tried again
    said.append(gpujob.run("ps", "--all"))
    if "JobSubmitted" not in point:
        said += [gpujob.run("status", "stub-job", "--events"), gpujob.run("status", "stub-job")]
    files = [*gpujob.home.glob(trace), gpujob.home / "gpujob.log"]
    told = b"".join(file.read_bytes() for file in files if file.exists())
    assert b"RuntimeError" in told, "the error itself is told"
    assert leaks(gpujob, said) == []


@pytest.mark.parametrize(
    "address", ["sqlite://me:{}@nowhere/x", "postgresql://me:{}@127.0.0.1:9/x", "me:{}@host"]
)
def test_a_database_url_keeps_its_password(gpujob, address):
    said = []
    gpujob.environ["GPUJOB_DATABASE_URL"] = address.format("Sentinel9-base.nine")
    for command in (["ps"], ["submit", str(gpujob.write_job()), "--yes", "--json"], ["doctor"]):
        said.append(gpujob.run(*command))
        assert said[-1].code != 0
        assert "Traceback" not in said[-1].err
    searcher = Searcher({"GPUJOB_DATABASE_URL": b"Sentinel9-base.nine"})
    assert not searcher.data("".join(d.out + d.err for d in said).encode(), "screen")
    assert not searcher.tree(gpujob.home)


# ------------------------------------------------------------------------------- planted leaks


@pytest.mark.parametrize(
    ("planted", "where"),
    [("environment", "environment of"), ("argv", "argv"), ("redact", "crashes")],
)
def test_a_broken_protection_is_found(gpujob, planted, where):
    path = gpujob.write_job(steps=20, seconds_per_step=0.05)
    crash = {"GPUJOB_TEST_CRASH_AT": "journal.before:JobSubmitted#1"} if planted == "redact" else {}
    samples = sampler(gpujob)
    with samples.running():
        done = crasher(gpujob, "submit", str(path), "--yes", GPUJOB_TEST_PLANT=planted, **crash)
    found = leaks(gpujob, [done], samples)
    names = {leak.name for leak in found if where in leak.where}
    assert names == (set(SECRETS) if planted == "redact" else {"HF_TOKEN"}), found
    if planted == "redact":
        hows = {leak.how for leak in found if leak.name == "HF_TOKEN"}
        assert {"raw", "url", "base64+0", "base64+1", "base64+2"} <= hows


SECRET = b"Planted/secret+value 0123?x"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("after", ["", "z", "yz"])
def test_every_spelling_is_found(before, after):
    searcher = Searcher({"it": SECRET})
    text = before.encode() + SECRET + after.encode()
    for spelt in (
        text, quote(text, safe="").encode(), base64.b64encode(text), base64.urlsafe_b64encode(text)
    ):  # fmt: skip
        assert searcher.data(b"some " + spelt + b" more", "here")
        assert not searcher.data(spelt[: len(spelt) // 2], "here")


def test_planted_files_and_rows_are_found(tmp_path):
    searcher = Searcher({"it": SECRET})
    for number, needle in enumerate(spellings(SECRET).values()):
        (tmp_path / f"{number}.log").write_bytes(b"x" * 5000 + needle + b"y")
    assert len({leak.where for leak in searcher.tree(tmp_path)}) == len(spellings(SECRET))
    (tmp_path / "base").mkdir()
    base = tmp_path / "base" / "x.db"
    open_ = sqlite3.connect(base)
    open_.execute("PRAGMA journal_mode = WAL")
    open_.execute("CREATE TABLE t (a, b)")
    open_.execute("INSERT INTO t VALUES (1, ?)", (f"said {SECRET.decode()} once",))
    open_.commit()
    assert [leak.where for leak in searcher.tree(base.parent)] == [f"{base}-wal"]
    assert [leak.where for leak in searcher.database(base)] == ["row of t"]
    open_.close()
    assert [leak.where for leak in searcher.tree(base.parent)] == [str(base)]


def test_planted_processes_are_found(tmp_path):
    idle = [sys.executable, "-c", "import time; time.sleep(30)"]
    samples = Sampler(str(tmp_path).encode(), ())
    mark = {"GPUJOB_INSTANCE": f"label@{tmp_path}"}
    told = subprocess.Popen([*idle, SECRET.decode()], env=mark)
    given = subprocess.Popen(idle, env={**mark, "TOKEN": base64.b64encode(SECRET).decode()})
    strange = subprocess.Popen(idle, env={"TOKEN": SECRET.decode()})
    try:
        with samples.running():
            time.sleep(0.5)
    finally:
        for process in (told, given, strange):
            process.kill()
            process.wait()
    found = samples.leaks(Searcher({"it": SECRET}))
    assert sorted((leak.how.partition("+")[0], leak.where[:4]) for leak in found) == [
        ("base64", "envi"), ("base64url", "envi"), ("raw", "argv"),
    ]  # fmt: skip
