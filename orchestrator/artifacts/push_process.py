"""The parent's side of a push: its process, its environment, its answer.

The process gets this one's environment without what says secret, and of the secrets only those of
its own place. They are in no argument, no order and no answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.targets import HUB, S3
from orchestrator import codec
from orchestrator.artifacts.push import Order, Outcome
from orchestrator.redact import NAMES, NO_SECRET_NAMES, remember_secrets

STOP_S = 10.0
HUB_ITSELF = "https://huggingface.co"
_AWS = "https://s3.{}.amazonaws.com"


class PushKeys(BaseSettings):
    """Credentials of stores and hub, by the names that boto3 and huggingface_hub read."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore"
    )

    aws_access_key_id: SecretStr | None = None
    aws_secret_access_key: SecretStr | None = None
    aws_session_token: SecretStr | None = None
    aws_endpoint_url: str | None = None
    aws_endpoint_url_s3: str | None = None
    aws_region: str | None = None
    aws_default_region: str | None = None
    aws_profile: str | None = None
    hf_token: SecretStr | None = None
    hf_endpoint: str | None = None


def environment_of(target: str, environ: Mapping[str, str], keys: PushKeys) -> dict[str, str]:
    """Return the environment of a push to this place."""
    kind = "AWS_" if target.startswith(S3) else "HF_" if target.startswith(HUB) else "\0"
    made = {
        name: value
        for name, value in environ.items()
        if name in NO_SECRET_NAMES or not NAMES.search(name.upper())
    }
    for name in PushKeys.model_fields:
        value = getattr(keys, name)
        if value is not None and name.upper().startswith(kind):
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            if isinstance(value, SecretStr):
                remember_secrets([plain])
            made[name.upper()] = plain
    if kind == "AWS_" and "AWS_REGION" in made:
        made.setdefault("AWS_DEFAULT_REGION", made["AWS_REGION"])  # the one name that boto3 reads
    if kind == "HF_":
        made |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        if made.get("HF_ENDPOINT", HUB_ITSELF).rstrip("/") != HUB_ITSELF:
            made.setdefault("HF_HUB_DISABLE_XET", "1")  # its client can't fall back by itself
    root = Path(__file__).resolve().parent.parent.parent
    if "site-packages" not in root.parts:  # run from a source tree: it must be found again
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), made.get("PYTHONPATH")]))
    return made


def door(target: str, keys: PushKeys) -> tuple[str, int] | None:
    """Return host and port that a push to this place goes to; None for a folder."""
    if target.startswith(S3):
        region = keys.aws_region or keys.aws_default_region or "us-east-1"
        url = keys.aws_endpoint_url_s3 or keys.aws_endpoint_url or _AWS.format(region)
    elif target.startswith(HUB):
        url = keys.hf_endpoint or HUB_ITSELF
    else:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:  # the check from this computer says what is wrong with it
        return None
    return (parts.hostname, port) if parts.hostname else None


def start(order: Order) -> PushProcess:
    """Return the push, under way; raises OSError where no process can be made."""
    return PushProcess(order, environment_of(order.target, os.environ, PushKeys()))


class PushProcess:
    """A push under way. `poll` and `stop` belong to one thread."""

    def __init__(self, order: Order, environ: Mapping[str, str]) -> None:
        self._target = order.target
        self._answer: dict[str, Any] = {}
        self.done_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.artifacts.push_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,  # Ctrl-C is for the one who drives the job
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._stdin.write(codec.dump(order).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            pass  # it ended at once: its end says so

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def _read(self) -> None:
        for line in self._process.stdout or ():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            self.done_bytes = said.get("done", self.done_bytes)
            self._answer = said.get("outcome", self._answer)

    def poll(self) -> Outcome | None:
        """Return how it ended; None while it goes on."""
        if self._process.poll() is None:
            return None
        return self._outcome()

    def wait(self, timeout_s: float) -> Outcome:
        """Return how it ended; past the time it is ended, which is a failure that may pass."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            return Outcome.failed(self._target, f"no answer within {timeout_s:g} s", retry=True)
        return self._outcome()

    def _outcome(self) -> Outcome:
        self._reader.join(STOP_S)
        self._close()
        if self._answer:
            outcome: Outcome = codec.decode(Outcome, self._answer)
            return outcome
        said = f"the push's process ended without an answer ({self._process.returncode})"
        return Outcome.failed(self._target, said, retry=True)

    def stop(self) -> None:
        """End it; returns when the process is gone. What was sent so far is found again."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)
        self._reader.join(STOP_S)
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass
