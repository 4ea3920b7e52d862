"""What the runner does on the instance: one small function an action. Nothing here is fatal.

A failure of the connection, a refusal of the instance, a full disk at home: each becomes a fact of
the observation, and `decide` sees what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator import events as ev
from orchestrator import points
from orchestrator.actions import (
    Collect,
    Drain,
    Farewell,
    Follow,
    KeepCheckpoint,
    LookForRescue,
    Peek,
    PrepareNext,
    Probe,
    StartTrainer,
)
from orchestrator.artifacts import checkpoint
from orchestrator.case import Case
from orchestrator.hands import Hands
from orchestrator.oom import settings_of
from orchestrator.redact import told
from orchestrator.site import AgentStatus, Site, SiteError, SiteRefused
from orchestrator.site_order import SiteOrder
from orchestrator.states import State
from providers.base import Tier

LOG_FILES = ("train.log", "metrics.jsonl")
PULLS = 8  # of one file in one go: what grows faster than that is fetched by the next tick
DRAINS = 64  # the same at the end, when nothing else waits


def _probe(_: Probe, case: Case, hands: Hands) -> None:
    _on_site(case, hands, "probe", lambda site: site.probe())


def _peek(_: Peek, case: Case, hands: Hands) -> None:
    def peek(site: Site) -> None:
        case.seen.status = site.status()
        case.seen.known_fresh = True

    if _on_site(case, hands, "peek", peek):
        case.seen.site_after = 0.0


def _prepare_next(_: PrepareNext, case: Case, hands: Hands) -> None:
    def step(site: Site) -> None:
        done = site.prepare_next()
        if done is None:
            case.seen.prepared = True
        else:
            hands.commit(ev.StepDone(hands.runner.clock.now(), done))

    if _on_site(case, hands, "prepare", step):
        case.seen.site_after = 0.0  # the next step at once


def _start_trainer(_: StartTrainer, case: Case, hands: Hands) -> None:
    hands.check_lease()

    def start(site: Site) -> None:
        case.seen.status = site.start_trainer()

    _on_site(case, hands, "start", start)


def _follow(_: Follow, case: Case, hands: Hands) -> None:
    def follow(site: Site) -> None:
        status = site.status()
        _watch_agent(case, status, hands.runner.clock.now())
        try:
            _pull(site, case, hands, PULLS)
        finally:
            case.seen.status = status  # a verdict counts, also while this disk is full

    _on_site(case, hands, "follow", follow)


def _keep_checkpoint(action: KeepCheckpoint, case: Case, hands: Hands) -> None:
    """Bring a part of a checkpoint home. A checkpoint that cannot be had never ends a training."""
    folder = hands.runner.home.checkpoints(case.attempt.job_id)

    def keep(site: Site) -> None:
        try:
            kept = site.keep_checkpoint(action.step, folder)
        except SiteRefused as refused:
            case.seen.tried_step = action.step
            said = f"checkpoint {action.step} was not kept: {told(refused, kind=False)}"
            hands.commit(ev.Noted(hands.runner.clock.now(), said))
            return
        if kept is None:
            return
        case.seen.tried_step = kept.step
        if kept.bytes:
            hands.commit(ev.CheckpointKept(hands.runner.clock.now(), kept.step, kept.bytes))
            checkpoint.prune(folder, case.terms.keep_checkpoints)

    follow_at = case.seen.site_after
    if _on_site(case, hands, "checkpoint", keep):
        case.seen.site_after = follow_at  # the log is followed on at its own pace
    else:
        case.seen.keep_after = case.seen.site_after


def _watch_agent(case: Case, status: AgentStatus, now: float) -> None:
    age_s = status.heartbeat_age_s
    silent = age_s is not None and age_s > case.terms.limits.agent_lost_s
    if status.exit is None and (silent or not status.alive):
        case.seen.dead_since = case.seen.dead_since or now
    else:
        case.seen.dead_since = None
    case.seen.nothing = None  # taken anew with each look
    if status.phase == "training":
        case.seen.nothing = case.beside.look(
            now, log_bytes=status.log_bytes, heartbeat_age_s=age_s, sample=status.sample
        )


def _drain(_: Drain, case: Case, hands: Hands) -> None:
    def drain(site: Site) -> None:
        case.seen.drained = _pull(site, case, hands, DRAINS)

    if _on_site(case, hands, "drain", drain):
        case.seen.site_after = 0.0


def _collect(_: Collect, case: Case, hands: Hands) -> None:
    folder = Path(hands.record.new.output_folder)

    def collect(site: Site) -> None:
        case.seen.collected = site.collect(folder)

    _on_site(case, hands, "collect", collect)


def _look_for_rescue(_: LookForRescue, case: Case, hands: Hands) -> None:
    """Take what the machine delivered by itself. What can't be had is noted."""
    runner, seen = hands.runner, case.seen
    now = runner.clock.now()
    try:
        site = runner.make_site(_order(case, hands))
        found = site.rescued(Path(hands.record.new.output_folder))
    except (SiteError, OSError) as error:
        seen.rescue_since = seen.rescue_since or now
        seen.rescue_after = now + case.terms.limits.site_retry_s
        seen.site_error = told(error, kind=False)
        return
    except SiteRefused as refused:
        seen.rescue_over = True
        hands.commit(ev.Noted(now, f"not rescued: {told(refused, kind=False)}"[:500]))
        return
    seen.rescue_over = True
    if found is None:
        return
    if found.kept is not None:
        hands.commit(ev.CheckpointKept(now, found.kept.step, found.kept.bytes))
    if found.collected is not None:
        seen.rescued, seen.collected = found.ended, found.collected


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
        case.seen.saved_step = case.figures.saved_step
        runner.pulled(hands.lease, attempt, sizes, figures, grew)
        case.offsets |= sizes
    return not rest


