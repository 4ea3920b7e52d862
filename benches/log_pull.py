"""Pulling a log of 500 MB, beside `ssh host cat` in the same run: CPU time of the client.

python benches/log_pull.py [MEGABYTES]
"""

import random
import sys
from pathlib import Path

from benches.meter import child_cpu, line, own_cpu, ssh_argv, ssh_server
from orchestrator import logs
from orchestrator.paramiko_shell import ParamikoShell


def pull_all(shell: ParamikoShell, remote: Path, local: Path) -> None:
    offset = 0
    while (reached := logs.pull(shell, str(remote), local, offset)) != offset:
        offset = reached


def main(megabytes: int = 500) -> None:
    with ssh_server() as (server, folder):
        remote, local, other = folder / "train.log", folder / "ours", folder / "theirs"
        block = random.Random(1).randbytes(1 << 20)
        with remote.open("wb") as file:
            for _ in range(megabytes):
                file.write(block)
        size = remote.stat().st_size
        shell = server.shell()
        for run in range(3):
            local.unlink(missing_ok=True)
            with other.open("wb") as sink:
                theirs = child_cpu([*ssh_argv(server), f"cat {remote}"], stdout=sink)
            ours = own_cpu(lambda: pull_all(shell, remote, local))
            print(line("ssh host cat > file", size, *theirs))
            print(line("gpujob logs.pull", size, *ours))
            print(f"run {run + 1}: our CPU time is {ours[1] / theirs[1]:.2f} x that of ssh\n")
        assert local.read_bytes() == remote.read_bytes()
        shell.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
