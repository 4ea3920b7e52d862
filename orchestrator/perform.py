"""What the runner does when `decide` asks: one small function an action, the only effects.

Provider calls that change something follow one pattern: commit the intent, check the lease, call
once, commit what it answered. Nothing is retried here; `decide` sees what happened and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator import events as ev
from orchestrator import points
from orchestrator.actions import (
    Action,
    Collect,
    Describe,
    Drain,
    Farewell,
    Find,
    Follow,
    Launch,
    Peek,
    PrepareNext,
    Probe,
    StartTrainer,
    Terminate,
)
from orchestrator.case import Case
from orchestrator.decide import machine_seen
from orchestrator.observation import Described, Listing
from orchestrator.plan import JobRecord
from orchestrator.policy import Then, on_launch_error
from orchestrator.reads import Listed, Reads
from orchestrator.redact import told
from orchestrator.site import AgentStatus, Site, SiteError, SiteRefused
from orchestrator.site_order import SiteOrder
from orchestrator.states import State
from orchestrator.store_rows import Lease
from providers.base import LaunchRequest, Provider
from providers.errors import AuthFailed, InvalidRequest, NotFound, QuotaExceeded, RateLimited

if TYPE_CHECKING:
    from orchestrator.runner import Runner

LOG_FILES = ("train.log", "metrics.jsonl")
PULLS = 8  # of one file in one go: what grows faster than that is fetched by the next tick
DRAINS = 64  # the same at the end, when nothing else waits
LEAST_RETRY_S = 1.0
DEFINITE = (AuthFailed, QuotaExceeded, InvalidRequest)  # will not pass by themselves


class Commit(Protocol):
    """Commits events of the case's attempt in one transaction."""

    def __call__(self, *happened: ev.AttemptEvent) -> None:
        """Commit; raises LeaseLost."""
        ...


@dataclass(frozen=True, slots=True)
class Hands:
    """What an action needs beside the case."""

    runner: Runner
    lease: Lease
    reads: Reads
    commit: Commit
    record: JobRecord
    left_usd: Decimal | None

    @property
    def provider(self) -> Provider:
        """Return the attempt's provider."""
        return self.reads.provider

    def check_lease(self) -> None:
        """Raise LeaseLost unless the job is still ours, immediately before an effect."""
        runner = self.runner
        if runner.rules.fence_calls:
            runner.store.journal.check(self.lease, runner.limits.lease_s)


def perform(action: Action, case: Case, hands: Hands) -> None:
    """Do one action; its outcome is in the case's attempt or observation afterwards."""
    _DO[type(action)](action, case, hands)


# ---------------------------------------------------------------- provider


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
        disk_gib=spec.disk_gib,
        start_script=spec.start_script,
        env=spec.env,
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
    hands.commit(ev.TerminateAsked(now(), machine_id))
    hands.check_lease()
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
    hands.commit(outcome)


# ---------------------------------------------------------------- instance


def _probe(_: Probe, case: Case, hands: Hands) -> None:
    _on_site(case, hands, "probe", lambda site: site.probe())
    if case.seen.site_ok_at is not None:
        _at_once(case)  # the preparation


def _peek(_: Peek, case: Case, hands: Hands) -> None:
    def peek(site: Site) -> None:
        case.seen.status = site.status()
        case.seen.known_fresh = True

    _on_site(case, hands, "peek", peek)
    _at_once(case)


def _prepare_next(_: PrepareNext, case: Case, hands: Hands) -> None:
    def step(site: Site) -> None:
        done = site.prepare_next()
        if done is None:
            case.seen.prepared = True
        else:
            hands.commit(ev.StepDone(hands.runner.clock.now(), done))

    _on_site(case, hands, "prepare", step)
    _at_once(case)


def _start_trainer(_: StartTrainer, case: Case, hands: Hands) -> None:
    hands.check_lease()

    def start(site: Site) -> None:
        case.seen.status = site.start_trainer()

    _on_site(case, hands, "start", start)


def _follow(_: Follow, case: Case, hands: Hands) -> None:
    def follow(site: Site) -> None:
        status = site.status()
        _pull(site, case, hands, PULLS)
        case.seen.status = status
        _watch_agent(case, status, hands.runner.clock.now())

    _on_site(case, hands, "follow", follow)
    if case.seen.status is not None and case.seen.status.exit is not None:
        _at_once(case)  # the way home


def _at_once(case: Case) -> None:
    """Let the next call on the instance follow without a pause, if it answers."""
    if case.seen.site_down_since is None:
        case.seen.site_after = 0.0


def _watch_agent(case: Case, status: AgentStatus, now: float) -> None:
    age_s = status.heartbeat_age_s
    silent = age_s is not None and age_s > case.terms.limits.agent_lost_s
    if status.exit is None and (silent or not status.alive):
        case.seen.dead_since = case.seen.dead_since or now
    else:
        case.seen.dead_since = None


