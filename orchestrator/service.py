"""`gpujob supervise` as a service of the person's own: a systemd user unit, or a launchd agent.

So that somebody goes on after a reboot. Texts are pure; `install` and `uninstall` write and call.
No secret is copied: the service reads the `.env` of the folder where it was installed.
"""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.daemon import LOG_NAME
from orchestrator.redact import NAMES

UNIT = "gpujob.service"
LABEL = "io.github.gpujob.supervise"
RESTART_S = 10  # also the pause while another supervisor of this home runs
CALL_S = 30.0
# Carried into the service, where they are set: how programs are found, and where things lie.
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")


class NotInstalled(Exception):  # noqa: N818 - an answer to the user
    """The service could not be written or taken away; the text says why."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is to run: argument list, environment without secrets, folder, and the home's log."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path
    log: Path


def service(home: Path, folder: Path, environ: Mapping[str, str]) -> Service:
    """Return the service of one home; `folder` is where its `.env` lies."""
    kept = {name: environ[name] for name in KEPT if environ.get(name) and "@" not in environ[name]}
    kept["GPUJOB_HOME"] = str(home)
    root = Path(__file__).resolve().parent.parent
    if "site-packages" not in root.parts:  # run from a source tree: the package must be found again
        kept["PYTHONPATH"] = str(root)
    argv = (sys.executable, "-P", "-m", "orchestrator", "supervise")
    return Service(argv, kept, folder, home / LOG_NAME)


def left_out(environ: Mapping[str, str], dotenv: Mapping[str, str]) -> list[str]:
    """Return the names of settings that only this shell has: the service will not see them."""
    found = []
    for name, value in environ.items():
        ours = name.startswith("GPUJOB_") and name not in {"GPUJOB_HOME", "GPUJOB_OWNER"}
        a_key = name.startswith(("RUNPOD_", "AWS_", "HF_")) and NAMES.search(name) is not None
        if value and (ours or a_key) and dotenv.get(name) != value:
            found.append(name)
    return sorted(found)


def unit_text(it: Service) -> str:
    """Return the systemd unit. See systemd.service(5), systemd.syntax(7)."""
    environ = "\n".join(
        f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(it.environ.items())
    )
    return f"""\
[Unit]
Description=gpujob: drives open jobs until every machine is proven gone
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={" ".join(_quoted(word, dollar=True) for word in it.argv)}
WorkingDirectory={str(it.folder).replace("%", "%%")}
{environ}
Restart=always
RestartSec={RESTART_S}
KillMode=process
TimeoutStopSec=60
StandardOutput=append:{str(it.log).replace("%", "%%")}
StandardError=append:{str(it.log).replace("%", "%%")}

[Install]
WantedBy=default.target
"""


def _quoted(word: str, *, dollar: bool = False) -> str:
    """Return a word as systemd reads it back: quoted, its specifiers escaped."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if dollar else text}"'


def plist_bytes(it: Service) -> bytes:
    """Return the launchd agent. See launchd.plist(5)."""
    return plistlib.dumps({
        "Label": LABEL,
        "ProgramArguments": list(it.argv),
        "EnvironmentVariables": dict(it.environ),
        "WorkingDirectory": str(it.folder),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": RESTART_S,
        "AbandonProcessGroup": True,
        "StandardOutPath": str(it.log),
        "StandardErrorPath": str(it.log),
    })  # fmt: skip


def place(platform: str, user_home: Path, environ: Mapping[str, str]) -> Path:
    """Return the file of the service for this platform."""
    if platform == "darwin":
        return user_home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else user_home / ".config") / "systemd" / "user" / UNIT


def install(it: Service, file: Path, *, platform: str) -> list[str]:
    """Write the service and have it started; returns lines that say what was done, and what not.

    Raises NotInstalled where the file cannot be written.
    """
    data = plist_bytes(it) if platform == "darwin" else unit_text(it).encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(0o600)
    except OSError as error:
        raise NotInstalled(f"{file}: {error.strerror}") from error
    said = [f"wrote {file}"]
    if platform == "darwin":
        return said + _called([["launchctl", "unload", str(file)]], quiet=True) + _called(
            [["launchctl", "load", "-w", str(file)]]
        )  # fmt: skip
    said += _called(
        [["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", UNIT]]
    )
    return said + _called([["loginctl", "enable-linger"]])


def uninstall(file: Path, *, platform: str) -> list[str]:
    """Stop the service and take its file away; jobs go on, their next driver is another."""
    if not file.exists():
        return [f"{file} is not there: nothing to take away"]
    if platform == "darwin":
        said = _called([["launchctl", "unload", "-w", str(file)]])
    else:
        said = _called([["systemctl", "--user", "disable", "--now", UNIT]])
    try:
        file.unlink()
    except OSError as error:
        raise NotInstalled(f"{file}: {error.strerror}") from error
    if platform != "darwin":
        said += _called([["systemctl", "--user", "daemon-reload"]], quiet=True)
    return [*said, f"removed {file}"]


def _called(commands: Sequence[Sequence[str]], *, quiet: bool = False) -> list[str]:
    """Run commands; return a line for each: done, or what is left to do by hand."""
    said = []
    for command in commands:
        words = " ".join(command)
        if shutil.which(command[0]) is None:
            said.append(f"not done, there is no {command[0]} here: {words}")
            continue
        try:
            done = subprocess.run(list(command), capture_output=True, timeout=CALL_S, check=False)
            failed = done.returncode != 0
            why = done.stderr.decode("utf-8", "replace").strip()[-200:]
        except (OSError, subprocess.TimeoutExpired) as error:
            failed, why = True, str(error)
        said.append(f"not done: {words}  ({why})" if failed else f"done: {words}")
    return [] if quiet else said
