"""Where the job's checkpoints lie in a store, and how they are sent there and found again there.

Part of the composition root. The store is asked by a process of its own, which alone has the key.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jobs.spec import JobSpec
    from orchestrator.artifacts.bucket_process import BucketProcess
    from orchestrator.clock import Clock
    from orchestrator.home import Home
    from orchestrator.plan import NewJob
    from orchestrator.rescued import Rescue
    from orchestrator.shipping import Fetching, Shipping
    from orchestrator.site_order import SiteOrder

FETCH_S = 24 * 3600.0  # a full fine-tune's checkpoint, by hand and watched
SET_S = 60.0
LONGEST_S = 7 * 24 * 3600.0  # a presigned URL's life, by S3's rule

log = logging.getLogger("gpujob.checkpoints")


def shelf_of(name: str, job_id: str) -> str:
    """Return the name below the target that is this job's alone."""
    return f"{name}-{job_id}"


def shipping_of(order: SiteOrder, spec: JobSpec, clock: Clock) -> Shipping | None:
    """Return what takes the checkpoints to the job's store; None where they come home."""
    from orchestrator.shipping import ASK_S, Shipping

    place, rate = spec.checkpoints.target, spec.checkpoints.upload_mb_per_s
    if place is None:
        return None
    shelf = shelf_of(spec.name, order.job_id)
    return Shipping(
        ask=lambda do, **more: _start(place, shelf, do, **more).wait(ASK_S),
        clock=clock,
        adapter=spec.method != "full",
        keep_newest=order.keep_checkpoints,
        deadline_at=order.deadline_at,
        bytes_per_s=None if rate is None else rate * 1e6,
    )


def rescue_set(
    order: SiteOrder, spec: JobSpec, clock: Clock, after_s: float
) -> Callable[[], bytes] | None:
    """Return what makes rescue.json: URLs for a machine that is left alone; None without a store.

    A machine that is kept for a look after a failure is left in peace for that long.
    """
    place = spec.checkpoints.target
    if place is None:
        return None

    def made() -> bytes:
        from orchestrator.artifacts.push import PushFault
        from orchestrator.site import SiteError

        url_s = order.deadline_at - clock.now()
        shelf, number = shelf_of(spec.name, order.job_id), order.attempt
        try:
            answer = _start(place, shelf, "rescue set", attempt=number, url_s=url_s).wait(SET_S)
        except (PushFault, OSError) as fault:
            raise SiteError(f"no rescue set: {fault}") from fault
        return json.dumps({"after_s": max(after_s, order.keep_on_failure_s), **answer}).encode()

    return made


def rescue_of(order: SiteOrder, spec: JobSpec, home: Home) -> Rescue | None:
    """Return where the attempt's machine would deliver by itself; None without a store."""
    from orchestrator.rescued import Rescue

    place = spec.checkpoints.target
    if place is None:
        return None
    shelf, number = shelf_of(spec.name, order.job_id), order.attempt

    def fetch(folder: Path) -> dict[str, Any]:
        more = {"attempt": number, "folder": str(folder), "adapter": spec.method != "full"}
        return _start(place, shelf, "rescued", **more).wait(FETCH_S)

    return Rescue(
        fetch,
        home.job_folder(order.job_id) / f"rescue-{number}",
        home.checkpoints(order.job_id),
        order.claim_token,
    )


def fetching_of(order: SiteOrder, spec: JobSpec) -> Fetching | None:
    """Return what brings the newest checkpoint here for a further attempt; None: none can be."""
    from orchestrator.shipping import Fetching

    place, folder = spec.checkpoints.target, order.checkpoints
    if place is None or folder is None or order.attempt == 1:
        return None
    adapter, shelf = spec.method != "full", shelf_of(spec.name, order.job_id)
    return Fetching(
        lambda: _start(place, shelf, "fetch", folder=str(folder), adapter=adapter), log.warning
    )


def fetch_for_resume(new: NewJob, spec: JobSpec, folder: Path) -> tuple[str, ...]:
    """Bring the newest checkpoint of a closed job here; returns what was passed over.

    Raises Refused where the store can't be asked: to begin anew is not what was asked for.
    """
    from orchestrator.artifacts.push import PushFault

    if spec.checkpoints.target is None:
        return ()
    shelf, adapter = shelf_of(new.name, new.id), spec.method != "full"
    try:
        process = _start(
            spec.checkpoints.target, shelf, "fetch", folder=str(folder), adapter=adapter
        )
        return tuple(process.wait(FETCH_S)["passed_over"])
    except PushFault as fault:
        raise Refused(f"checkpoints.target: {fault}", remedy=fault.remedy) from fault


def checkpoints_at(new: NewJob, timeout_s: float) -> list[dict[str, Any]]:
    """Return the whole checkpoints at the job's target, oldest first; [] where it has none.

    Raises Refused where the store can't be asked.
    """
    from orchestrator.artifacts.push import PushFault

    place = new.spec.get("checkpoints", {}).get("target")
    if not place:
        return []
    try:
        answer = _start(place, shelf_of(new.name, new.id), "list").wait(timeout_s)
    except PushFault as fault:
        raise Refused(f"checkpoints.target: {fault}", remedy=fault.remedy) from fault
    return list(answer["checkpoints"])


def check_token(spec: JobSpec) -> None:
    """Raise Refused where a gated model is named and no token is set here."""
    from orchestrator.hub_token import HubTokens

    if spec.gated and spec.model_folder is None and HubTokens().for_the_model is None:
        raise Refused(
            f"gated: {spec.model} needs a token, and none is set",
            remedy="Set GPUJOB_MODEL_TOKEN (or HF_TOKEN) to one that may read it.",
        )


def check_target(spec: JobSpec, timeout_s: float) -> None:
    """Raise Refused where the machine could not send its checkpoints until the job's deadline."""
    from orchestrator.artifacts.push import PushFault

    place, lasts_s = spec.checkpoints.target, float(spec.limits.hours) * 3600
    if place is None:
        return
    if lasts_s > LONGEST_S:
        raise Refused(
            f"checkpoints.target: limits.hours is {spec.limits.hours:g}; a store's URLs live "
            f"{LONGEST_S / 3600:g} hours at most",
            remedy=f"Set limits.hours to {LONGEST_S / 3600:g} or less, or leave the target out.",
        )
    try:
        answer = _start(place, shelf_of(spec.name, "check"), "check", url_s=lasts_s).wait(timeout_s)
    except PushFault as fault:
        raise Refused(f"checkpoints.target: {fault}", remedy=fault.remedy) from fault
    ends_in_s = answer["ends_in_s"]
    if ends_in_s is not None and ends_in_s < lasts_s:
        raise Refused(
            f"checkpoints.target: the store's credentials end in {ends_in_s / 3600:.1f} hours, "
            f"limits.hours is {spec.limits.hours:g}; the URLs would end with them",
            remedy="Renew the credentials, set limits.hours lower, or take a key without an end.",
        )


def _start(place: str, shelf: str, do: str, **more: Any) -> BucketProcess:
    from orchestrator.artifacts.bucket_process import start

    return start(place, shelf, do, **more)
