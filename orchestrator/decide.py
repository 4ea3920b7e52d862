"""The heart: an attempt, what is known of the world, and the time make a list of actions. Pure.

One small function a state. Each returns what it wants with the moment it is due; `decide` keeps
what is due now, or says until when to wait. An event to record comes alone: after it everything is
decided anew. An error is never a fact: it only delays the next look, it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator import events as ev
from orchestrator.actions import (
    Action,
    Collect,
    Describe,
    Drain,
    Follow,
    KeepCheckpoint,
    Launch,
    Peek,
    PrepareNext,
    Probe,
    Record,
    StartTrainer,
    Wait,
)
from orchestrator.attempt import Attempt, Endpoint, Machine
from orchestrator.decide_delivery import rescued
from orchestrator.decide_teardown import Due, doubles, look, proof_reads, rescue, settle, stopping
from orchestrator.observation import Observation, Terms
from orchestrator.states import Reason, State
from providers.base import Instance, InstanceState

MAX_WAIT_S = 30.0  # nobody sleeps longer than this: a cancel is noticed by then even unwoken


def decide(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Action]:
    """Return the actions that are due now, in order, or one Wait."""
    wanted = _STATES[attempt.state](attempt, seen, now, terms)
    wanted = rescued(wanted, attempt, seen, now, terms)
    due: list[Action] = []
    for at, action in wanted:
        if at <= now:
            if isinstance(action, Record):
                return [*due, action]
            due.append(action)
    if due:
        return due
    return [Wait(min([at for at, _ in wanted] + [now + MAX_WAIT_S]))]


def _intended(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    if attempt.launch_open or attempt.machines:
        adopted = _adopt(attempt, seen, now)
        if adopted:
            return adopted
        abort = _abort(attempt, seen, now, terms)
        if abort:
            return abort
        reads, settled = settle(attempt, seen, now, terms)
        if settled:
            return _aborted(now, Reason.LAUNCH_UNKNOWN, attempt.launch_error)
        return reads
    abort = _abort(attempt, seen, now, terms)
    if abort:
        return abort
    first = attempt.launch_first_at
    if first is not None and now >= first + terms.limits.launch_retry_s:
        return [(now, Record(ev.Refused(now, Reason.LAUNCH_REFUSED, attempt.launch_error)))]
    return [(attempt.launch_after, Launch())]


def _adopt(attempt: Attempt, seen: Observation, now: float) -> list[Due]:
    """Return the adoption of the machine that an unclear launch made after all."""
    asked = attempt.launch_asked_at or 0.0
    if attempt.machines:  # seen before a crash, not yet adopted
        return [(now, Record(ev.Launched(now, attempt.machines[0].id)))]
    if seen.listing is None or seen.listing.at < asked:
        return []
    candidates = [m for m in seen.listing.machines if m.state is not InstanceState.GONE]
    if not candidates:
        return []
    best = min(candidates, key=lambda m: (m.state is not InstanceState.READY, m.created_at or 0.0))
    return [(now, Record(machine_seen(now, best, "adopted")))]


def machine_seen(now: float, instance: Instance, how: str) -> ev.MachineSeen:
    """Return the event of a machine's first sight."""
    return ev.MachineSeen(now, instance.id, how, instance.price_usd_per_hour, instance.created_at)


