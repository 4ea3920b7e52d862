"""Every limit and every rule of the life cycle in one place: numbers and tables, no logic.

The limits are settings: `GPUJOB_<NAME>` in capitals, such as `GPUJOB_SETTLE_GAP_S`, so that a test
cloud may run fast. The defaults are the documented ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from orchestrator.states import Reason
from providers.base import Traits
from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Waits and bounds, in seconds unless the name says otherwise."""

    # An unclear launch: 12 reads 10 s apart, then again at +5 and +15 min. Why so long:
    # a machine may appear in a vendor's list minutes after the create call was cut.
    settle_reads: int = 12
    settle_gap_s: float = 10.0
    settle_late_1_s: float = 300.0
    settle_late_2_s: float = 900.0
    # This very machine's list is its process table: five looks a second apart settle it.
    settle_local_reads: int = 5
    settle_local_gap_s: float = 1.0
    suspect_s: float = 86_400.0  # afterwards the name stays under the sweep's eyes for a day
    launch_retry_s: float = 600.0  # a rate-limited launch is asked again for this long
    prepare_timeout_s: float = (
        3_600.0  # building Axolotl's environment took 103 s; data takes longer
    )
    collect_timeout_s: float = 1_200.0
    drain_timeout_s: float = 60.0  # the log's tail of a failed training
    farewell_s: float = 20.0  # the same on cancel, before the machine is ended
    ssh_lost_s: float = (
        1_800.0  # the provider says it runs, SSH is silent: the training may be fine
    )
    agent_lost_s: float = 60.0  # 12 missed heartbeats of 5 s, or no agent process: looked at twice
    watch_speed: float = 1.0  # the watchdog's clock, so many times faster: for rehearsals
    absence_gap_s: float = (
        5.0  # between the two reads of a proof, or the provider's list lag if longer
    )
    terminate_first_s: float = 1.0  # back-off of terminate: doubles from here
    terminate_max_s: float = 60.0
    alarm_failures: int = 3
    alarm_after_s: float = 60.0
    alarm_again_s: float = 3_600.0
    poll_remote_s: float = 10.0  # provider reads while something is expected to change
    poll_local_s: float = 0.5
    watch_remote_s: float = 30.0  # provider reads while the training runs
    watch_local_s: float = 5.0
    site_remote_s: float = 2.0  # looks at the instance over SSH
    site_local_s: float = 0.5
    site_retry_s: float = 5.0  # after a failed connection
    requests_per_minute: float = 12.0  # provider reads of one process, all jobs together
    lease_s: float = 60.0  # renewed at a third of it
    sweep_s: float = 60.0
    sweep_grace_s: float = 120.0  # an unknown machine is ended only when it was seen this long
    # RunPod's billing job runs every five minutes: an hour is whole a while after it is over.
    bill_after_s: float = 900.0  # the bill is first read so long after the machine's last hour
    bill_again_s: float = 3_600.0  # an amount that is the same once more after this is whole
    push_timeout_s: float = 900.0  # a place that can't be reached is tried again for this long
    push_retry_s: float = 5.0  # first pause between tries; doubles up to a minute
    push_try_s: float = 600.0  # one try, beside a second for every 100 KB
    rescue_after_s: float = 300.0  # a machine with a result that nobody asks for delivers it then
    push_check_s: float = 60.0  # the check of all places before anything is launched

    def absence_gap(self, traits: Traits) -> float:
        """Return the seconds between the two reads that prove a machine gone."""
        return max(self.absence_gap_s, traits.list_lag_s)

    def poll_s(self, traits: Traits) -> float:
        """Return the pause between provider reads while a change is expected."""
        return self.poll_remote_s if traits.remote else self.poll_local_s

    def watch_s(self, traits: Traits) -> float:
        """Return the pause between provider reads while the training runs."""
        return self.watch_remote_s if traits.remote else self.watch_local_s

    def site_s(self, traits: Traits) -> float:
        """Return the pause between looks at the instance."""
        return self.site_remote_s if traits.remote else self.site_local_s

    def alarm_s(self, list_lag_s: float) -> float:
        """Return how long a teardown may stay unproven before it is called STILL BILLING."""
        return max(self.alarm_after_s, 3 * max(self.absence_gap_s, list_lag_s))


DEFAULT_LIMITS = Limits()


class LimitRefusedError(ValueError):
    """A `GPUJOB_..._S` setting is no positive number; `str()` names it."""


