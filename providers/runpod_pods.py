"""Pods as documents: what a create call sends, and what an answer says of a machine. Pure.

A pod's environment carries our stamps: label, owner, deadline, quoted price, working folder. They
come back with every read, so that any machine with the account knows whose a pod is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any

from providers.base import Instance, InstanceId, InstanceState, LaunchRequest
from providers.errors import InvalidRequest, Unavailable
from providers.runpod_images import DEFAULT_IMAGE, Image, image_facts
from providers.runpod_offers import (
    ANYWHERE,
    CLOUDS,
    CONTAINER_GIB,
    LEAST_VOLUME_GIB,
    STORAGE_USD_PER_GIB_HOUR,
    Candidate,
    money,
)

STAMP = "GPUJOB_POD_"  # the names of our stamps begin so
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
SSH_PORT = "22/tcp"
DEFAULT_DISK_GIB = 60  # 8.5 built environment, a 7B model of 15, its adapter, prepared data, spare

STATES = {
    "PROVISIONING": InstanceState.STARTING,
    "STARTING": InstanceState.STARTING,
    "RUNNING": InstanceState.READY,
    "EXITED": InstanceState.STOPPED,  # its volume is billed, at twice the rate
    "ERROR": InstanceState.STOPPED,  # unrecoverable, and not ended
    "TERMINATED": InstanceState.GONE,
}


def facts_of(request: LaunchRequest) -> Image:
    """Return the image's row for a request."""
    return image_facts(None if request.template else request.image or DEFAULT_IMAGE)


def create_body(
    request: LaunchRequest, candidate: Candidate, *, args: str, env: Mapping[str, str]
) -> dict[str, Any]:
    """Return the create call's document.

    args: the start argument. env: what the start argument reads beside the stamps. Raises
    InvalidRequest for a label that could not be found again.
    """
    if LABEL.fullmatch(request.label) is None:
        raise InvalidRequest(f"launch: {request.label[:120]!r} is no label")
    facts = facts_of(request)
    container, volume = disks(request.disk_gib)
    body: dict[str, Any] = {
        "name": request.label,
        "cloud": CLOUDS[candidate.tier],
        "gpu": {
            "id": candidate.gpu_id,
            "count": candidate.count,
            "minCudaVersion": facts.cuda_floor,
        },
        "disk": container,
        "mounts": {"persistent": {"size": volume, "path": facts.mount}},
        "ports": [SSH_PORT],
        "args": args,
        "env": {**request.env, **env, **stamps(request)},
    }
    if request.template:
        body["templateId"] = request.template
    if request.image or not request.template:
        body["image"] = request.image or DEFAULT_IMAGE
    if candidate.data_center != ANYWHERE:
        body["dataCenterIds"] = [candidate.data_center]
    return body


def disks(disk_gib: int) -> tuple[int, int]:
    """Return the GB of container and volume whose sum is what was asked for."""
    total = max(disk_gib or DEFAULT_DISK_GIB, CONTAINER_GIB + LEAST_VOLUME_GIB)
    return CONTAINER_GIB, total - CONTAINER_GIB


def stamps(request: LaunchRequest) -> dict[str, str]:
    """Return what a pod says of itself. No secret: any key with read scope sees it."""
    return {
        f"{STAMP}LABEL": request.label,
        f"{STAMP}OWNER": request.owner,
        f"{STAMP}DEADLINE_AT": repr(float(request.deadline_at)),
        f"{STAMP}PRICE": str(request.offer.price_usd_per_hour),
        f"{STAMP}WORKDIR": facts_of(request).workdir,
    }


def instance_of(pod: Mapping[str, Any], verb: str) -> Instance:
    """Return the machine that a pod's document describes; raises Unavailable for a broken one."""
    pod_id, name, status = pod.get("id"), pod.get("name"), pod.get("status")
    if not isinstance(pod_id, str) or not pod_id or not isinstance(name, str):
        raise Unavailable(f"{verb}: a pod without id or name")
    word = status if isinstance(status, str) else ""
    state = STATES.get(word, InstanceState.UNKNOWN)
    stamped = _stamped(pod)
    direct = _direct(pod) if state is InstanceState.READY else None
    if state is InstanceState.READY and direct is None:
        state = InstanceState.STARTING
    host, port, user = direct or (None, None, None)
    disk_gib = _disk_gib(pod)
    return Instance(
        id=InstanceId(pod_id),
        label=name,
        state=state,
        host=host,
        port=port,
        user=user,
        owner=stamped.get("OWNER"),
        price_usd_per_hour=price_of(pod, stamped.get("PRICE")),
        quoted_usd_per_hour=_decimal(stamped.get("PRICE")),
        disk_gib=disk_gib,
        storage_usd_per_gib_hour=STORAGE_USD_PER_GIB_HOUR if disk_gib else Decimal(0),
        created_at=_moment(pod.get("createdAt")),
        deadline_at=_float(stamped.get("DEADLINE_AT")),
        workdir=stamped.get("WORKDIR"),
        detail=word or "no status",
    )


def price_of(pod: Mapping[str, Any], quoted: str | None) -> Decimal | None:
    """Return USD per hour for the machine; None where the pod shows none, as when it is stopped.

    A figure that exceeds the quote by no more than the disks' own price is the quote: whether the
    service counts them in is not documented, and the ledger has them on a line of their own.
    """
    cost = money(pod.get("cost"))
    if cost is None or cost <= 0:
        return None
    agreed = _decimal(quoted)
    if agreed is None or cost <= agreed:
        return cost
    disks_usd = (STORAGE_USD_PER_GIB_HOUR * _disk_gib(pod)).quantize(Decimal("0.01"), ROUND_UP)
    return agreed if cost <= agreed + disks_usd else cost


def _disk_gib(pod: Mapping[str, Any]) -> int:
    """Return the GB of the container's disk and the volume, as far as the document tells them."""
    mounts = pod.get("mounts")
    persistent = mounts.get("persistent") if isinstance(mounts, dict) else None
    sizes = [pod.get("disk"), persistent.get("size") if isinstance(persistent, dict) else None]
    return sum(size for size in sizes if isinstance(size, int))


def started_at(pod: Mapping[str, Any]) -> str:
    """Return when the container last started, as the service words it; "" where it has not."""
    value = pod.get("startedAt")
    return value if isinstance(value, str) else ""


def _stamped(pod: Mapping[str, Any]) -> dict[str, str]:
    env = pod.get("env")
    if not isinstance(env, dict):
        return {}
    return {
        name.removeprefix(STAMP): value
        for name, value in env.items()
        if name.startswith(STAMP) and isinstance(value, str)
    }


def _direct(pod: Mapping[str, Any]) -> tuple[str, int, str] | None:
    """Return host, port and user of the published SSH port; the proxy carries no files."""
    ssh = pod.get("ssh")
    direct = ssh.get("direct") if isinstance(ssh, dict) else None
    if not isinstance(direct, dict):
        return None
    host, port, user = direct.get("host"), direct.get("port"), direct.get("username")
    if not isinstance(host, str) or not host or not isinstance(port, int) or port < 1:
        return None
    return host, port, user if isinstance(user, str) and user else "root"


def _moment(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def _float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _decimal(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except ArithmeticError:
        return None