def _booting(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    common = _machine_in_use(attempt, seen, now, terms)
    if common:
        return common
    started = attempt.launched_at or attempt.opened_at  # an adopted one has its time too
    if terms.rules.boot_timeout and now >= started + terms.boot_s:
        said = f"no login after {terms.boot_s:.0f} s: {seen.site_error or _word(attempt, seen)}"
        return _aborted(now, Reason.BOOT_TIMEOUT, said)
    moved = _endpoint(attempt, seen, now)
    if moved:
        return moved
    if seen.site_ok_at is not None and attempt.endpoint is not None:
        return [(now, Record(ev.SshReady(now)))]
    poll_s = terms.limits.poll_s(terms.traits)
    wanted = [*_watch(attempt, seen, poll_s), *_readdress(attempt, seen, poll_s)]
    if attempt.endpoint is not None:
        wanted.append((seen.site_after, Probe()))
    return wanted


def _preparing(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    common = _machine_in_use(attempt, seen, now, terms)
    if common:
        return common
    began = attempt.ssh_ready_at or attempt.opened_at
    if terms.rules.prepare_timeout and now >= began + terms.limits.prepare_timeout_s:
        said = f"at step {attempt.prepare_step or 'folder'}: {seen.site_error or 'too slow'}"
        return _aborted(now, Reason.PREPARE_TIMEOUT, said)
    moved = _endpoint(attempt, seen, now)
    if moved:
        return moved
    if seen.status is not None and seen.status.phase != "absent":
        return [(now, Record(ev.TrainerStarted(now)))]
    wanted = _watch(attempt, seen, terms.limits.watch_s(terms.traits))
    wanted += _readdress(attempt, seen, terms.limits.poll_s(terms.traits))
    if not seen.known_fresh:
        wanted.append((seen.site_after, Peek()))
    elif not seen.prepared:
        wanted.append((seen.site_after, PrepareNext()))
    elif attempt.start_asked_at is None:
        wanted.append((now, Record(ev.StartAsked(now))))
    else:
        wanted.append((seen.site_after, StartTrainer()))
    return wanted


def _running(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    verdict = seen.status.exit if seen.status is not None else None
    if verdict is not None:
        exited = ev.TrainerExited(
            now,
            verdict.reason,
            verdict.evidence,
            verdict.rc,
            verdict.last_step,
            verdict.max_steps,
            verdict.trainer_starts,
        )
        return [(now, Record(exited))]
    common = _machine_in_use(attempt, seen, now, terms)
    if common:
        return common
    limits = terms.limits
    if seen.site_down_since is not None and now >= seen.site_down_since + limits.ssh_lost_s:
        return _aborted(now, Reason.SSH_LOST, seen.site_error)
    dead = seen.dead_since
    if dead is not None and now >= dead + limits.agent_lost_s and seen.site_down_since is None:
        if not terms.rules.trust_only_verdict:
            return [(now, Record(ev.TrainerExited(now, Reason.SUCCEEDED, "no verdict")))]
        if terms.rules.agent_watch:
            return _aborted(now, Reason.AGENT_LOST, "no agent process, and no verdict of it")
    if seen.nothing is not None and seen.site_down_since is None:
        return _aborted(now, *seen.nothing)
    moved = _endpoint(attempt, seen, now)
    if moved:
        return moved
    silent = seen.site_down_since is not None
    watch_s = limits.poll_s(terms.traits) if silent else limits.watch_s(terms.traits)
    wanted = _watch(attempt, seen, watch_s)
    wanted += _readdress(attempt, seen, limits.poll_s(terms.traits))
    wanted.append((seen.site_after, Follow()))
    step = _checkpoint(attempt, seen, terms)
    if step is not None:  # beside the log, which is followed on between its parts
        wanted.append((seen.site_after if silent else seen.keep_after, KeepCheckpoint(step)))
    return wanted


def _checkpoint(attempt: Attempt, seen: Observation, terms: Terms) -> int | None:
    """Return the step of a checkpoint on the instance that is newer than what lies at home."""
    step, settled = seen.saved_step, max(attempt.kept_step or 0, seen.tried_step or 0)
    return step if terms.keep_checkpoints and step is not None and step > settled else None


def _collecting(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    began = attempt.trainer_exited_at or now
    if attempt.reason is not None:
        return _salvaging(attempt, seen, now, terms)
    if seen.collected is not None:
        home = seen.collected
        return [(now, Record(ev.ArtifactsPushed(now, home.files, str(home.folder))))]
    common = _machine_in_use(attempt, seen, now, terms)
    if common:
        return common
    if terms.rules.collect_timeout and now >= began + terms.limits.collect_timeout_s:
        return _aborted(now, Reason.ARTIFACTS_FAILED, seen.site_error or "too slow")
    moved = _endpoint(attempt, seen, now)
    if moved:
        return moved
    poll_s = terms.limits.poll_s(terms.traits)
    wanted = rescue(attempt, seen, now, terms)
    wanted += _watch(attempt, seen, poll_s if seen.site_down_since is not None else 3 * poll_s)
    wanted += _readdress(attempt, seen, poll_s)
    wanted.append((seen.site_after, Collect() if seen.drained else Drain()))
    return wanted


def _kept(attempt: Attempt, seen: Observation, now: float, terms: Terms, until: float) -> list[Due]:
    """Return what happens while a machine with a failed training is left for its owner to look at.

    A cancel, the deadline, the budget and the loss of the machine end it before `until`.
    """
    common = _machine_in_use(attempt, seen, now, terms)
    if common:
        return common
    said = f"kept for a look until {until:.0f}: gpujob ssh {attempt.job_id}"
    if attempt.note != said:
        return [(now, Record(ev.Noted(now, said)))]
    over = (until, Record(ev.ArtifactsPushed(now)))
    return [over, *_watch(attempt, seen, terms.limits.watch_s(terms.traits))]


def _salvaging(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return what a failed training is worth a wait for: the log's tail, its newest checkpoint."""
    began = attempt.trainer_exited_at or now
    late = now >= began + terms.limits.drain_timeout_s
    until = began + terms.keep_on_failure_s
    over: list[Due] = [(now, Record(ev.ArtifactsPushed(now)))]
    if now < until and (seen.drained or late):
        over = _kept(attempt, seen, now, terms, until)
    if seen.refused is not None or seen.cancel is not None or attempt.main is None:
        return over
    spent = terms.budget_usd is not None and seen.cost_usd >= terms.budget_usd
    if spent or now >= attempt.deadline_at:
        return over
    if not seen.drained and not late:
        return [(seen.site_after, Drain())]
    step = _checkpoint(attempt, seen, terms)
    silent = late and seen.site_down_since is not None
    if step is None or silent or now >= began + terms.limits.collect_timeout_s:
        return over
    return [(max(seen.site_after, seen.keep_after), KeepCheckpoint(step))]


def _closed(_: Attempt, __: Observation, ___: float, ____: Terms) -> list[Due]:
    return []


_STATES: dict[State, Callable[[Attempt, Observation, float, Terms], list[Due]]] = {
    State.INTENDED: _intended,
    State.BOOTING: _booting,
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.COLLECTING: _collecting,
    State.STOPPING: stopping,
    State.CLOSED: _closed,
}


# ---------------------------------------------------------------- what several states share


def _aborted(now: float, reason: Reason, evidence: str) -> list[Due]:
    return [(now, Record(ev.Aborted(now, reason, evidence[:500])))]


def _abort(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the end of the attempt for a cause that no state may outlive."""
    if seen.refused is not None:
        return _aborted(now, *seen.refused)
    if terms.rules.heed_cancel and seen.cancel is not None:
        return _aborted(now, seen.cancel, "")
    if terms.rules.deadline and now >= attempt.deadline_at:
        return _aborted(now, Reason.DEADLINE, "")
    if terms.rules.budget and terms.budget_usd is not None:
        kept = 0 if attempt.state is State.COLLECTING else terms.reserve_usd
        if seen.cost_usd + kept >= terms.budget_usd and attempt.launch_asked_at is not None:
            return _aborted(now, Reason.BUDGET, f"{seen.cost_usd:.6f} USD spent")
    return []


def _machine_in_use(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return what ends or endangers an attempt that works on a machine; [] when all is well."""
    main = attempt.main
    if main is None:  # cannot be: Launched names it. Ending is the safe way out
        return _aborted(now, Reason.INTERNAL, "an attempt past its launch without a machine")
    extra = doubles(attempt, seen, now, terms)
    if extra:
        return extra
    abort = _abort(attempt, seen, now, terms)
    if abort:
        return abort
    return _price(attempt, main, seen, now, terms) or _loss(main, seen, now, terms)


def _price(
    attempt: Attempt, main: Machine, seen: Observation, now: float, terms: Terms
) -> list[Due]:
    agreed = attempt.offer.price_usd_per_hour
    current = main.rates[-1][1] if main.rates else agreed
    newest = _newest(main, seen)
    said = newest.price_usd_per_hour if newest is not None else None
    if said is not None and said != current:
        return [(now, Record(ev.PriceSeen(now, main.id, said)))]
    if terms.rules.check_price and current > agreed:
        return _aborted(now, Reason.PRICE_ABOVE_QUOTE, f"{current} USD/h, quoted {agreed} USD/h")
    return []


def _loss(main: Machine, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the end of an attempt whose machine is gone or stopped: two reads, and no contact."""
    said = seen.described.get(main.id)
    listing = seen.listing
    rules = terms.rules
    if not rules.fresh_404_is_unknown and said is not None and said.instance is None:
        lost = _aborted(now, Reason.INSTANCE_LOST, "describe: 404")
        return [(now, Record(ev.MachineGone(now, main.id)))] if main.gone_at is None else lost
    if said is None or listing is None or not rules.notice_loss:
        return []
    oldest = min(said.at, listing.at)
    listed = listing.get(main.id)
    if seen.site_ok_at is not None and seen.site_ok_at >= oldest:
        return []  # it answered us since: whatever the provider says, it lives
    stopped = (
        said.instance is not None
        and said.instance.state is InstanceState.STOPPED
        and listed is not None
        and listed.state is InstanceState.STOPPED
    )
    if stopped:
        return _aborted(now, Reason.INSTANCE_LOST, "the provider stopped the machine")
    event, proven = proof_reads(main, seen, now, terms)
    if proven:
        return _aborted(now, Reason.INSTANCE_LOST, "the provider shows the machine no more")
    return [] if event is None else [(now, Record(event))]


def _newest(main: Machine, seen: Observation) -> Instance | None:
    """Return the newest sight of a machine, whichever read it came from."""
    said, listing = seen.described.get(main.id), seen.listing
    listed = listing.get(main.id) if listing is not None else None
    if said is None or said.instance is None:
        return listed
    if listed is None or listing is None or said.at >= listing.at:
        return said.instance
    return listed


def _endpoint(attempt: Attempt, seen: Observation, now: float) -> list[Due]:
    """Return the event of a new address; it comes from describe alone, which has the host key."""
    said = seen.described.get(attempt.main_id) if attempt.main_id is not None else None
    it = said.instance if said is not None else None
    if it is None or it.host is None or it.port is None:
        return []
    endpoint = Endpoint(
        it.host, it.port, it.user or "root", it.host_key, it.workdir, it.key_file, it.axolotl_env
    )
    if endpoint == attempt.endpoint:
        return []
    return [(now, Record(ev.EndpointSeen(now, endpoint)))]


def _readdress(attempt: Attempt, seen: Observation, poll_s: float) -> list[Due]:
    """Return the describe that may show a new address: while there is none, or after a failure."""
    main = attempt.main
    if main is None:
        return []
    said = seen.described.get(main.id)
    if said is None:
        return [(seen.describe_after, Describe(main.id))]
    listed = seen.listing.get(main.id) if seen.listing is not None else None
    ready = listed is not None and listed.state is InstanceState.READY
    newer = seen.listing is not None and seen.listing.at > said.at
    failed = seen.site_down_since is not None and (seen.site_error_at or 0.0) > said.at
    doubtful = _doubtful(main, seen)
    if attempt.endpoint is not None and not failed and not doubtful:
        return []
    pause_s = poll_s if failed or (newer and (ready or doubtful)) else 3 * poll_s
    return [(max(seen.describe_after, said.at + pause_s), Describe(main.id))]


def _doubtful(main: Machine, seen: Observation) -> bool:
    """Return whether the newest listing does not show the machine as living."""
    if seen.listing is None:
        return False
    listed = seen.listing.get(main.id)
    return listed is None or listed.state in {InstanceState.GONE, InstanceState.STOPPED}


def _watch(attempt: Attempt, seen: Observation, pause_s: float) -> list[Due]:
    """Return the next look at the shared listing."""
    since = attempt.launched_at or attempt.opened_at
    return look(seen, since if seen.listing is None else seen.listing.at + pause_s)


def _word(attempt: Attempt, seen: Observation) -> str:
    main = attempt.main
    newest = _newest(main, seen) if main is not None else None
    return "the provider shows no address" if newest is None else f"it says {newest.detail}"
