"""Uploading 300 MB that does not shrink and 300 MB that does, beside scp in the same run.

python benches/upload.py [MEGABYTES]
"""

import random
import sys
from functools import partial
from pathlib import Path

from benches.meter import child_cpu, line, own_cpu, ssh_argv, ssh_server


def make(folder: Path, megabytes: int) -> dict[str, Path]:
    noise = random.Random(1)
    words = [f"word{number}" for number in range(5000)]
    files = {"weights (noise)": folder / "weights", "records (JSON Lines)": folder / "records"}
    with (folder / "weights").open("wb") as file:
        for _ in range(megabytes):
            file.write(noise.randbytes(1_000_000))
    lines = [
        f'{{"instruction": "{" ".join(noise.choices(words, k=20))}", "output": "ok"}}\n'
        for _ in range(5000)
    ]
    with (folder / "records").open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            file.writelines(lines)
    return files


def main(megabytes: int = 300) -> None:
    with ssh_server() as (server, folder):
        shell = server.shell()
        *options, _ = ssh_argv(server)[1:]
        scp = ["scp", "-q", *(option if option != "-p" else "-P" for option in options)]
        for name, path in make(folder, megabytes).items():
            size = path.stat().st_size
            before = shell.sent_bytes()
            ours = own_cpu(partial(shell.put, path, f"{path}.ours"))
            moved = shell.sent_bytes() - before
            again = own_cpu(partial(shell.put, path, f"{path}.ours"))
            theirs = child_cpu([*scp, str(path), f"root@127.0.0.1:{path}.theirs"])
            print(name)
            print(line("  scp", size, *theirs))
            print(line("  gpujob put", size, *ours) + f"   {moved / size:.0%} of the bytes sent")
            print(line("  gpujob put, already there", size, *again))
            assert Path(f"{path}.ours").read_bytes() == path.read_bytes()
        shell.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
