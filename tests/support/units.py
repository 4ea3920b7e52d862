"""Reads a systemd unit as systemd does: its command, environment and folder."""

from __future__ import annotations

import shlex


def read_unit(text: str) -> tuple[list[str], dict[str, str], str]:
    """Return (argv, environment, folder) as systemd reads them."""
    argv: list[str] = []
    environ: dict[str, str] = {}
    folder = ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        plain = value.replace("%%", "%")
        if name == "ExecStart":
            argv = [word.replace("$$", "$") for word in shlex.split(plain)]
        elif name == "Environment":
            (pair,) = shlex.split(plain)
            key, _, said = pair.partition("=")
            environ[key] = said
        elif name == "WorkingDirectory":
            folder = plain
    return argv, environ, folder
