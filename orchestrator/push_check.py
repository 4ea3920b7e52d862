"""The places of `output`, tried before anything is launched: reachable, and ours to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.artifacts.push import Order, Outcome
from orchestrator.exits import Refused

Check = Callable[[Sequence[str], str, float], list[Outcome]]


def check_places(
    targets: Sequence[str], name: str, timeout_s: float, *, check: Check | None = None
) -> tuple[str, ...]:
    """Return what a person should know of the places; raises Refused where one is unfit.

    A bucket gets a `.gpujob-probe-...` object, deleted at once; on the hub nothing is made.
    """
    if not targets:
        return ()
    outcomes = (check or _checked)(targets, name, timeout_s)
    bad = [outcome for outcome in outcomes if outcome.error]
    if bad:
        lines = [f"output: {outcome.target}: {outcome.error}" for outcome in bad]
        remedies = dict.fromkeys(outcome.remedy for outcome in bad if outcome.remedy)
        raise Refused("\n".join(lines), remedy=". ".join(remedies))
    return tuple(note for outcome in outcomes for note in outcome.notes)


def _checked(targets: Sequence[str], name: str, timeout_s: float) -> list[Outcome]:
    """Ask all places at the same time, each from a process of its own."""
    from orchestrator.artifacts.push_process import start

    started = [start(Order(target, "000000", name, 0, "", (), "check")) for target in targets]
    try:
        return [process.wait(timeout_s) for process in started]
    finally:
        for process in started:
            process.stop()
