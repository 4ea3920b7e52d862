"""A hostile instance, over real SSH: a script that answers like the agent, and lies in each way.

Each lie is refused with its reason, and nothing is written but below the job's own folders.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.bundle import AGENT_FILE
from orchestrator.clock import SystemClock
from orchestrator.site import SiteError, SiteRefused
from orchestrator.ssh_site import SshSite
from orchestrator.states import Reason
from tests.support.sites import make_site, payload
from tests.support.sshd import Sshd
from tests.unit.test_checkpoint import weights

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]

LIAR = """\
import sys
def main(argv):
    many = '{{}},' * 10_000_000 + '{{}}'
    sys.stdout.write(open({answer!r}).read().replace('"MANY"', many) + "\\n")
    sys.stdout.flush()
if __name__ == "__main__":
    main(sys.argv[1:])
"""
WEIGHTS, CONFIG, STATE = "adapter_model.safetensors", "adapter_config.json", "trainer_state.json"


class Evil:
    """The instance: a folder with an `out`, a checkpoint in it, and the liar for an agent."""

    def __init__(self, folder: Path, server: Sshd) -> None:
        self.root, self.folder, self.home = folder, folder / "far", folder / "home"
        self.out = self.folder / "out"
        self.checkpoint = self.out / "checkpoint-10"
        self.checkpoint.mkdir(parents=True)
        self.answer = folder / "answer.json"
        (self.folder / AGENT_FILE).write_text(LIAR.format(answer=str(self.answer)))
        load = payload("evil", clock=SystemClock())
        self.site: SshSite = make_site(server.shell, self.folder, load, stub=folder / "env")

    def anew(self) -> None:
        """Make all as it was."""
        for place in (self.home, self.root / "home.part"):
            shutil.rmtree(place, ignore_errors=True)
        for place in (self.out, self.checkpoint):
            (place / CONFIG).unlink(missing_ok=True)
            (place / WEIGHTS).write_bytes(weights())
            (place / CONFIG).write_text("{}")
            (place / STATE).write_text("{}")

    def take(self, what: str) -> None:
        """Bring home a result or a checkpoint, as the runner does."""
        if what == "result":
            self.site.collect(self.home)
        else:
            self.site._listed = None
            self.site.keep_checkpoint(10, self.home)

    def listed(self) -> list[dict[str, Any]]:
        found = []
        for name in (WEIGHTS, CONFIG, STATE):
            data = (self.out / name).read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            found.append({"path": name, "bytes": len(data), "sha256": sha256})
        return found

    def say(self, document: Any) -> None:
        self.answer.write_text(document if isinstance(document, str) else json.dumps(document))


@pytest.fixture(scope="module")
def machine(tmp_path_factory, server: Sshd):
    evil = Evil(tmp_path_factory.mktemp("evil"), server)
    yield evil
    evil.site.close()


@pytest.fixture
def evil(machine: Evil) -> Evil:
    machine.anew()
    return machine


def outside(evil: Evil) -> set[str]:
    """Return every path that is neither the instance's nor the job's own."""
    ours = ("home", "home.part", "far")
    paths = {p.relative_to(evil.root).as_posix() for p in evil.root.rglob("*")}
    return {path for path in paths if path.split("/")[0] not in ours}


def extra(**changes: Any) -> dict[str, Any]:
    return {"path": "tokenizer.json", "bytes": 1, "sha256": "0" * 64, **changes}


LIES: dict[str, tuple[Any, str]] = {
    "parent": (extra(path="../../x"), "leaves its folder"),
    "absolute": (extra(path="/tmp/x"), "leaves its folder"),
    "size": (extra(bytes=1 << 60), "1,152,921,504,606,846,976 bytes"),
    "no number": (extra(bytes="9" * 5000), "size is no number"),
    "escapes": (extra(path="\x1b]0;owned\x07\x1b[2J"), "control characters"),
    "bidi": (extra(path="x\u202ejson.exe"), "control characters"),
    "twice": (extra(path=CONFIG.upper()), "two files of one name"),
    "hash": (extra(sha256="../../../etc/passwd"), "sha256 is none"),
    "no object": (["x"], "no object"),
}


@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_a_lying_list(evil: Evil, what: str) -> None:
    for entry, said in LIES.values():
        evil.say({"files": [*evil.listed(), entry]})
        refused_with(evil, what, said)


def test_a_list_that_is_none(evil: Evil) -> None:
    for document in ('{"files": ["MANY"]}', '{"files": 7}', "[" * 100_000, "\x00"):
        evil.say(document)
        refused_with(evil, "result", "no list of files")
    evil.say({"files": [extra()] * 2001})
    refused_with(evil, "checkpoint", "lists 2,001 files, at most 2,000")


def refused_with(evil: Evil, what: str, said: str) -> None:
    before = outside(evil)
    with pytest.raises(SiteRefused, match=said) as caught:
        evil.take(what)
    assert caught.value.reason is Reason.ARTIFACTS_REFUSED
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert outside(evil) == before
    assert not (evil.home / WEIGHTS).exists()
    assert not (evil.home / "checkpoint-10").exists()


@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_a_pickle_by_a_safe_name(evil: Evil, tmp_path: Path, what: str) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.write_text, (tmp_path / "exploded", "x"))

    for place in (evil.out, evil.checkpoint):
        (place / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    evil.say({"files": evil.listed()})
    refused_with(evil, what, "header")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_a_link_to_a_file_of_the_machine(evil: Evil, what: str) -> None:
    evil.say({"files": evil.listed()})
    for place in (evil.out, evil.checkpoint):
        (place / CONFIG).unlink()
        (place / CONFIG).symlink_to("/etc/passwd")
    refused_with(evil, what, "symlink")


@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_other_bytes_than_announced(evil: Evil, what: str) -> None:
    evil.say({"files": evil.listed()})
    for place in (evil.out, evil.checkpoint):
        (place / CONFIG).write_text("[]")
    with pytest.raises((SiteRefused, SiteError)):
        evil.take(what)
    assert not (evil.home / CONFIG).exists()
    assert not (evil.home / "checkpoint-10").exists()


def test_a_status_full_of_lies(evil: Evil) -> None:
    evil.say({
        "phase": ["training"], "alive": "yes", "heartbeat_age_s": float("inf"),
        "log_bytes": 1 << 60, "metrics_bytes": -5, "sample": "\x1b[2J" * 9, "claim": None,
        "exit": {
            "token": "evil", "verdict": "succeeded", "reason": "SUCCEEDED", "rc": None,
            "evidence": "\x1b]0;owned\x07all\u202e well\n\n" * 500, "last_step": 1 << 60,
            "trainer_starts": True,
        },
    })  # fmt: skip
    status = evil.site.status()
    assert (status.alive, status.log_bytes, status.metrics_bytes) == (False, 0, 0)
    assert status.exit is not None
    assert status.exit.verdict == "failed", "a success without an exit status is none"
    assert status.exit.last_step is None
    assert status.exit.evidence.isprintable()
    assert len(status.exit.evidence) <= 500
