"""What a site is made from: one attempt's machine, and how to reach it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.base import HostKey


@dataclass(frozen=True, slots=True)
class SiteOrder:
    """host_key None: nobody could vouch for one (trust on first use). spec: the job file, checked.

    claim_token: the agent serves one token only; the same after every restart of ours, so that a
    second start finds the first, and another attempt's is refused. checkpoints: the folder whose
    newest whole checkpoint the training goes on from; None: it begins anew.
    """

    job_id: str
    attempt: int
    label: str
    spec: dict[str, Any]
    host: str
    port: int
    user: str
    host_key: HostKey | None
    workdir: str | None
    deadline_at: float
    claim_token: str
    self_destruct: str | None
    provider: str
    remote: bool
    key_file: str | None = None  # None: the job's own key
    axolotl_env: str | None = None  # on the instance
    checkpoints: Path | None = None
    gpu: str = "CPU"  # of the offer: how the job is shared out depends on the card
    gpus: int = 0  # rented ones, and their memory as sold: checked on arrival; 0: nothing to check
    vram_gib: float = 0.0
    keep_checkpoints: int = 0
    lease_s: float = 0.0  # of the machine; renewed while a process of ours is connected
    keep_on_failure_s: float = 0.0
