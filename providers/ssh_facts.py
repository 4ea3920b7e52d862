"""A record of a machine rented by hand, and what follows from it: offer, target, instance."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from providers import ssh_wire
from providers.base import (
    BY_HAND,
    HostKey,
    Instance,
    InstanceId,
    InstanceState,
    LaunchRequest,
    Offer,
    OfferKey,
    Tier,
)
from providers.errors import InvalidRequest, Unavailable
from providers.ssh_machines import CPU, Machine

COMMAND_S = 20.0  # of a teardown_command or check_command: below one HTTP timeout
# What stands in the claim file on the machine; the rest of a record is this computer's.
CLAIMED = ("schema", "label", "owner", "created_at", "deadline_at", "price_usd_per_hour")


def offer_of(machine: Machine) -> Offer:
    """Return the machine as an offer: its whole price with VAT, in USD."""
    card = machine.price
    return Offer(
        provider=BY_HAND,
        key=OfferKey(machine.name),
        gpu=card.gpu,
        gpu_count=0 if card.gpu == CPU else machine.gpus,
        vram_gib=card.vram,
        price_usd_per_hour=card.usd_per_hour * machine.gpus,
        region=card.region,
        tier=Tier.OWN,
        billing_step_s=card.billing_step_s,
    )


def facts_of(machine: Machine, trusted: HostKey | None) -> dict[str, Any]:
    """Return all that reaching and leaving the machine takes, as a record keeps it."""
    return {
        "schema": 1,
        "machine": machine.name,
        "host": machine.host,
        "port": machine.port,
        "user": machine.user,
        "key": str(machine.key),
        "host_key": None if trusted is None else [trusted.type, trusted.base64],
        "folder": machine.folder,
        "axolotl_env": machine.axolotl_env,
        "keep_environment": machine.keep_environment,
        "teardown_command": machine.teardown_command,
        "check_command": machine.check_command,
    }


def stamp(request: LaunchRequest, now: float) -> dict[str, Any]:
    """Return what a launch adds to the record."""
    return {
        "label": request.label,
        "owner": request.owner,
        "created_at": now,
        "deadline_at": request.deadline_at,
        "price_usd_per_hour": str(request.offer.price_usd_per_hour),
    }


def place(facts: dict[str, Any]) -> tuple[str, int, str]:
    """Return host, port and user."""
    return str(facts["host"]), int(facts["port"]), str(facts["user"])


def target(machine: Machine, trusted: HostKey | None) -> ssh_wire.Target:
    """Return the way to the machine."""
    return ssh_wire.Target(machine.host, machine.port, machine.user, machine.key, trusted)


def target_of(facts: dict[str, Any]) -> ssh_wire.Target:
    """Return the way to a recorded machine; InvalidRequest while its key is not trusted."""
    if not facts.get("host_key"):
        raise InvalidRequest(f"{facts['machine']}: its host key is not trusted yet")
    return ssh_wire.Target(*place(facts), Path(facts["key"]), HostKey(*facts["host_key"]))


def instance(facts: dict[str, Any]) -> Instance:
    """Return the machine of a record as the runner sees it."""
    price = facts.get("price_usd_per_hour")
    return Instance(
        id=InstanceId(facts["label"]),
        label=facts["label"],
        state=InstanceState.READY,
        host=facts["host"],
        port=facts["port"],
        user=facts["user"],
        host_key=HostKey(*facts["host_key"]) if facts.get("host_key") else None,
        owner=facts.get("owner"),
        price_usd_per_hour=None if price is None else Decimal(price),
        created_at=facts.get("created_at"),
        deadline_at=facts.get("deadline_at"),
        workdir=facts["folder"],
        key_file=facts["key"],
        axolotl_env=facts.get("axolotl_env"),
        detail="claimed",
    )


def ending(facts: dict[str, Any]) -> Instance:
    """Return a machine that holds nothing of ours any more, and that its owner's commands end.

    Its state is not known, which counts as living.
    """
    words = "wiped; the owner's commands have not ended it yet"
    return replace(instance(facts), state=InstanceState.UNKNOWN, detail=words)


def command(facts: dict[str, Any], label: str, which: str) -> subprocess.CompletedProcess[bytes]:
    """Run one of the owner's commands on this computer; a hanging one is Unavailable."""
    environment = {
        "GPUJOB_MACHINE": str(facts["machine"]),
        "GPUJOB_MACHINE_HOST": str(facts["host"]),
        "GPUJOB_MACHINE_LABEL": label,
    }
    try:
        return subprocess.run(
            ["/bin/sh", "-c", str(facts[which])],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{which}: {type(error).__name__}") from error
