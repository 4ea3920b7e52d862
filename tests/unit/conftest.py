"""Fixtures for tests of the command line in this process."""

from __future__ import annotations

import logging

import pytest

from orchestrator.__main__ import run


@pytest.fixture
def cli_home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("GPUJOB_HOME", str(folder))
    monkeypatch.setenv("GPUJOB_SWEEP", "off")
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield folder
    root.handlers[:] = handlers  # commands that compose the run path set up their own
    root.setLevel(level)


@pytest.fixture
def answer(capsys):
    def ask(*argv: str):
        code = run(list(argv))
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask
