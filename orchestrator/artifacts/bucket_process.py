"""The parent's side of `bucket_main`: its process, its environment, its answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from orchestrator.artifacts.push import PushFault
from orchestrator.artifacts.push_process import PushKeys, environment_of

STOP_S = 10.0


class BucketProcess:
    """One request under way. All its methods belong to one thread."""

    def __init__(self, request: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._target = str(request["target"])
        self._said: dict[str, Any] = {}
        self.progress = (0, 0)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.artifacts.bucket_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,  # Ctrl-C is for the one who drives the job
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it ended at once: its end says so

    def _read(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            if "done" in said:
                self.progress = (said["done"], said["total"])
            else:
                self._said = said

    def poll(self) -> dict[str, Any] | None:
        """Return the answer; None while it goes on. Raises PushFault."""
        return None if self._process.poll() is None else self._answer()

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """Return the answer; raises PushFault, also past the time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            said = f"{self._target}: no answer within {timeout_s:g} s"
            raise PushFault(said, retry=True) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        self.stop()
        if "answer" in self._said:
            return dict(self._said["answer"])
        fault = self._said.get("fault")
        if fault is None:
            said = f"{self._target}: its process ended without an answer"
            raise PushFault(said, retry=True)
        raise PushFault(fault["error"], fault["remedy"], retry=fault["retry"])

    def stop(self) -> None:
        """End it, if it has not ended, and close what is open of it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)
        self._reader.join(STOP_S)
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass


def start(target: str, subfolder: str, do: str, **more: Any) -> BucketProcess:
    """Return a request to the store, under way; raises OSError where no process can be made."""
    request = {"target": target, "subfolder": subfolder, "do": do, **more}
    return BucketProcess(request, environment_of(target, os.environ, PushKeys()))
