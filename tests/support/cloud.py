"""The simulated RunPod for tests: start it, steer it, and read the truth from its state log."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
KEY = "rpa_SIMULATEDACCOUNTKEY0000000000000000000000"
READ_KEY = "rpa_SIMULATEDREADONLYKEY000000000000000000000"


class Cloud:
    """A running simulator: `url` is its base, `key` the account's key."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log
        self.key = KEY

    # ---------------------------------------------------------------- steering
    def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        status, found, _ = self.call(method, f"/_sim/{path}", body)
        assert status == 200, found
        return found

    def fault(self, name: str, **options: Any) -> None:
        """Arm a fault of tests/cloud/switches.py; `times=0` for ever."""
        self.control("POST", "faults", {"name": name} | options)

    def calm(self) -> None:
        """Disarm everything."""
        self.control("DELETE", "faults")

    def renew(self) -> None:
        """Begin anew, as if just started; only the clock and the log go on."""
        self.control("POST", "renew")

    def hurt(self, pod_id: str, name: str, **options: Any) -> None:
        """Let a `run_` fault befall a pod (`*`: every one), now."""
        self.control("POST", f"pods/{pod_id}/{name}", options)

    def set(self, **settings: Any) -> None:
        self.control("POST", "settings", settings)

    def jump(self, seconds: float) -> None:
        self.control("POST", "clock", {"jump_s": seconds})

    def foreign(self, name: str = "somebody-elses", **asked: Any) -> str:
        """Make a pod that is not ours; return its id."""
        gpu = {"gpu": {"id": "NVIDIA L4"}, "image": "ubuntu:24.04", "name": name}
        return cast("str", self.control("POST", "pods", gpu | asked)["id"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    # ---------------------------------------------------------------- the API
    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = KEY,
        timeout: float = 30, headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:  # fmt: skip
        """Return status, body (JSON where it is some) and headers of one request."""
        request = urllib.request.Request(self.url + path, method=method)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                raw, status, found = answer.read(), answer.status, dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                raw, status, found = error.read(), error.code, dict(error.headers)
        try:
            return status, json.loads(raw) if raw else None, found
        except ValueError:
            return status, raw, found

    # ---------------------------------------------------------------- the truth
    def state(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.control("GET", "state"))

    def pods(self, *, living: bool = True) -> list[dict[str, Any]]:
        """Return the pods as they truly are: those that exist, or all there ever were."""
        return [pod for pod in self.state()["pods"] if pod["living"] or not living]

    def pod(self, pod_id: str) -> dict[str, Any]:
        return next(pod for pod in self.pods(living=False) if pod["id"] == pod_id)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the state log's lines, of one kind of event where it is named."""
        text = self.log.read_text().splitlines()
        found = [json.loads(line) for line in text]
        return [line for line in found if event in (None, line["event"])]

    def requests(self, call: str | None = None) -> list[dict[str, Any]]:
        return [line for line in self.lines("request") if call in (None, line["call"])]

    def bill(self, until: float | None = None) -> Decimal:
        """Return USD over all pods, summed here from the log's price lines."""
        now = self.state()["now"] if until is None else until
        rates: dict[str, list[tuple[float, Decimal]]] = {}
        for line in self.lines("rate"):
            price = Decimal(line["gpu_usd_per_hour"]) + Decimal(line["disk_usd_per_hour"])
            rates.setdefault(line["pod"], []).append((line["at"], price))
        total = Decimal(0)
        for changes in rates.values():
            for (start, price), (end, _) in zip(changes, [*changes[1:], (now, 0)], strict=True):
                total += price * math.ceil(max(0, end - start)) / 3600
        return total

    def billed_seconds(self, since: float) -> float:
        """Return pod-seconds billed after that moment, up to now or each pod's end."""
        now = float(self.state()["now"])
        return sum(
            max(0.0, float(pod["ended_at"] or now) - max(since, float(pod["created_at"])))
            for pod in self.pods(living=False)
        )

    def wait(
        self, check: Callable[[], Any], what: str, patience_s: float = PATIENCE_S,
        *, pause_s: float = 0.02,
    ) -> Any:  # fmt: skip
        """Return the first true answer of `check`; fails with `what` when it never comes."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(pause_s)
        raise AssertionError(f"never came: {what}; {self.state()}")


@contextlib.contextmanager
def cloud(folder: Path, *flags: str, **settings: Any) -> Iterator[Cloud]:
    """Start a simulator with its log in `folder`; everything of it is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "cloud.jsonl"
    named = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    with (folder / "cloud.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cloud", "--log", str(log), *named, *flags],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http"), (folder / "cloud.err").read_text()
        yield Cloud(process, url, log)
        assert not [line for line in (folder / "cloud.err").read_text().splitlines() if line], (
            folder / "cloud.err"
        ).read_text()
    finally:
        process.kill()
        process.wait(30)
        if process.stdout:
            process.stdout.close()


def axolotl_mounts(environment: Path) -> list[str]:
    """Return the flags by which pods see a virtual environment and the Python it stands on."""
    python = (environment / "bin" / "python").resolve()
    places = {environment.resolve(), python.parents[1]} - {Path("/usr")}
    return [f"--mount={place}" for place in sorted(places)]
