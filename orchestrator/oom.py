"""What follows when the GPU's memory ran out: the words, and with `on_oom: adapt` one more try.

Pure. Nothing is stored for it: the second attempt's settings follow from the job file and from the
fact that one attempt before it ran out of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator import events as ev
from orchestrator.states import Reason

if TYPE_CHECKING:
    from orchestrator.attempt import Attempt
    from orchestrator.plan import NewJob
    from providers.base import Offer


def may_adapt(spec: dict[str, Any], attempts: Sequence[Attempt]) -> bool:
    """Return whether the newest attempt ran out of memory for the first time and may be mended."""
    ooms = [a.reason for a in attempts].count(Reason.OUT_OF_MEMORY)
    last = attempts[-1].reason if attempts else None
    return spec.get("on_oom") == "adapt" and last is Reason.OUT_OF_MEMORY and ooms == 1


def second_offer(new: NewJob, attempts: Sequence[Attempt]) -> Offer | None:
    """Return where to try again: the same card with less, else the next larger one; None: nowhere.

    Offers are in order of preference, so the first larger one is the best of them.
    """
    had_machine = [a for a in attempts if a.machines]
    if not may_adapt(new.spec, attempts) or len(had_machine) >= new.caps.max_machines:
        return None
    last = attempts[-1].offer
    if _adapted(new.spec) is not None:
        return last
    room = last.vram_gib
    return next((offer for offer in new.offers if offer.vram_gib > room), None)


def settings_of(spec: dict[str, Any], earlier: Sequence[Attempt]) -> tuple[dict[str, Any], str]:
    """Return the job file that holds for an attempt after these, and what was changed in it."""
    if spec.get("on_oom") != "adapt":
        return spec, ""
    if not any(a.reason is Reason.OUT_OF_MEMORY for a in earlier):
        return spec, ""
    return _adapted(spec) or (spec, "")


def with_prediction(
    event: ev.AttemptEvent, spec: dict[str, Any], attempt: Attempt, used_gib: float | None
) -> ev.AttemptEvent:
    """Return the trainer's end with what was predicted and what was met, where memory ran out."""
    if not isinstance(event, ev.TrainerExited) or event.reason is not Reason.OUT_OF_MEMORY:
        return event
    said = prediction(spec, attempt.offer)
    if used_gib is not None:
        said = f"{said}; met {used_gib:.1f} GiB before it failed" if said else ""
    return replace(event, evidence=f"{event.evidence} [{said}]") if said else event


def prediction(spec: dict[str, Any], offer: Offer) -> str:
    """Return "predicted 20.1 GiB a GPU (17.0 - 22.3), usable 23.5"; empty for an unknown model."""
    from pydantic import ValidationError

    from jobs.spec import JobSpec
    from orchestrator.planning import need_of
    from orchestrator.sized import Sized

    try:
        sized = need_of(JobSpec.model_validate(spec), with_tokens=False).requirement.sized
    except ValidationError:  # a job of another release
        return ""
    if not isinstance(sized, Sized):
        return ""
    for strategy in ("none",) if offer.gpu_count <= 1 else ("ddp", "fsdp"):
        need = sized.need(max(1, offer.gpu_count), strategy)
        usable = sized.usable_gib(offer.gpu, offer.vram_gib)
        if isinstance(need, str) or (need.vram_gib > usable and strategy == "ddp"):
            continue
        found = need.footprint
        return (
            f"predicted {found.device_gib:.1f} GiB a GPU ({found.low_gib:.1f} - "
            f"{found.high_gib:.1f}), usable {usable:.1f}"
        )
    return ""


def _adapted(spec: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    from pydantic import ValidationError

    from jobs.adapt import adapted
    from jobs.spec import JobSpec

    try:
        found = adapted(JobSpec.model_validate(spec))
    except ValidationError:
        return None
    return None if found is None else (found[0].model_dump(mode="json"), found[1])
