"""The limits in force of a job, for a person and for a program: what ends it, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.report_text import exact_money, money

if TYPE_CHECKING:
    from jobs.spec import JobSpec
    from orchestrator.submit import Plan
    from orchestrator.watchdog import Watch


def limit_words(planned: Plan) -> str:
    """Return "idle 30 min, stalled 30 min, ..., at 24 h, no login in 10 min, $8.00 spent"."""
    from orchestrator.watchdog import words

    limits, boot = planned.spec.limits, boot_minutes(planned)
    parts = [words(_watch(planned.spec), hours=limits.hours)]
    if boot is not None:
        parts.append(f"no login in {boot:g} min")
    spent = limits.budget_usd
    parts.append("no budget set" if spent is None else f"{money(spent)} spent")
    return ", ".join(parts)


def limit_document(planned: Plan) -> dict[str, Any]:
    """Return the limits in force; null: the end of `hours` comes first, or none is set."""
    limits, watch = planned.spec.limits, _watch(planned.spec)
    return {
        "idle_minutes": None if watch.idle_s is None else watch.idle_s / 60,
        "stall_minutes": None if watch.stall_s is None else watch.stall_s / 60,
        "hours": limits.hours,
        "boot_minutes": boot_minutes(planned),
        "budget_usd": None if limits.budget_usd is None else exact_money(limits.budget_usd),
    }


def boot_minutes(planned: Plan) -> float | None:
    """Return the longest wait for a first login: the job's, else that of the best offer's place."""
    asked = planned.spec.limits.boot_minutes
    if asked is not None:
        return asked
    return None if planned.boot_s is None else planned.boot_s / 60


def _watch(spec: JobSpec) -> Watch:
    from orchestrator.watchdog import limits_of

    names = ("hours", "idle_minutes", "stall_minutes")
    return limits_of({"limits": {name: getattr(spec.limits, name, None) for name in names}})
