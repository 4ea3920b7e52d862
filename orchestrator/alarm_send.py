"""The ways to a person: a command of theirs, and a webhook. Each is tried; one of them is enough.

Nothing secret goes out: the message holds what `ps` shows, and the command does not get the
variables that hold keys.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from orchestrator.alarm_matters import Matter
from orchestrator.clock import Clock
from orchestrator.redact import NAMES, redact

COMMAND_S = 30.0
WEBHOOK_S = 10.0  # one try
TRIES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 4.0
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a retry may help


class NotSent(Exception):  # noqa: N818 - the participle is the condition
    """A message did not get through; the text says why, without address or secret."""


class _Passing(Exception):  # noqa: N818
    """The same, and a retry may help."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Where alarms go; all empty: nobody hears them."""

    command: str | None = None
    webhook: str | None = None
    secret: str | None = None

    @property
    def any(self) -> bool:
        """Return whether somebody would hear."""
        return bool(self.command or self.webhook)


def message(matter: Matter) -> dict[str, Any]:
    """Return what is sent. `id` is the same for the same matter, however often it comes."""
    return {
        "schema": 1,
        "id": hashlib.sha256(matter.key.encode()).hexdigest()[:16],
        "kind": matter.kind,
        "job": matter.job_id,
        "at_unix_s": matter.at,
        "text": redact(matter.text),
    }


def send(matter: Matter, channels: Channels, clock: Clock) -> None:
    """Send by every channel; raises NotSent where none of them took it."""
    body = message(matter)
    errors = []
    taken = False
    for name, way in (("command", _command), ("webhook", _webhook)):
        if not getattr(channels, name):
            continue
        try:
            way(body, channels, clock)
            taken = True
        except NotSent as error:
            errors.append(f"{name}: {error}")
    if not taken:
        raise NotSent("; ".join(errors) or "no channel is set up")


def environment_for(body: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the command's environment: ours without secrets, and the message's fields."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.upper().startswith("GPUJOB_ALARM_") and not NAMES.search(name.upper())
        and redact(value) == value
    }  # fmt: skip
    said = {
        f"GPUJOB_ALARM_{name.upper()}": str(body[name]) for name in ("kind", "job", "text", "id")
    }
    return {**kept, **said}


def _command(body: Mapping[str, Any], channels: Channels, _clock: Clock) -> None:
    """Run the person's command in a shell, the message on stdin; its exit status is the answer."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", channels.command or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment_for(body, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise NotSent(str(error.strerror)) from error
    try:
        _, said = process.communicate(json.dumps(body).encode(), timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise NotSent(f"still running after {COMMAND_S:.0f} s, ended") from None
    if process.returncode != 0:
        words = redact(said.decode("utf-8", "replace").strip())[-200:]
        raise NotSent(f"exit status {process.returncode}  {words}".rstrip())


def signature(secret: str, at: int, body: bytes) -> str:
    """Return "t=1800000000,v1=<hex>": HMAC-SHA256 of "<t>.<body>" by the shared secret."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _webhook(body: Mapping[str, Any], channels: Channels, clock: Clock) -> None:
    """POST the message, a few times if need be; any answer of 2xx is taken."""
    from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt
    from tenacity.wait import wait_exponential

    retrying = Retrying(
        stop=stop_after_attempt(TRIES),
        wait=wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
        retry=retry_if_exception_type(_Passing),
        sleep=clock.sleep,
    )
    data = json.dumps(body).encode()
    try:
        retrying(_post, data, channels, int(clock.now()))
    except RetryError as error:
        raise NotSent(str(error.last_attempt.exception())) from None


def _post(data: bytes, channels: Channels, at: int) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "gpujob"}
    if channels.secret:
        headers["X-Gpujob-Signature"] = signature(channels.secret, at, data)
    url = channels.webhook or ""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise NotSent("GPUJOB_ALARM_WEBHOOK is no http or https address")
    request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310 - just checked
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=WEBHOOK_S):
            return
    except urllib.error.HTTPError as error:
        error.close()
        words = f"it answered {error.code}"
        raise (_Passing if error.code in PASSING else NotSent)(words) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise _Passing(redact(str(reason).replace(url, "***"))[:200]) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A message that is signed for one address is not carried to another."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request: the answer of 3xx is the error."""
        return
