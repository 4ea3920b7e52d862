"""The installed service: its texts say what they must, and its command does what it says."""

from __future__ import annotations

import os
import plistlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import daemon
from orchestrator.alarm_matters import Matter
from orchestrator.home import open_home
from orchestrator.service import (
    NotInstalled,
    Service,
    install,
    left_out,
    place,
    plist_bytes,
    service,
    uninstall,
    unit_text,
)
from orchestrator.store import Store
from orchestrator.store_alarms import Alarms
from tests.support.local_machine import wait_until
from tests.support.units import read_unit

WAIT_S = 90.0


ODD = Service(
    ("/opt/py 3/python", "-c", 'say "50 %" for $5\\'),
    {"PATH": "/a b:/c%d", "X": 'quote " and back\\slash'},
    Path("/home/ada/my jobs 100%"),
    Path("/home/ada/log"),
)


def test_a_unit_reads_back_as_it_was_meant():
    argv, environ, folder = read_unit(unit_text(ODD))
    assert tuple(argv) == ODD.argv
    assert environ == ODD.environ
    assert folder == str(ODD.folder)
    assert "Restart=always" in unit_text(ODD)


@pytest.mark.skipif(sys.platform != "linux", reason="systemd's own checker")
@pytest.mark.system("systemd")
@pytest.mark.parametrize("broken", [False, True])
def test_systemd_itself_takes_the_unit(tmp_path, broken):
    """By systemd's own checker; a command that is not there would be an error of its own."""
    odd = Service((sys.executable, *ODD.argv[1:]), ODD.environ, ODD.folder, ODD.log)
    text = unit_text(odd).replace("RestartSec=10", "RestartSec=ten" if broken else "RestartSec=10")
    file = tmp_path / "gpujob.service"
    file.write_text(text)
    environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}
    words = ["systemd-analyze", "verify", "--user", "--man=no", str(file)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert bool(done.stderr.strip()) == broken, done.stderr  # it warns of what it would ignore


def test_a_plist_reads_back_as_it_was_meant():
    read = plistlib.loads(plist_bytes(ODD))
    assert tuple(read["ProgramArguments"]) == ODD.argv
    assert read["EnvironmentVariables"] == ODD.environ
    assert read["KeepAlive"] is True


def test_no_secret_is_copied_and_what_is_left_out_is_named(tmp_path):
    environ = {
        "PATH": "/bin", "RUNPOD_API_KEY": "rpa_secret", "GPUJOB_DATABASE_URL": "postgresql://a:b@c",
        "HTTPS_PROXY": "http://me:word@proxy", "GPUJOB_OWNER": "me", "GPUJOB_LEASE_S": "7",
        "EDITOR": "vi",
    }  # fmt: skip
    it = service(tmp_path, tmp_path, environ)
    text = unit_text(it) + plist_bytes(it).decode()
    for secret in ("rpa_secret", "a:b@c", "word"):
        assert secret not in text
    assert left_out(environ, {"GPUJOB_LEASE_S": "7"}) == ["GPUJOB_DATABASE_URL", "RUNPOD_API_KEY"]


def test_the_places():
    home = Path("/home/ada")
    assert place("linux", home, {}) == home / ".config/systemd/user/gpujob.service"
    assert place("linux", home, {"XDG_CONFIG_HOME": "/c"}) == Path("/c/systemd/user/gpujob.service")
    assert "LaunchAgents" in str(place("darwin", home, {}))


def test_installing_where_no_service_manager_is_says_what_is_left_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "a" / "gpujob.service"
    said = install(service(tmp_path, tmp_path, {}), file, platform="linux")
    assert said[0] == f"wrote {file}"
    assert any("not done" in line and "enable --now" in line for line in said)
    assert file.stat().st_mode & 0o777 == 0o600
    assert uninstall(file, platform="linux")[-1] == f"removed {file}"
    assert "nothing to take away" in uninstall(file, platform="linux")[0]


def test_a_manager_that_refuses_is_quoted(tmp_path, monkeypatch):
    for name in ("systemctl", "loginctl"):
        fake = tmp_path / name
        fake.write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    said = install(service(tmp_path, tmp_path, {}), tmp_path / "u", platform="linux")
    assert "not done: systemctl --user daemon-reload  (no bus)" in said


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotInstalled, match="file"):
        install(service(tmp_path, tmp_path, {}), tmp_path / "file" / "u", platform="linux")


@pytest.mark.skipif(sys.platform != "linux", reason="a systemd unit's command")
def test_a_supervisor_that_is_killed_goes_on_by_its_units_command(tmp_path):
    """The unit is run as systemd would: its command, environment and folder, and nothing else."""
    home = open_home(tmp_path / "home")
    folder = tmp_path / "my jobs"
    folder.mkdir()
    heard, door = tmp_path / "heard", tmp_path / "door"
    command = f'echo tried >> "{heard}"; test -e "{door}" && cat >> "{heard}"'
    (folder / ".env").write_text(f"GPUJOB_ALARM_COMMAND='{command}'\nGPUJOB_SWEEP=off\n")
    store = Store.open(home.database_url)
    alarms = Alarms(store.database)
    text = "tone #abc123: STILL BILLING"
    alarms.note([Matter("abc123/still_billing/1/0", "abc123", "still_billing", 1.0, text)])
    unit = unit_text(service(home.root, folder, {"PATH": os.environ["PATH"]}))
    argv, environ, where = read_unit(unit)

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "supervise.out").open("ab") as out:
            return subprocess.Popen(argv, env=environ, cwd=where, stdout=out, stderr=out)

    first = start()
    try:
        wait_until(lambda: bool(alarms.unheard()[0][2]), WAIT_S)  # it tried, and nobody heard
        assert daemon.running(home.root) == first.pid
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert text not in heard.read_text()
    door.touch()
    second = start()
    try:
        wait_until(lambda: not alarms.unheard(), WAIT_S)
        second.send_signal(signal.SIGTERM)
        assert second.wait(WAIT_S) == 0
    finally:
        second.kill()
        second.wait()
    assert heard.read_text().count(text) == 1
    store.close()
