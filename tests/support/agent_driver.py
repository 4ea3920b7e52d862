"""Drives the shipped agent as the orchestrator does, on this machine, without SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from orchestrator.agent.bundle import AGENT_FILE, PLUGIN_FILE, agent_source, plugin_source

STUB = Path(__file__).parent / "stub_trainer.py"


class Attempt:
    """One attempt's folder, with the agent in it and an order for the stub trainer."""

    def __init__(self, folder: Path, **switches: Any) -> None:
        self.folder = folder
        (folder / "out").mkdir(parents=True)
        (folder / AGENT_FILE).write_bytes(agent_source())
        (folder / PLUGIN_FILE).write_bytes(plugin_source())
        (folder / "config.yml").write_text(f"output_dir: {folder}/out\nadapter: lora\n")
        argv = [sys.executable, str(STUB), "train", str(folder / "config.yml")]
        env = {"GPUJOB_STUB": json.dumps(switches)}
        self.order: dict[str, Any] = {
            "schema": 1,
            "job": "3f2a01",
            "attempt": 1,
            "label": "gpujob-test",
            "token": "token-1",
            "argv": argv,
            "env": env,
            "cwd": ".",
            "stop_grace_s": 1.0,
            "expect_adapter": True,
            "self_destruct": None,
        }
        self.deadline(120)

    def deadline(self, seconds: float) -> None:
        """Set the deadline, from now."""
        self.order.update(deadline_at=time.time() + seconds, deadline_in_s=seconds)

    def command(
        self, *arguments: str, expect: int = 0, timeout_s: float = 90, **popen: Any
    ) -> dict[str, Any]:
        """Run one command of the agent; return its answer."""
        agent = [sys.executable, "-I", "-S", str(self.folder / AGENT_FILE)]
        done = subprocess.run(
            [*agent, *arguments], capture_output=True, timeout=timeout_s, check=False, **popen
        )
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        assert done.stderr == b""
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def start(self, *, expect: int = 0, **popen: Any) -> dict[str, Any]:
        """Write the order and start."""
        path = self.folder / "order.json"
        path.write_text(json.dumps(self.order))
        return self.command("start", str(path), expect=expect, **popen)

    def status(self) -> dict[str, Any]:
        return self.command("status", str(self.folder))

    def wait(self, seconds: float = 60) -> dict[str, Any]:
        """Return exit.json, once it is there."""
        words = ("await", str(self.folder), "--timeout", str(seconds))
        answer = self.command(*words, timeout_s=seconds + 60)
        assert answer["exit"] is not None, answer
        verdict = answer["exit"]
        assert isinstance(verdict, dict)
        return verdict

    def stop(self, *arguments: str) -> dict[str, Any]:
        return self.command("stop", str(self.folder), *arguments)

    def claim(self) -> dict[str, Any]:
        claim = json.loads((self.folder / "claim").read_text())
        assert isinstance(claim, dict)
        return claim

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that bear this folder's mark, or run its agent."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("GPUJOB_FOLDER") == str(self.folder)
                ours = str(self.folder) in " ".join(process.cmdline())
                if (marked or ours) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def until(self, text: str, seconds: float = 30) -> None:
        """Wait until train.log holds `text`."""
        end = time.monotonic() + seconds
        log = self.folder / "train.log"
        while time.monotonic() < end:
            if log.exists() and text in log.read_text(errors="replace"):
                return
            time.sleep(0.02)
        raise AssertionError(f"{text!r} never came")

    def clear(self) -> None:
        """Kill whatever is left; for fixtures."""
        for process in self.processes():
            os.kill(process.pid, signal.SIGKILL)
