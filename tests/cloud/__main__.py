"""The simulated RunPod as a process: `python -m tests.cloud --port 0 --log state.jsonl`.

Prints its address on one line and serves until it is killed, told to quit, or its parent dies.
With it end all pods, their processes, mounts and files, however it ends.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.cloud import jail
from tests.cloud.clock import SimClock
from tests.cloud.server import Server
from tests.cloud.switches import UnknownFault, from_text
from tests.cloud.world import Settings, StateLog, World

PR_SET_PDEATHSIG = 1
EXIT_NO_PODS = 3


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.cloud", description=__doc__)
    found.add_argument("--port", type=int, default=0)
    found.add_argument("--log", type=Path, help="the state log, one JSON object a line")
    found.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--fault", action="append", default=[], metavar="NAME[,KEY=VALUE...]")
    found.add_argument(
        "--mount", action="append", default=[], metavar="SRC[:DST]",
        help="a folder of this machine that every pod sees, read-only",
    )  # fmt: skip
    found.add_argument(
        "--forward", action="append", type=int, default=[], metavar="PORT",
        help="a port of this machine's loopback that pods may reach on theirs",
    )  # fmt: skip
    found.add_argument("--orphan", action="store_true", help="outlive the parent")
    for each in dataclasses.fields(Settings):
        if each.name not in ("mounts", "forwards"):
            kind = {"int": int, "float": float, "str": str}[str(each.type)]
            name = "--" + each.name.replace("_", "-")
            found.add_argument(name, type=kind, default=each.default, help="setting")
    return found


def settings_of(given: argparse.Namespace) -> Settings:
    names = [f.name for f in dataclasses.fields(Settings)]
    values = {name: getattr(given, name) for name in names if hasattr(given, name)}
    return Settings(**values, mounts=given.mount, forwards=given.forward)


def main(arguments: list[str]) -> int:
    """Serve; return the exit status."""
    given = parser().parse_args(arguments)
    settings = settings_of(given)
    if not given.orphan:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    folder = Path(tempfile.gettempdir())
    if settings.pods == "real":
        try:
            folder = own_folder()
        except jail.NoPods as error:
            print(error, file=sys.stderr)
            return EXIT_NO_PODS
    clock = SimClock(given.speed)
    log = StateLog(given.log.open("w") if given.log else None, clock)
    world = World(settings, folder, clock, log, given.seed)
    try:
        for text in given.fault:
            world.switches.arm(from_text(text))
    except UnknownFault as error:
        print(error, file=sys.stderr)
        return 2
    server = Server(given.port, world, clock.end)
    world.api_port = server.server_address[1]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{world.api_port}", flush=True)
    clock.run()
    log.write("quit")
    os._exit(0)


def own_folder() -> Path:
    """Return a folder for the pods that lies in memory and ends with this process."""
    jail.own_mounts()
    place = Path("/mnt")
    jail.mount_tmpfs(place, "16m")
    (place / "pods").mkdir()
    return place / "pods"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
