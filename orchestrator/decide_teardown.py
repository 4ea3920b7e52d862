"""STOPPING, and what leads there: the create guard, doubles, proof of absence. Pure.

One sentence governs this file: for every machine that we may have created, either a provider read
proves it gone, or the job is shown as STILL BILLING and somebody keeps retrying.
"""

from __future__ import annotations

from decimal import Decimal

from orchestrator import events as ev
from orchestrator.actions import Action, Describe, Farewell, Find, Record, Terminate
from orchestrator.attempt import Attempt, Machine
from orchestrator.observation import Described, Observation, Terms, backoff_s
from orchestrator.states import Reason
from providers.base import Instance, InstanceId, InstanceState

Due = tuple[float, Action]

GIVE_UP_S = 900.0  # only with the rule never_give_up off: what a well-known tool does

# After these there is nobody to say farewell to, or nobody whom we may trust.
NO_FAREWELL = frozenset({Reason.INSTANCE_LOST, Reason.HOST_KEY_MISMATCH, Reason.SSH_LOST})


def stopping(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return what STOPPING wants: farewell, terminate, two reads, and the alarm."""
    if attempt.launch_open and not attempt.machines:
        return _stopping_unclear(attempt, seen, now, terms)
    if not attempt.machines:
        return [(now, Record(ev.InstanceGone(now, "never asked")))]
    extra = strangers(attempt, seen, now, terms)
    if extra:
        return extra
    if not attempt.living:
        proof = "reads" if terms.traits.proves_absence else "yours"
        return [(now, Record(ev.InstanceGone(now, proof)))]
    if _wants_farewell(attempt, seen, now, terms):
        return [(now, Farewell())]
    alarm = _alarm(attempt, now, terms)
    if alarm:
        return alarm
    wanted: list[Due] = []
    for machine in attempt.living:
        wanted += teardown(machine, seen, now, terms)
    return wanted


def _stopping_unclear(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the settle window's next step: the attempt ends, but its machine may yet appear."""
    listing = seen.listing
    if listing is not None and listing.at >= (attempt.launch_asked_at or 0.0):
        late = [m for m in listing.machines if m.state is not InstanceState.GONE]
        if late:
            return [(now, Record(_sight(now, late[0], "late")))]
    reads, settled = settle(attempt, seen, now, terms)
    if not settled:
        return reads
    if terms.traits.list_lag_s > 0 or terms.traits.remote:
        until = now + terms.limits.suspect_s
        return [(now, Record(ev.InstanceGone(now, "suspect", until)))]
    return _lived_or_never_came(attempt, seen, now, terms)


def _lived_or_never_came(
    attempt: Attempt, seen: Observation, now: float, terms: Terms
) -> list[Due]:
    """Return the end of an unclear launch where the provider's reads are never behind the truth.

    The empty reads prove that nothing lives. What lived and died meanwhile was paid for: where the
    provider remembers it, it takes the ordinary way to its proof.
    """
    if terms.traits.knows_labels:
        known_by_label = InstanceId(attempt.label)
        said = seen.described.get(known_by_label)
        if said is None or said.at < (attempt.settle_last_at or attempt.opened_at):
            return [(max(now, seen.describe_after), Describe(known_by_label))]
        if said.instance is not None:
            return [(now, Record(_sight(now, said.instance, "late")))]
    return [(now, Record(ev.InstanceGone(now, "never came")))]


def settle(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> tuple[list[Due], bool]:
    """Return the next step of the settle window, and whether the window is over.

    Only well-formed, empty reads count, each a gap after the one before, the last two late.
    """
    limits = terms.limits
    asked = attempt.launch_asked_at or attempt.opened_at
    last = attempt.settle_last_at
    done = attempt.settle_reads
    remote = terms.traits.remote
    wanted = limits.settle_reads if remote else limits.settle_local_reads
    gap_s = limits.settle_gap_s if remote else limits.settle_local_gap_s
    if done >= wanted + (2 if remote else 0):
        return [], True
    due = asked if last is None else last + gap_s
    if done == wanted:
        due = max(due, asked + limits.settle_late_1_s)
    elif done > wanted:
        due = max(due, asked + limits.settle_late_2_s)
    listing = seen.listing
    empty = listing is not None and not any(
        m.state is not InstanceState.GONE for m in listing.machines
    )
    if empty and listing is not None and listing.at >= due:
        return [(now, Record(ev.SettleRead(listing.at)))], False
    return look(seen, due), False


def strangers(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the event of a machine that bears the label and is not known yet."""
    if seen.listing is None or not terms.rules.end_doubles:
        return []
    for instance in seen.listing.machines:
        if instance.state is not InstanceState.GONE and attempt.machine(instance.id) is None:
            return [(now, Record(_sight(now, instance, "double")))]
    return []


def doubles(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the steps that end every machine of the label but the main one."""
    found = strangers(attempt, seen, now, terms)
    if found:
        return found
    for machine in attempt.living:
        if machine.id != attempt.main_id:
            # Only what is due: the attempt's own business goes on beside it.
            steps = teardown(machine, seen, now, terms)
            due = [step for step in steps if step[0] <= now]
            if due:
                return due
    return []


def teardown(machine: Machine, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the next step towards the proof that one machine is gone."""
    limits, rules = terms.limits, terms.rules
    first = machine.terminate_first_at
    if first is None:
        return [(now, Terminate(machine.id))]
    accepted = machine.terminate_failures == 0
    gone = [(now, Record(ev.MachineGone(now, machine.id)))]
    if not rules.prove_absence and accepted:
        return list(gone)
    if not rules.never_give_up and now >= first + GIVE_UP_S:
        return list(gone)
    if not terms.traits.proves_absence and accepted:
        return list(gone)
    event, proven = proof_reads(machine, seen, now, terms)
    if proven:
        return list(gone)
    if event is not None:
        return [(now, Record(event))]
    wanted: list[Due] = []
    said = seen.described.get(machine.id)
    read_at = min(_time(said), seen.listing.at if seen.listing is not None else 0.0)
    if machine.absent_at is not None:
        due = machine.absent_at + limits.absence_gap(terms.traits)
    else:
        last = machine.terminate_last_at or first
        pause_s = limits.poll_s(terms.traits) if read_at >= last else 0.0
        due = max(last, read_at + pause_s)
        if rules.ask_again or not accepted:
            pause_s = backoff_s(machine, limits)
            if accepted and read_at < last + terms.traits.list_lag_s:
                # Taken, and no read yet that could show otherwise: give the reads their time.
                pause_s = max(pause_s, 2 * limits.absence_gap(terms.traits) + pause_s)
            again = max(last + pause_s, machine.terminate_after)
            wanted.append((again, Terminate(machine.id)))
    if _time(said) < due:
        wanted.append((max(due, seen.describe_after), Describe(machine.id)))
    if seen.listing is None or seen.listing.at < due:
        wanted += look(seen, due)
    return wanted


def proof_reads(
    machine: Machine, seen: Observation, now: float, terms: Terms
) -> tuple[ev.AttemptEvent | None, bool]:
    """Return (event of a read to record, whether absence is proven by the reads at hand).

    A read shows absence when describe says GONE or knows no such id AND find shows no machine of
    that id; two such reads a gap apart prove it. Reads that began before the machine could be
    listed, or before the newest terminate call's first, are no evidence of its end.
    """
    said, listing = seen.described.get(machine.id), seen.listing
    if said is None or listing is None:
        return None, False
    began, ended = min(said.at, listing.at), max(said.at, listing.at)
    if began < machine.first_seen_at + terms.traits.list_lag_s:
        return None, False
    rules = terms.rules
    absent = _is_gone(said.instance, rules.stopped_is_billed) and _is_gone(
        listing.get(machine.id), rules.stopped_is_billed
    )
    if not absent:
        newest = said.instance if said.at >= listing.at else listing.get(machine.id)
        shown_again = (
            machine.absent_at is not None
            and ended > machine.absent_at
            and not _is_gone(newest, rules.stopped_is_billed)
        )
        return (ev.AbsenceDenied(now, machine.id), False) if shown_again else (None, False)
    if not rules.two_reads:
        return None, True
    if machine.absent_at is None:
        return ev.AbsenceRead(ended, machine.id), False
    return None, began >= machine.absent_at + terms.limits.absence_gap(terms.traits)


def look(seen: Observation, newer_than: float) -> list[Due]:
    """Return the wish for a listing that began at or after `newer_than`."""
    return [(max(newer_than, seen.find_after), Find(newer_than))]


def _is_gone(instance: Instance | None, stopped_is_billed: bool) -> bool:
    if instance is None or instance.state is InstanceState.GONE:
        return True
    return not stopped_is_billed and instance.state is InstanceState.STOPPED


def _time(said: Described | None) -> float:
    return 0.0 if said is None else said.at


def _sight(now: float, instance: Instance, how: str) -> ev.MachineSeen:
    return ev.MachineSeen(now, instance.id, how, instance.price_usd_per_hour, instance.created_at)


def _wants_farewell(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> bool:
    """Return whether the trainer is to be stopped and the log's tail pulled before the end."""
    if seen.farewell_done or attempt.ssh_ready_at is None or attempt.pushed_at is not None:
        return False
    if attempt.reason in NO_FAREWELL or attempt.stopping_at is None:
        return False
    asked = any(m.terminate_calls for m in attempt.machines if m.id == attempt.main_id)
    return not asked and now < attempt.stopping_at + terms.limits.farewell_s


def rescue(attempt: Attempt, seen: Observation, now: float, terms: Terms) -> list[Due]:
    """Return the note of a result that does not come home: why, how long and for how much it may.

    The machine is kept for it, bounded. Once for each cause; [] where nothing is wrong.
    """
    at_home = seen.site_error.startswith("on this machine")
    main = attempt.main
    if main is None or not (at_home or seen.site_down_since is not None):
        return []
    began = attempt.trainer_exited_at or now
    lasts_s = max(0.0, min(terms.limits.collect_timeout_s, attempt.deadline_at - began))
    rate = main.rates[-1][1] if main.rates else attempt.offer.price_usd_per_hour
    usd = rate * Decimal(str(lasts_s)) / 3600
    said = (
        f"the result does not come home: {seen.site_error[:300]}; the machine is kept for it "
        f"{lasts_s / 60:.0f} min at the most after the training's end, which costs ${usd:.2f}"
    )
    return [] if attempt.note == said else [(now, Record(ev.Noted(now, said)))]


def _alarm(attempt: Attempt, now: float, terms: Terms) -> list[Due]:
    """Return the alarm, when it is time for the first one or for one more."""
    limits = terms.limits
    for machine in attempt.living:
        first = machine.terminate_first_at
        if first is None:
            continue
        overdue = now >= first + limits.alarm_s(attempt.list_lag_s)
        failing = machine.terminate_failures >= limits.alarm_failures
        if not (overdue or failing or machine.definite_refusal):
            continue
        if attempt.alarm_at is not None and now < attempt.alarm_at + limits.alarm_again_s:
            continue
        why = machine.terminate_error or "accepted, but the provider's reads still show it"
        text = f"{machine.id}: {machine.terminate_calls} terminate calls: {why}"
        return [(now, Record(ev.StillBilling(now, text[:500])))]
    return []
