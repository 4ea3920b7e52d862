"""What a person reads about machines that only they can end: views in, lines out."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.plain import harmless
from orchestrator.report_text import Screen, moment, money, wrap
from orchestrator.states import Teardown
from orchestrator.views import AttemptView, JobView
from providers.base import BY_HAND


def yours_lines(jobs: Iterable[JobView], now: float, screen: Screen) -> list[str]:
    """Return the reminder of every machine that waits for its owner to end it; empty otherwise."""
    lines: list[str] = []
    for job in jobs:
        for attempt in job.attempts:
            if attempt.teardown is Teardown.YOURS_TO_CLOSE:
                lines += _block(job, attempt, now, screen)
    return lines


def _block(job: JobView, attempt: AttemptView, now: float, screen: Screen) -> list[str]:
    head = (
        f"YOURS TO CLOSE   {harmless(job.name)} #{job.id}   {harmless(attempt.host or '-')}   "
        f"{money(attempt.price_usd_per_hour)}/h   since {moment(attempt.launched_at, now)}, "
        f"{money(attempt.cost_usd)} so far"
    )
    text = (
        "You rented it, and only you can end it: it costs on until then. End it where you rented "
        f"it, then: gpujob closed {job.id}"
    )
    return [
        *(screen.accent(line) for line in wrap(head, screen.width)),
        *wrap(text, screen.width, "  "),
    ]


def by_hand_words(job: JobView, attempt: AttemptView) -> str:
    """Return how a machine that still bills is ended from outside."""
    if attempt.provider == BY_HAND:
        return f"End it where you rented it, then: gpujob closed {job.id}"
    return (
        f"Or end it by hand at {attempt.provider}: the machine named {attempt.label}; "
        "that is then noticed by itself."
    )


def deadline_words(attempt: AttemptView, now: float) -> str:
    """Return who ends what at the deadline."""
    when = moment(attempt.deadline_at, now)
    if attempt.provider == BY_HAND:
        return f"the training ends {when} at the latest; the machine is yours to end"
    return f"the machine ends itself {when} at the latest"