def _drain(_: Drain, case: Case, hands: Hands) -> None:
    def drain(site: Site) -> None:
        case.seen.drained = _pull(site, case, hands, DRAINS)

    _on_site(case, hands, "drain", drain)
    _at_once(case)


def _collect(_: Collect, case: Case, hands: Hands) -> None:
    folder = Path(hands.record.new.output_folder)

    def collect(site: Site) -> None:
        case.seen.collected = site.collect(folder).files

    _on_site(case, hands, "collect", collect)


def _farewell(_: Farewell, case: Case, hands: Hands) -> None:
    """Stop the trainer, pull the tail. One try, and no harm if it fails: the end is near."""
    case.seen.farewell_done = True
    before = case.seen.refused

    def farewell(site: Site) -> None:
        site.stop_trainer(now=True)
        _pull(site, case, hands, DRAINS)

    _on_site(case, hands, "farewell", farewell)
    case.seen.refused = before


def _pull(site: Site, case: Case, hands: Hands, times: int) -> bool:
    """Bring log and metrics up to date; return whether nothing was left to pull."""
    runner, attempt = hands.runner, case.attempt
    rest = False
    sizes: dict[str, int] = {}
    grew = 0
    for name in LOG_FILES:
        local = runner.home.log_path(attempt.job_id, attempt.number, name)
        begin = case.offsets.get(name, -1)
        if begin < 0:  # ours alone to move, under the lease: read once, then known
            begin = runner.store.offset(attempt.job_id, attempt.number, name)
        offset = begin
        for _ in range(times):
            reached = site.pull(name, local, offset)
            if reached == offset:
                break
            offset = reached
        else:
            rest = True
        if offset != begin:
            sizes[name] = offset
            grew = max(grew, offset - begin) if name == "train.log" else grew
    if sizes:
        folder = runner.home.log_path(attempt.job_id, attempt.number, "x").parent
        figures = case.figures.read(
            folder / "metrics.jsonl", folder / "train.log", runner.clock.now()
        )
        runner.pulled(hands.lease, attempt, sizes, figures, grew)
        case.offsets |= sizes
    return not rest


def _on_site(case: Case, hands: Hands, name: str, call: Callable[[Site], None]) -> None:
    """Make one call on the instance; its failure becomes a fact of the observation, never more."""
    seen, clock, limits = case.seen, hands.runner.clock, case.terms.limits
    endpoint = case.attempt.endpoint
    if endpoint is None:
        return
    pause_s = limits.site_s(case.terms.traits)
    try:
        site = case.site(endpoint, lambda: hands.runner.make_site(_order(case, hands)))
        points.reach(f"site.before:{name}")
        with case.calling(_until(case)):
            call(site)
        points.reach(f"site.after:{name}")
    except SiteError as error:
        now = clock.now()
        seen.site_error, seen.site_error_at = told(error, kind=False), now
        seen.site_down_since = seen.site_down_since or now
        pause_s = limits.site_retry_s if case.terms.traits.remote else pause_s
    except SiteRefused as error:
        seen.refused = (error.reason, told(error, kind=False))
    else:
        seen.site_ok_at, seen.site_down_since = clock.now(), None
    seen.site_after = clock.now() + pause_s


def _until(case: Case) -> float:
    """Return when a call on the instance is cut: the state's own limit, or the deadline."""
    attempt, limits = case.attempt, case.terms.limits
    began, lasts_s = {
        State.BOOTING: (attempt.launched_at, case.terms.boot_s),
        State.PREPARING: (attempt.ssh_ready_at, limits.prepare_timeout_s),
        State.COLLECTING: (attempt.trainer_exited_at, limits.collect_timeout_s),
        State.STOPPING: (attempt.stopping_at, limits.farewell_s),
    }.get(attempt.state, (None, 0.0))
    if attempt.state is State.STOPPING and began is not None:
        return began + lasts_s
    bound = attempt.deadline_at if began is None else began + lasts_s
    return min(bound, attempt.deadline_at)


def _order(case: Case, hands: Hands) -> SiteOrder:
    attempt, traits = case.attempt, case.terms.traits
    endpoint = attempt.endpoint
    if endpoint is None:
        raise SiteError("no address yet")
    return SiteOrder(
        job_id=attempt.job_id,
        attempt=attempt.number,
        label=attempt.label,
        spec=hands.record.new.spec,
        host=endpoint.host,
        port=endpoint.port,
        user=endpoint.user,
        host_key=endpoint.host_key,
        workdir=endpoint.workdir,
        deadline_at=attempt.deadline_at,
        claim_token=attempt.label,
        self_destruct=traits.self_destruct,
        provider=attempt.provider,
        remote=traits.remote,
    )


_DO: dict[type[object], Callable[..., None]] = {
    Find: _find,
    Describe: _describe,
    Launch: _launch,
    Terminate: _terminate,
    Probe: _probe,
    Peek: _peek,
    PrepareNext: _prepare_next,
    StartTrainer: _start_trainer,
    Follow: _follow,
    Drain: _drain,
    Collect: _collect,
    Farewell: _farewell,
}
