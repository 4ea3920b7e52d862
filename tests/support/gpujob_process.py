"""The real command line as a process of its own, on a home of its own, with the stub trainer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stub_env import make_stub_env

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0  # on a loaded machine; a run takes some ten seconds

JOB = """\
name: stub-job
model: {model}
method: lora
data: {{train: {data}, format: alpaca, validation: 0}}
training: {{max_steps: 12, sequence_len: 64}}
gpu: {{providers: [local]}}
limits: {{hours: 0.2}}
output: {output}
"""


def heed_signals() -> None:
    """Undo what a caller in the background (`&`, nohup) ignores: in the child, before it starts."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Return its one document."""
        body: dict[str, Any] = json.loads(self.out)
        return body


class Gpujob:
    """Runs `gpujob` on one home below `folder`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.python = sys.executable
        self.home = folder / "home"
        self.stub = folder / "stub"
        self.out = folder / "out"
        self.environ = {
            # COLUMNS: parallel test workers set it, and lines would break at 80.
            **{k: v for k, v in os.environ.items() if k != "COLUMNS" and k[:7] != "GPUJOB_"},
            "GPUJOB_HOME": str(self.home),
            "GPUJOB_AXOLOTL_ENV": str(self.stub),
            "GPUJOB_ABSENCE_GAP_S": "0.3",
            "GPUJOB_LEASE_S": "5",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            **settings,
        }

    def write_job(self, **switches: Any) -> Path:
        """Return a job file; the switches are the stub trainer's."""
        make_stub_env(self.stub, **switches)
        model = self.folder / "model"
        if not model.exists():
            source = ROOT / "examples" / "quickstart" / "tiny-llama"
            model.mkdir(parents=True)
            for path in source.iterdir():
                (model / path.name).write_bytes(path.read_bytes())
        data = self.folder / "data.jsonl"
        record = {"instruction": "Say x.", "input": "", "output": "x"}
        data.write_text("".join(json.dumps(record) + "\n" for _ in range(32)))
        path = self.folder / "job.yaml"
        path.write_text(JOB.format(model=model, data=data, output=self.out))
        return path

    def start(
        self, *argv: str, by: Sequence[str] = ("-m", "orchestrator"), **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command; its stdin is closed, so there is no terminal. by: what Python runs."""
        return subprocess.Popen(
            [self.python, *by, *argv],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_signals,  # noqa: PLW1509 - no thread runs here
            **options,
        )

    def run(self, *argv: str, timeout_s: float = WAIT_S) -> Done:
        """Run a command to its end."""
        return self.finish(self.start(*argv), timeout_s=timeout_s)

    def finish(self, process: subprocess.Popen[str], *, timeout_s: float = WAIT_S) -> Done:
        """Wait for a started command."""
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"still running\n{out}\n{err}") from None
        return Done(process.returncode, out, err)

    def job(self) -> dict[str, Any]:
        """Return the newest job as `ps` has it."""
        found: dict[str, Any] = self.run("ps", "--all", "--json").json()["jobs"][0]
        return found

    def wait_for(
        self, wanted: Callable[[dict[str, Any]], bool], what: str, *, within_s: float = WAIT_S
    ) -> dict[str, Any]:
        """Return the newest job once it is as wanted."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            jobs = self.run("ps", "--all", "--json").json()["jobs"]
            if jobs and wanted(jobs[0]):
                return dict(jobs[0])
            time.sleep(0.3)
        raise AssertionError(f"never {what}: {self.run('ps', '--all').out}")

    def processes(self) -> list[str]:
        """Return the command lines of living processes that belong to this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                environ = (path / "environ").read_bytes()
            except OSError:
                continue
            ours = str(self.home).encode()
            if int(path.name) != os.getpid() and ours in environ and command:
                found.append(f"{path.name} {command}")
        return found

    def end_all(self) -> None:
        """End what a failed test left: its daemon and its instances. By their own pids."""
        for line in self.processes():
            try:
                os.kill(int(line.split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue
