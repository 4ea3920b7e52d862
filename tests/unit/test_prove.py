"""The campaigns' runner: chunks are remembered, and what failed is never called held."""

from __future__ import annotations

import json
import sys

import pytest

from scripts import prove
from scripts.prove import Campaign, Chunk, told_by
from tests.sim.layers import LAYERS


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    verdict = tmp_path / "verdict"
    verdict.write_text("0")
    code = (
        f"open({str(ran)!r}, 'a').write(__import__('sys').argv[1]); print('{{\"seeds\": 5}}'); "
        f"raise SystemExit(int(open({str(verdict)!r}).read()))"
    )

    def chunks():
        for name in "abc":
            yield Chunk(name, (sys.executable, "-c", code, name))

    monkeypatch.setitem(prove.CAMPAIGNS, "toy", Campaign("It holds.", chunks))
    monkeypatch.setattr(prove, "EVIDENCE", tmp_path)
    monkeypatch.setattr(prove, "PROGRESS", tmp_path / ".progress")
    return tmp_path


def test_a_campaign_goes_on_where_it_was_cut_and_starts_anew_on_a_new_commit(campaign):
    assert prove.run("toy", "c1", until=0.0) is None
    assert prove.run("toy", "c1", until=float("inf")) is True
    document = json.loads((campaign / "toy.json").read_text())
    assert (document["held"], document["commit"], document["sum"]) == (True, "c1", {"seeds": 15})
    assert prove.run("toy", "c1", until=float("inf")) is True
    assert (campaign / "ran").read_text() == "abc"
    assert prove.run("toy", "c2", until=float("inf")) is True
    assert (campaign / "ran").read_text() == "abcabc"


def test_what_failed_is_written_as_failed_and_run_again(campaign):
    (campaign / "verdict").write_text("1")
    assert prove.run("toy", "c1", until=float("inf")) is False
    assert json.loads((campaign / "toy.json").read_text())["held"] is False
    (campaign / "verdict").write_text("0")
    assert prove.run("toy", "c1", until=float("inf")) is True
    assert (campaign / "ran").read_text() == "abcabc"


def test_what_a_chunk_tells():
    assert told_by('words\n{"seeds": 3}\n') == {"seeds": 3}
    assert told_by("...\n3 passed, 1 failed in 2.50s") == {"passed": 3, "failed": 1}
    assert told_by("") == {}


def test_the_layers_are_those_of_the_simulation():
    assert set(prove.LAYER_NAMES) == set(LAYERS)
