"""The one pod store behind the three faces: pods, their lives, keys, money, and the state log."""

from __future__ import annotations

import copy
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from tests.cloud import bill
from tests.cloud.clock import SimClock, iso_fine
from tests.cloud.lives import Lives
from tests.cloud.pod import Pod
from tests.cloud.switches import Switches

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(slots=True)
class Settings:
    """What can be changed at run time too (`/_sim/settings`). Seconds are simulated ones."""

    key: str = "rpa_SIMULATEDACCOUNTKEY0000000000000000000000"
    read_key: str = "rpa_SIMULATEDREADONLYKEY000000000000000000000"
    pod_key: str = "full"  # what the key inside a pod may do: full, stop, denied
    pods: str = "real"  # real, or none: the API alone
    provisioning_s: float = 0.05
    pull_s: float = 0.05
    sshd_delay_s: float = 0.0
    restart_s: float = 0.5
    list_lag_s: float = 0.0  # a new pod is missing from the list, an ended one stays in it
    get_lag_s: float = 0.0  # GET and DELETE of a new pod answer 404
    billing_lag_s: float = 0.0
    billing: str = "on"  # on, off: 500
    graphql: str = "on"  # on, off: 410
    balance_usd: float = 100.0
    quota_per_minute: int = 0  # 0: no limit, no headers
    stock: str = "HIGH"
    mounts: list[str] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)

    def change(self, given: dict[str, Any]) -> None:
        """Set what `given` names; raises KeyError or ValueError."""
        for name, value in given.items():
            kind = type(getattr(self, name)) if hasattr(self, name) else None
            if kind is None:
                raise KeyError(name)
            setattr(self, name, value if kind is list else kind(value))


class StateLog:
    """One JSON object a line, in order; the ground truth that tests sum up on their own."""

    def __init__(self, file: TextIO | None, clock: SimClock) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self.lines: list[dict[str, Any]] = []

    def write(self, event: str, **facts: Any) -> None:
        with self._lock:
            line = {"at": self._clock.now(), "event": event} | facts
            self.lines.append(line)
            if self._file:
                self._file.write(json.dumps(line, default=str) + "\n")
                self._file.flush()


class World:
    """All state. Methods take the lock themselves."""

    def __init__(
        self, settings: Settings, folder: Path, clock: SimClock, log: StateLog, seed: int
    ) -> None:
        self.settings = settings
        self._first_settings = copy.deepcopy(settings)
        self.at_renewal: list[Callable[[], None]] = []  # what others forget with the world
        self.clock = clock
        self.log = log
        self.lock = threading.RLock()
        self.random = random.Random(seed)
        self.switches = Switches(lambda name, o: log.write("fault", name=name, options=o))
        self.pods: dict[str, Pod] = {}
        self.lost = Decimal(0)  # taken from the balance beside the bill
        self.api_port = 0
        self.down_until = 0.0
        self.ssh_keys: list[str] = []
        self.lives = Lives(self, folder)

    def renew(self) -> None:
        """Begin anew: no pod, no fault, the settings of the start; only time goes on."""
        for pod in self.living():
            self.lives.end(pod, "renewal")
        self.switches.clear()
        with self.lock:
            self.settings = copy.deepcopy(self._first_settings)
            self.pods.clear()
            self.lost, self.down_until = Decimal(0), 0.0
            self.ssh_keys.clear()
            for forget in self.at_renewal:
                forget()

    # ---------------------------------------------------------------- reading
    def name(self, length: int, alphabet: str = ALPHABET) -> str:
        return "".join(self.random.choice(alphabet) for _ in range(length))

    def living(self) -> list[Pod]:
        """Return the pods that exist, in the order of their making."""
        with self.lock:
            return [pod for pod in self.pods.values() if pod.ended_at is None]

    def seen(self, pod_id: str) -> Pod | None:
        """Return the pod as GET sees it: not right after its making, not after its end."""
        with self.lock:
            pod = self.pods.get(pod_id)
            if pod is None or pod.ended_at is not None or self.clock.now() < pod.appears_at:
                return None
            return pod if self.clock.now() >= pod.created_at + self.settings.get_lag_s else None

    def listed(self) -> list[Pod]:
        """Return the pods as the list shows them, late by the list's lag."""
        now, lag = self.clock.now(), self.settings.list_lag_s
        with self.lock:
            return [
                pod
                for pod in self.pods.values()
                if now >= max(pod.appears_at, pod.created_at + lag)
                and (pod.ended_at is None or (now < pod.ended_at + lag and not pod.vanished))
            ]

    def spent(self) -> Decimal:
        """Return the whole bill up to now."""
        with self.lock:
            now = self.clock.now()
            parts = [bill.total(pod.stretches, 0, now) for pod in self.pods.values()]
            return sum((gpu + disk for gpu, disk in parts), Decimal(0))

    def balance(self) -> Decimal:
        return Decimal(str(self.settings.balance_usd)) - self.lost - self.spent()

    def rate(self) -> Decimal:
        """Return USD per hour of everything that runs now."""
        return sum((pod.rate_now() for pod in self.living()), Decimal(0))

    # ---------------------------------------------------------------- money
    def charge(self, pod: Pod, gpu: Decimal, disk: Decimal) -> None:
        """Let the pod cost this much per hour from now on."""
        with self.lock:
            now = self.clock.now()
            pod.end_stretch(now)
            if gpu or disk:
                pod.stretches.append(bill.Stretch(now, None, gpu, disk))
            self.log.write(
                "rate", pod=pod.id, name=pod.name, gpu_usd_per_hour=gpu, disk_usd_per_hour=disk
            )
        self.watch_balance()

    def watch_balance(self) -> None:
        """Look again when the money will be gone; then stop or end every pod."""
        rate, left = self.rate(), self.balance()
        if left <= 0:
            self.clock.later(0, self.lives.out_of_money)
        elif rate > 0:
            self.clock.later(float(left / rate) * bill.HOUR_S + 1, self.check_balance)

    def check_balance(self) -> None:
        if self.balance() <= 0:
            self.lives.out_of_money()

    def state(self) -> dict[str, Any]:
        """Return everything that a test may ask for."""
        with self.lock:
            return {
                "now": self.clock.now(),
                "time": iso_fine(self.clock.now()),
                "spent_usd": str(self.spent()),
                "balance_usd": str(self.balance()),
                "armed": self.switches.names(),
                "pods": [pod.truth() for pod in self.pods.values()],
            }
