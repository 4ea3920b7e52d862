"""Following a log that grows at 100 MB/s for 30 s: resident size, lag, and equality.

python benches/log_follow.py [MEGABYTES_PER_S [SECONDS]]
"""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from benches.meter import peak_rss_mb, ssh_server
from orchestrator import logs

WRITER = """
import os, sys, time
path, rate, seconds = sys.argv[1], int(sys.argv[2]) * 1000000, int(sys.argv[3])
block = os.urandom(rate // 20)
begun = time.monotonic()
with open(path, "ab", buffering=0) as file:
    for tick in range(seconds * 20):
        file.write(block)
        time.sleep(max(0.0, begun + (tick + 1) / 20 - time.monotonic()))
"""


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(rate: int = 100, seconds: int = 30) -> None:
    with ssh_server() as (server, folder):
        remote, local = folder / "train.log", folder / "local.log"
        shell = server.shell()
        print(f"resident before: {peak_rss_mb():.0f} MB")
        cpu = time.process_time()
        writer = subprocess.Popen([sys.executable, "-c", WRITER, remote, str(rate), str(seconds)])
        offset, worst = 0, 0
        while True:
            over = writer.poll() is not None
            reached = logs.pull(shell, str(remote), local, offset)
            if remote.exists():
                worst = max(worst, remote.stat().st_size - reached)
            if over and reached == offset:
                break
            if reached == offset:
                time.sleep(0.05)
            offset = reached
        cpu = time.process_time() - cpu
        print(f"{offset / 1e6:,.0f} MB followed, at most {worst / 1e6:,.0f} MB behind")
        print(f"peak resident: {peak_rss_mb():.0f} MB;  {cpu / (offset / 1e9):.2f} CPU-s/GB")
        print(f"equal: {digest(local) == digest(remote)}")
        shell.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