def _on_site(case: Case, hands: Hands, name: str, call: Callable[[Site], None]) -> bool:
    """Make one call on the instance and return whether it succeeded.

    Its failure becomes a fact of the observation, never more.
    """
    seen, clock, limits = case.seen, hands.runner.clock, case.terms.limits
    endpoint = case.attempt.endpoint
    if endpoint is None:
        return False
    done = False
    pause_s = limits.site_s(case.terms.traits)
    try:
        site = case.site(endpoint, lambda: hands.runner.make_site(_order(case, hands)))
        points.reach(f"site.before:{name}")
        with case.calling(_until(case)):
            call(site)
        points.reach(f"site.after:{name}")
    except OSError as error:  # this machine's own disk: the instance is not to blame for it
        seen.site_error = f"on this machine: {told(error, kind=False)}"
        pause_s = limits.site_retry_s
    except SiteError as error:
        now = clock.now()
        seen.site_error, seen.site_error_at = told(error, kind=False), now
        seen.site_down_since = seen.site_down_since or now
        pause_s = limits.site_retry_s if case.terms.traits.remote else pause_s
    except SiteRefused as error:
        seen.refused = (error.reason, told(error, kind=False))
    else:
        seen.site_ok_at, seen.site_down_since, done = clock.now(), None, True
    seen.site_after = clock.now() + pause_s
    return done


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
    own = attempt.offer.tier is Tier.OWN  # what its owner says it has is not ours to doubt
    return SiteOrder(
        job_id=attempt.job_id,
        attempt=attempt.number,
        label=attempt.label,
        spec=settings_of(
            hands.record.new.spec, [a for a in hands.attempts if a.number < attempt.number]
        )[0],
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
        key_file=endpoint.key_file,
        axolotl_env=endpoint.axolotl_env,
        # Once it has brought one home itself it runs, and has nothing to go on from.
        checkpoints=None if attempt.kept_step else hands.runner.home.checkpoints(attempt.job_id),
        gpu=attempt.offer.gpu,
        gpus=0 if own or attempt.offer.gpu == "CPU" else attempt.offer.gpu_count,
        vram_gib=attempt.offer.vram_gib,
        keep_on_failure_s=case.terms.keep_on_failure_s,
        keep_checkpoints=case.terms.keep_checkpoints,
        lease_s=hands.record.new.launch.lease_s,
    )


ON_SITE: dict[type[object], Callable[..., None]] = {
    Probe: _probe,
    Peek: _peek,
    PrepareNext: _prepare_next,
    StartTrainer: _start_trainer,
    Follow: _follow,
    KeepCheckpoint: _keep_checkpoint,
    Drain: _drain,
    Collect: _collect,
    LookForRescue: _look_for_rescue,
    Farewell: _farewell,
}
