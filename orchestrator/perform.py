"""What the runner does when `decide` asks: here the provider's part, the instance's beside it.

Provider calls that change something follow one pattern: commit the intent, check the lease, call
once, commit what it answered. Nothing is retried here; `decide` sees what happened and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from orchestrator import events as ev
from orchestrator import points
from orchestrator.actions import Action, Describe, Find, Launch, Terminate
from orchestrator.by_hand import note_handed_on
from orchestrator.case import Case
from orchestrator.decide import machine_seen
from orchestrator.hands import Hands
from orchestrator.observation import Described, Listing
from orchestrator.perform_site import ON_SITE
from orchestrator.policy import Then, on_launch_error
from orchestrator.reads import Listed
from orchestrator.redact import told
from orchestrator.store_engine import StoreError
from orchestrator.store_journal import LeaseLost
from providers.base import ByHand, LaunchRequest
from providers.errors import AuthFailed, InvalidRequest, NotFound, QuotaExceeded, RateLimited

LEAST_RETRY_S = 1.0
DEFINITE = (AuthFailed, QuotaExceeded, InvalidRequest)  # will not pass by themselves


def perform(action: Action, case: Case, hands: Hands) -> None:
    """Do one action; its outcome is in the case's attempt or observation afterwards."""
    _DO[type(action)](action, case, hands)


def _find(action: Find, case: Case, hands: Hands) -> None:
    answer = hands.reads.find(action.newer_than)
    if isinstance(answer, Listed):
        take_listing(case, answer)
    else:
        case.seen.find_after = answer.until


def take_listing(case: Case, listed: Listed | None) -> None:
    """Give the case what a listing shows of its attempt, if it is newer than what it has."""
    before = case.seen.listing
    if listed is None or (before is not None and before.at >= listed.at):
        return
    known = {m.id for m in case.attempt.machines}
    ours = tuple(m for m in listed.machines if m.label == case.attempt.label or m.id in known)
    case.seen.listing = Listing(listed.at, ours)


def _describe(action: Describe, case: Case, hands: Hands) -> None:
    answer = hands.reads.describe(action.instance_id)
    if isinstance(answer, Described):
        case.seen.described[action.instance_id] = answer
    else:
        case.seen.describe_after = answer.until


def _launch(_: Launch, case: Case, hands: Hands) -> None:
    runner, attempt = hands.runner, case.attempt
    now = runner.clock.now
    spec = hands.record.new.launch
    request = LaunchRequest(
        label=attempt.label,
        owner=runner.owner,
        offer=attempt.offer,
        public_key=spec.public_key,
        deadline_at=attempt.deadline_at,
        budget_usd=hands.left_usd,
        image=spec.image,
        template=spec.template,
        disk_gib=spec.disk_gib,
        start_script=spec.start_script,
        env=spec.env,
        lease_s=spec.lease_s,
    )
    asked = ev.LaunchAsked(now())
    if runner.rules.intent_before_launch:
        hands.commit(asked)
    hands.check_lease()
    outcome: tuple[ev.AttemptEvent, ...]
    try:
        points.reach("provider.before:launch")
        instance = hands.provider.launch(request)
        points.reach("provider.after:launch")
    except Exception as error:  # noqa: BLE001 - whatever it is, a machine may exist now
        outcome = (_launch_failed(error, now(), hands),)
    else:
        outcome = (machine_seen(now(), instance, "answered"), ev.Launched(now(), instance.id))
        case.seen.described[instance.id] = Described(asked.at, instance)
        case.seen.known_fresh = True
    if not runner.rules.intent_before_launch:
        outcome = (asked, *outcome)
    hands.commit(*outcome)
    if isinstance(hands.provider, ByHand):
        with suppress(StoreError):  # another job's journal: the next sweep tries again
            note_handed_on(runner)


def _launch_failed(error: Exception, now: float, hands: Hands) -> ev.AttemptEvent:
    said = told(error)
    row = on_launch_error(error)
    if row.then in {Then.NEXT_OFFER, Then.END_JOB}:
        return ev.Refused(now, row.reason, said)
    if row.then is Then.WAIT:
        wait_s = error.retry_after_s if isinstance(error, RateLimited) else LEAST_RETRY_S
        return ev.LaunchDelayed(now, said, now + max(wait_s, LEAST_RETRY_S))
    if not hands.runner.rules.settle_unclear_launch:
        return ev.LaunchDelayed(now, said, now + LEAST_RETRY_S)
    return ev.LaunchUnclear(now, said)


def _terminate(action: Terminate, _: Case, hands: Hands) -> None:
    now = hands.runner.clock.now
    machine_id = action.instance_id
    unwritten: StoreError | None = None
    try:
        hands.commit(ev.TerminateAsked(now(), machine_id))
        hands.check_lease()
    except LeaseLost:
        raise
    except StoreError as error:
        # A full disk must not keep the machine billing. It is on record that it shall end, nothing
        # leads back from that, and the call may be made twice: it is right without the intent.
        unwritten = error
    outcome: ev.AttemptEvent
    try:
        points.reach("provider.before:terminate")
        hands.provider.terminate(machine_id)
        points.reach("provider.after:terminate")
    except NotFound:  # absent is success; the reads will prove it
        outcome = ev.TerminateAccepted(now(), machine_id)
    except Exception as error:  # noqa: BLE001 - whatever it is, the machine may live
        retry_at = now() + error.retry_after_s if isinstance(error, RateLimited) else 0.0
        outcome = ev.TerminateFailed(
            now(),
            machine_id,
            told(error),
            isinstance(error, DEFINITE),
            retry_at,
        )
    else:
        outcome = ev.TerminateAccepted(now(), machine_id)
    if unwritten is not None:
        raise unwritten
    hands.commit(outcome)
    if isinstance(outcome, ev.TerminateAccepted) and isinstance(hands.provider, ByHand):
        ended = hands.provider.ended(machine_id)
        if ended is not None:
            hands.commit(ev.EndDeclared(now(), machine_id, ended.at, ended.by))


_DO: dict[type[object], Callable[..., None]] = {
    Find: _find,
    Describe: _describe,
    Launch: _launch,
    Terminate: _terminate,
    **ON_SITE,
}
