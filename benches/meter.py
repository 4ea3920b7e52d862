"""What benches share: a real SSH server, CPU time of ourselves and of children, lines."""

import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.sshd import Sshd


@contextmanager
def ssh_server() -> Iterator[tuple[Sshd, Path]]:
    """A server, and a folder for files."""
    with TemporaryDirectory(prefix="gpujob-bench-") as place, Sshd(Path(place) / "sshd") as server:
        yield server, Path(place)


def ssh_argv(server: Sshd, *options: str) -> list[str]:
    known = server.folder / "known"
    key = server.host_key
    known.write_text(f"[127.0.0.1]:{server.port} {key.type} {key.base64}\n")
    return [
        *("ssh", "-F", "none", "-i", str(server.key.file), "-p", str(server.port)),
        *("-o", f"UserKnownHostsFile={known}", "-o", "LogLevel=ERROR", *options, "root@127.0.0.1"),
    ]


def own_cpu(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a call in this process, all its threads."""
    wall, cpu = time.monotonic(), time.process_time()
    call()
    return time.monotonic() - wall, time.process_time() - cpu


def child_cpu(argv: list[str], **options: object) -> tuple[float, float]:
    """Wall and CPU seconds of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.monotonic()
    subprocess.run(argv, check=True, **options)  # type: ignore[call-overload]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - wall, cpu


def peak_rss_mb() -> float:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def line(name: str, size: int, wall_s: float, cpu_s: float) -> str:
    return (
        f"{name:<34} {size / 1e6 / wall_s:7.0f} MB/s   {wall_s:6.2f} s   "
        f"{cpu_s:6.2f} CPU-s   {cpu_s / (size / 1e9):5.2f} CPU-s/GB"
    )
