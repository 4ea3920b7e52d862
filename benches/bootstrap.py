"""What gpujob adds on a ready instance before the trainer starts: seconds and bytes.

python benches/bootstrap.py
"""

import time
from collections.abc import Callable

from benches.meter import ssh_server
from orchestrator.bootstrap import Upload
from orchestrator.clock import SystemClock
from orchestrator.paramiko_shell import ParamikoShell
from tests.support.sites import make_site, payload

Steps = list[tuple[str, float]]


def main() -> None:
    clock = SystemClock()
    with ssh_server() as (server, folder):
        data = folder / "records.jsonl"
        data.write_bytes(b'{"instruction": "say something", "output": "something"}\n' * 64)
        for run in range(3):
            shells: list[ParamikoShell] = []

            def connect(shells: list[ParamikoShell] = shells) -> ParamikoShell:
                shells.append(server.shell())
                return shells[0]

            far = folder / "work" / f"gpujob-{run}"
            load = payload(far.name, Upload(data, "data/train.jsonl"), clock=clock)
            site = make_site(connect, far, load, stub=folder / "env", steps=2, startup_s=2)
            steps: Steps = []

            def timed(name: str, call: Callable[[], object], steps: Steps = steps) -> object:
                begun = time.monotonic()
                answer = call()
                took = time.monotonic() - begun
                steps.append((str(answer or name) if name == "prepare" else name, took))
                return answer

            timed("connect, probe", site.probe)
            connected = time.monotonic()
            while timed("prepare", site.prepare_next) is not None:
                pass
            timed("start", site.start_trainer)
            added = time.monotonic() - connected
            sent = shells[0].sent_bytes()
            print(", ".join(f"{name} {seconds:.2f}" for name, seconds in steps))
            print(f"run {run + 1}: {added:.2f} s up to the trainer's start, {sent:,} bytes sent")
            site.stop_trainer(now=True)
            site.close()


if __name__ == "__main__":
    main()
