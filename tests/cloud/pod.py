"""One pod: what was asked, what it is now, and how the faces describe it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.cloud.bill import Stretch
from tests.cloud.clock import iso
from tests.cloud.jail import Jail
from tests.cloud.wires import Proxy

ACTIONS = {
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "ERROR": ["start", "terminate"],
    "TERMINATED": [],
}
LOG_LINES = 5000


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    at: float
    source: str
    text: str

    @property
    def id(self) -> str:
        return f"{iso(self.at)}/{self.number:012d}"


@dataclass(slots=True)
class Pod:
    id: str
    name: str
    key: str  # the pod-scoped one
    asked: dict[str, Any]  # the create request in v2's words, defaults filled in
    created_at: float
    appears_at: float
    host_id: str
    data_center: str | None
    gpu_usd_per_hour: Decimal
    disk_usd_per_hour: Decimal
    stopped_disk_usd_per_hour: Decimal
    status: str = "PROVISIONING"
    cuda: str = "13.0"
    started_at: float | None = None
    ended_at: float | None = None
    end_cause: str = ""
    vanished: bool = False
    locked: bool = False
    interruptible: bool = False
    life: int = 0  # counts starts and stops: what an older life planned is void
    boots: int = 0
    faults: dict[str, dict[str, Any]] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    jail: Jail | None = None
    doors: dict[int, Proxy] = field(default_factory=dict)
    inner: list[Proxy] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    told: threading.Condition = field(default_factory=threading.Condition)
    count: int = 0

    @property
    def living(self) -> bool:
        return self.ended_at is None

    def rate_now(self) -> Decimal:
        """Return USD per hour that it costs now."""
        if self.stretches and self.stretches[-1].end is None:
            return self.stretches[-1].gpu_usd_per_hour + self.stretches[-1].disk_usd_per_hour
        return Decimal(0)

    def end_stretch(self, now: float) -> None:
        if self.stretches and self.stretches[-1].end is None:
            last = self.stretches.pop()
            done = Stretch(last.start, now, last.gpu_usd_per_hour, last.disk_usd_per_hour)
            self.stretches.append(done)

    def say(self, at: float, source: str, text: str) -> None:
        with self.told:
            self.count += 1
            self.lines.append(Line(self.count, at, source, text))
            del self.lines[:-LOG_LINES]
            self.told.notify_all()

    @property
    def ssh_port(self) -> int | None:
        """The public port of 22/tcp, None while there is none to tell."""
        door = self.doors.get(22)
        hidden = self.status != "RUNNING" or "boot_no_direct" in self.faults
        return None if door is None or hidden else door.port

    def truth(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "living": self.living,
            "created_at": self.created_at,
            "ended_at": self.ended_at,
            "end_cause": self.end_cause,
            "boots": self.boots,
            "pid": self.jail.pid if self.jail else None,
            "port": self.ssh_port,
            "key": self.key,
            "env": self.asked["env"],
            "usd_per_hour": str(self.rate_now()),
            "faults": sorted(self.faults),
        }

    # ---------------------------------------------------------------- REST v2
    def v2(self, now: float) -> dict[str, Any]:
        """Return the pod in the words of REST v2."""
        asked = self.asked
        described = {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "actions": ACTIONS[self.status],
            "image": asked["image"],
            "args": asked["args"],
            "disk": asked["disk"],
            "mounts": asked["mounts"],
            "ports": asked["ports"],
            "env": asked["env"],
            "registry": asked.get("registry"),
            "cloud": asked["cloud"],
            "dataCenterId": self.data_center,
            "cudaVersion": self.cuda if self.started_at else None,
            "ssh": {"proxy": self._proxy(), "direct": self._direct()},
            "template": asked.get("templateId"),
            "cost": float(self.gpu_usd_per_hour) if self.status not in ("EXITED", "ERROR") else 0.0,
            "locked": self.locked,
            "globalNetworking": {"enabled": False},
            "runtime": self._runtime(now),
            "createdAt": iso(self.created_at),
            "startedAt": iso(self.started_at) if self.started_at else None,
        }
        if asked.get("gpu"):
            described["gpu"] = {"id": asked["gpu"]["id"], "count": asked["gpu"].get("count", 1)}
        return described

    def _proxy(self) -> dict[str, Any] | None:
        if self.status == "PROVISIONING":
            return None
        user = f"{self.id}-{self.host_id}"
        command = f"ssh {user}@ssh.runpod.io -i ~/.ssh/id_ed25519"
        return {"host": "ssh.runpod.io", "port": 22, "username": user, "command": command}

    def _direct(self) -> dict[str, Any] | None:
        if self.ssh_port is None:
            return None
        command = f"ssh root@127.0.0.1 -p {self.ssh_port} -i ~/.ssh/id_ed25519"
        port = self.ssh_port
        return {"host": "127.0.0.1", "port": port, "username": "root", "command": command}

    def uptime(self, now: float) -> int:
        if self.started_at is None or "boot_uptime_zero" in self.faults:
            return 0
        return int(now - self.started_at)

    def _runtime(self, now: float) -> dict[str, Any] | None:
        if self.status != "RUNNING":
            return None
        count = (self.asked.get("gpu") or {}).get("count", 1)
        return {
            "uptime": self.uptime(now),
            "gpus": [{"util": 0, "memoryUtil": 0} for _ in range(count)],
            "cpu": {"util": 0},
            "memory": {"util": 0},
            "ports": [
                {"private": p["privatePort"], "public": p["publicPort"], "type": "tcp",
                 "ip": p["ip"]}
                for p in self.ports()
                if p["isIpPublic"]
            ],
        }  # fmt: skip

    def ports(self) -> list[dict[str, Any]]:
        """Return the runtime's ports in GraphQL's words; http ports first, as a trap."""
        if self.status != "RUNNING" or "boot_no_direct" in self.faults:
            return []
        http = [int(p.split("/")[0]) for p in self.asked["ports"] if p.endswith("/http")]
        found: list[dict[str, Any]] = [
            {"ip": "100.65.0.1", "isIpPublic": False, "privatePort": port,
             "publicPort": 60000 + n, "type": "http"}
            for n, port in enumerate(http)
        ]  # fmt: skip
        return found + [
            {"ip": "127.0.0.1", "isIpPublic": True, "privatePort": port,
             "publicPort": door.port, "type": "tcp"}
            for port, door in self.doors.items()
        ]  # fmt: skip
