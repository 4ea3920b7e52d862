"""A probe that goes on: the whole job on the last card, judged after its first steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.states import State

if TYPE_CHECKING:
    from orchestrator.cli_probe import Probed
    from orchestrator.probe import Terms
    from orchestrator.report_live import Live


@dataclass(slots=True)
class GoOn:
    """Asked at every look at a running job; answers once: what it met, and whether it goes on.

    others: what was measured on other cards. measure: job id -> what this one has met so far.
    table: the lines that show them. went_on: the job's id once it may go on.
    """

    terms: Terms
    budget_usd: Decimal | None
    others: Sequence[Probed]
    measure: Callable[[str], Probed]
    table: Callable[[Sequence[Probed]], list[str]]
    went_on: str = ""

    def __call__(self, live: Live) -> tuple[list[str], bool] | None:
        """Return the lines and the verdict; None before the terms' steps, minutes or dollars."""
        job = live.job
        attempt = job.attempts[-1] if job.attempts else None
        if attempt is None or attempt.trainer_started_at is None or job.state is not State.RUNNING:
            return None
        minutes = (live.now - attempt.trainer_started_at) / 60
        over = minutes > self.terms.minutes or job.cost_usd > self.terms.usd
        if (attempt.step or 0) < self.terms.steps and not over:
            return None
        here = self.measure(job.id)
        if here.found.step_s is None and not over:
            return None  # its first paces are still on their way
        why_not = self._why_not(here)
        if why_not:
            return [*self.table([*self.others, here]), f"  ends here: {why_not}."], False
        self.went_on = job.id
        return [*self.table([*self.others, here]), "  goes on here, on the same machine."], True

    def _why_not(self, here: Probed) -> str:
        if here.found.step_s is None:
            return f"no step was measured in {self.terms.minutes:g} minutes or ${self.terms.usd}"
        cost, budget = here.expected_usd, self.budget_usd
        if here.offer.price_is_notional:
            budget = None
        if cost is not None and budget is not None and cost > budget:
            return f"it would cost about ${cost:.2f}, above limits.budget_usd ${budget}"
        for other in self.others:
            if other.expected_usd is not None and cost is not None and other.expected_usd < cost:
                return f"{other.offer.gpu} is cheaper to finish on"
        return ""