def limits_from(env: Mapping[str, str]) -> Limits:
    """Return the limits with every `GPUJOB_<NAME>` of `env` applied; raises LimitRefusedError."""
    changed: dict[str, float | int] = {}
    for field in fields(Limits):
        name = f"GPUJOB_{field.name.upper()}"
        text = env.get(name)
        if text is None:
            continue
        kind = int if isinstance(field.default, int) else float
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not 0 < value < float("inf"):
            raise LimitRefusedError(
                f"{name}={text!r}: give a positive number of seconds or a count"
            )
        changed[field.name] = value
    return Limits(**changed)  # type: ignore[arg-type]


class Then(StrEnum):
    """What is done about an error of `launch`."""

    NEXT_OFFER = "next offer"  # closed at no cost
    END_JOB = "end job"  # closed at no cost, and no other offer would help
    WAIT = "wait"  # nothing was done: ask again, same offer
    SETTLE = "settle"  # it may have been done: look by label, never ask again


@dataclass(frozen=True, slots=True)
class LaunchError:
    """One row of the table: what an error of `launch` means for the attempt."""

    then: Then
    reason: Reason


# Total over the tree; the most specific class of an error wins. A NotFound on launch is the
# vendor's word for a region or template that is gone: nothing was made, our request was wrong.
ON_LAUNCH_ERROR: dict[type[ProviderError], LaunchError] = {
    NoCapacity: LaunchError(Then.NEXT_OFFER, Reason.NO_CAPACITY),
    QuotaExceeded: LaunchError(Then.NEXT_OFFER, Reason.QUOTA),
    AuthFailed: LaunchError(Then.END_JOB, Reason.AUTH),
    InvalidRequest: LaunchError(Then.END_JOB, Reason.LAUNCH_REFUSED),
    NotFound: LaunchError(Then.END_JOB, Reason.LAUNCH_REFUSED),
    RateLimited: LaunchError(Then.WAIT, Reason.LAUNCH_REFUSED),
    Unavailable: LaunchError(Then.SETTLE, Reason.LAUNCH_UNKNOWN),
    ProviderError: LaunchError(Then.SETTLE, Reason.LAUNCH_UNKNOWN),
}


def on_launch_error(error: Exception) -> LaunchError:
    """Return the row for an error: its own class's, or its nearest base's; unknown ones settle."""
    for cls in type(error).__mro__:
        if cls in ON_LAUNCH_ERROR:
            return ON_LAUNCH_ERROR[cls]
    return ON_LAUNCH_ERROR[ProviderError]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protective rules, each of which can be switched off. FOR TESTS ONLY: always all on.

    The simulation switches one off at a time and must then find leaks, doubles, or lies; a rule
    whose absence nothing notices is either needless or untested.
    """

    intent_before_launch: bool = True  # L0: the journal knows the label before the provider does
    settle_unclear_launch: bool = True  # L1: off = ask again blindly
    keep_suspects: bool = True  # L1: off = a CLOSED name is never looked at again
    end_doubles: bool = True  # L1: off = stop by recorded id only
    never_give_up: bool = True  # L4: off = 15 minutes of terminate, then "gone"
    prove_absence: bool = True  # L4: off = trust terminate's return
    two_reads: bool = True  # off = one look proves
    errors_are_unknown: bool = True  # off = an error of describe or find reads as "gone"
    fresh_404_is_unknown: bool = True  # off = a 404 right after create reads as "gone"
    stopped_is_billed: bool = True  # off = STOPPED reads as "gone"
    ask_again: bool = True  # off = terminate is asked once
    boot_timeout: bool = True  # off = wait for ever for SSH
    prepare_timeout: bool = True
    collect_timeout: bool = True
    deadline: bool = True  # L4's half; the instance's own is L2
    budget: bool = True  # L7
    check_price: bool = True
    heed_cancel: bool = True
    notice_loss: bool = True  # off = a vanished machine is waited for
    agent_watch: bool = True  # off = a dead agent is waited for
    fence_writes: bool = True  # off = a supervisor that lost its lease goes on writing
    fence_calls: bool = True  # off = ... and calling the provider
    sweep: bool = True  # L5
    own_label_only: bool = True  # off = the sweep ends what it does not know
    one_at_a_time: bool = True  # off = attempt n+1 opens while n is STOPPING
    bill_until_proof: bool = True  # off = the ledger stops at the terminate call
    trust_only_verdict: bool = True  # off = a dead trainer without verdict counts as success


ALL_RULES = Rules()
