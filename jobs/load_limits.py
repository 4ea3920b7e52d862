"""Limits that can never fire: a person who set one believes to be guarded, and is not."""

from __future__ import annotations

from jobs.load_draft import Draft
from jobs.spec import Limits

GUARDS = ("idle_minutes", "stall_minutes", "boot_minutes")


def check_limits(draft: Draft) -> None:
    """Find guards, set by hand, that are longer than the machine may live."""
    limits = draft.values.get("limits", {})
    hours = limits.get("hours", Limits.model_fields["hours"].default)
    if not _number(hours):
        return
    for name in GUARDS:
        minutes = limits.get(name)
        if _number(minutes) and minutes >= hours * 60:
            message = f"can never fire: the machine ends after limits.hours, {hours:g}"
            draft.find(("limits", name), message, f"Give less than {hours * 60:g}, or leave it out")
            del limits[name]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
