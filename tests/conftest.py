"""Shared fixtures, and the rule that nothing is left out in silence.

A test that needs a system package or Axolotl's environment says so by a marker. Where the need is
not met the test is left out, and the whole run ends non-zero with the list of what it left out.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

LEFT_OUT: dict[str, list[str]] = {}
NEEDS = "left out, needs "
# Debian package -> the program that shows it is there.
PROGRAMS = {
    "openssh-server": "sshd",
    "openssh-client": "ssh",
    "tmux": "tmux",
    "systemd": "systemd-analyze",
}


def axolotl_env() -> Path | None:
    """Return the environment with the real Axolotl, as `make test` names it."""
    named = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV")
    return Path(named) if named else None


def pytest_configure() -> None:
    """Give this process and its children the signals back that a background shell or nohup took."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)


def unmet(item: pytest.Item) -> str | None:
    """Return what this test needs and this machine lacks, in words, or None."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    for mark in item.iter_markers("system"):
        for package in mark.args:
            if shutil.which(PROGRAMS.get(package, package), path=path) is None:
                return f"system package {package}"
    if item.get_closest_marker("axolotl") and axolotl_env() is None:
        return "Axolotl's environment in GPUJOB_TEST_AXOLOTL_ENV (`make test` builds it)"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(mark.args and mark.args[0] for mark in item.iter_markers("skipif")):
            continue  # not for this machine at all, so nothing that it lacks
        need = unmet(item)
        if need:
            item.add_marker(pytest.mark.skip(reason=NEEDS + need))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Gather from reports, not from collection: with xdist only reports reach the main process."""
    if report.skipped and isinstance(report.longrepr, tuple) and NEEDS in report.longrepr[2]:
        need = report.longrepr[2].split(NEEDS, 1)[1]
        LEFT_OUT.setdefault(need, []).append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if LEFT_OUT and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for need, tests in sorted(LEFT_OUT.items()):
        terminalreporter.write_line(f"LEFT OUT, so this run fails: {len(tests)} tests need {need}")


@pytest.fixture(scope="session")
def axolotl_python() -> Path:
    """The Python of the environment with the real Axolotl; only for tests marked `axolotl`."""
    folder = axolotl_env()
    assert folder is not None
    return folder / "bin" / "python"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's own state, and none leaves a process of its own behind."""
    monkeypatch.setenv("GPUJOB_HOME", str(tmp_path / "gpujob-home"))
    monkeypatch.setenv("GPUJOB_SWEEP", "off")
    for name in (
        "GPUJOB_DATABASE_URL", "GPUJOB_LOCAL_PRICE_USD_PER_HOUR", "HF_TOKEN",
        "RUNPOD_API_KEY", "RUNPOD_API_BASE_URL",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
