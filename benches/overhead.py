"""What gpujob adds around a training on a ready `local` instance; the trainer takes no time.

Whole jobs through the supervisor: from the first SSH login to the trainer's first line, with the
bytes sent meanwhile, and from the trainer's end to the request to end the machine.

python -m benches.overhead [RUNS]
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator import events as ev
from orchestrator.clock import WakeableClock
from orchestrator.compose import compose
from orchestrator.opened import opened
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.runner import Happening
from orchestrator.submit import plan, read_job, store_job
from orchestrator.supervisor import Supervisor
from tests.support.stub_env import make_stub_env

JOB = """\
name: overhead
model: nobody/nothing
method: lora
data: {{train: {folder}/data.jsonl, format: alpaca, validation: 0}}
training: {{max_steps: 4, sequence_len: 64}}
gpu: {{providers: [local]}}
limits: {{hours: 0.1}}
output: {folder}/out
"""
NAMES = (
    "SSH ready to the trainer's first line",
    "the trainer's last line to the adapter at home",
    "adapter at home to the terminate request",
)


class Watch:
    """Notes when what was written down, and the bytes sent until the trainer was started."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.shells: list[ParamikoShell] = []
        self.sent_bytes = 0

    def __call__(self, happening: Happening) -> None:
        """Take what the runner tells."""
        if happening.event is not None:
            self.at.setdefault(type(happening.event).__name__, time.time())
        if isinstance(happening.event, ev.TrainerStarted):
            self.sent_bytes = sum(shell.sent_bytes() for shell in self.shells)

    def count(self) -> None:
        """Remember every connection that is made from here on."""
        right = ParamikoShell.connect

        def connect(*args: object, **options: object) -> ParamikoShell:
            self.shells.append(right(*args, **options))  # type: ignore[arg-type]
            return self.shells[-1]

        ParamikoShell.connect = staticmethod(connect)  # type: ignore[method-assign]


def prepare(folder: Path) -> Path:
    """Write the job, its data and its trainer, which notes when it began and ended."""
    axolotl = make_stub_env(folder / "stub", seconds_per_step=0.5, startup_s=0) / "bin" / "axolotl"
    shebang, _, rest = axolotl.read_text().partition("\n")
    note = (
        "import atexit, time\n"
        f"def note(): open({str(folder / 'times')!r}, 'a').write(repr(time.time()) + '\\n')\n"
        "note(); atexit.register(note)\n"
    )
    axolotl.write_text(f"{shebang}\n{note}{rest}")
    record = {"instruction": "Say x.", "input": "", "output": "x"}
    (folder / "data.jsonl").write_text((json.dumps(record) + "\n") * 8)
    path = folder / "job.yaml"
    path.write_text(JOB.format(folder=folder))
    return path


def one(folder: Path) -> tuple[list[float], int]:
    """Run one job; return the three times of NAMES, and the bytes."""
    path = prepare(folder)
    os.environ |= {
        "GPUJOB_HOME": str(folder / "home"),
        "GPUJOB_AXOLOTL_ENV": str(folder / "stub"),
        "GPUJOB_ABSENCE_GAP_S": "0.3",
    }
    before = ParamikoShell.connect
    seen = Watch()
    seen.count()
    with opened() as state:
        parts = compose(state, listeners=[seen])
        planned = plan(read_job(path, ()), parts.providers)
        job_id = store_job(planned, state.store, state.home, now=state.now())
        Supervisor(parts.runner, WakeableClock(), only={job_id}).run()
        outcome = state.store.job(job_id, now=state.now()).outcome
    ParamikoShell.connect = before  # type: ignore[method-assign]
    if outcome != "SUCCEEDED":
        sys.exit(f"the job ended as {outcome}")
    began, ended = (float(line) for line in (folder / "times").read_text().split())
    home, asked = seen.at["ArtifactsPushed"], seen.at["TerminateAsked"]
    return [began - seen.at["SshReady"], home - ended, asked - home], seen.sent_bytes


def main() -> None:
    """Print the figures of each run, and their medians."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    all_times = []
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for run in range(runs):
        with TemporaryDirectory(prefix="gpujob-bench-") as folder:
            times, sent = one(Path(folder))
        all_times.append(times)
        shown = ", ".join(f"{seconds:.2f}" for seconds in times)
        print(f"run {run + 1}: {shown} s; {sent:,} bytes sent before the start", flush=True)
    for name, values in zip(NAMES, zip(*all_times, strict=True), strict=True):
        print(f"{name:<48} median {statistics.median(values):.2f} s, worst {max(values):.2f} s")


if __name__ == "__main__":
    main()
