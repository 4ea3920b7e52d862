"""The shape of a base model that no table has: its `config.json`, fetched once from the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.exits import Refused

if TYPE_CHECKING:
    from orchestrator.submit import Plan

CONFIGS = "configs"  # below the home


def fetch(model: str, root: Path) -> str:
    """Fetch a hub model's `config.json` where the table lacks it; return why it can't be had.

    "" where it is known or came. At most one call; none with HF_HUB_OFFLINE.
    """
    from jobs.architectures import ArchitectureError, find
    from jobs.spec import HUB_ID
    from orchestrator.data_hub import HubError, model_config

    try:
        find(model)
    except ArchitectureError:
        if not HUB_ID.fullmatch(model) or "/" not in model:
            return ""
        if os.environ.get("HF_HUB_OFFLINE", "") not in {"", "0"}:
            return "HF_HUB_OFFLINE is set"
        try:
            model_config(model, root / CONFIGS)
        except HubError as error:
            return str(error)
    return ""


def refuse_unsized(planned: Plan, hub: str) -> None:
    """Raise Refused, exit code 2, where nobody knows what the job needs, or its settings clash.

    Where the model is unknown, a person who names cards and their number decides for themselves; a
    rehearsal on a CPU needs no GPU's memory. hub: why the hub did not help.
    """
    from orchestrator.match import CPU

    need, gpu = planned.need, planned.spec.gpu
    if need is None or not need.unsized:
        return
    quotes = planned.matching.quotes
    if quotes and quotes[0].offer.gpu == CPU:
        return
    if need.contradicts:
        raise Refused(need.unsized)
    if gpu.types and gpu.count is not None:
        return
    raise Refused(
        need.unsized + (f" ({hub})" if hub else ""),
        remedy="Or choose yourself: with gpu.types and gpu.count named, nothing is sized.",
    )
