"""One attempt as its events tell it: the fold's result, the snapshot in the store. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from orchestrator.states import MAY_HOLD_A_MACHINE, Reason, State
from providers.base import HostKey, InstanceId, Offer


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the instance is reached; host_key None: nobody could vouch for one."""

    host: str
    port: int
    user: str
    host_key: HostKey | None = None
    workdir: str | None = None
    key_file: str | None = None  # None: the job's own key
    axolotl_env: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that was seen under the attempt's label, from first sight to proof of absence.

    rates: (from, USD per hour) as the provider told them; empty: the offer's price holds.
    absent_at: the newest read that showed it gone; a second one, a gap later, is the proof.
    """

    id: InstanceId
    first_seen_at: float
    created_at: float | None = None
    rates: tuple[tuple[float, Decimal], ...] = ()
    terminate_first_at: float | None = None
    terminate_last_at: float | None = None
    terminate_calls: int = 0
    terminate_failures: int = 0  # since the last one that was accepted
    terminate_error: str = ""
    terminate_after: float = 0.0  # the provider asked us to wait
    definite_refusal: bool = False  # the newest error was no passing one: the key, the account
    absent_at: float | None = None
    absence_reads: int = 0
    gone_at: float | None = None
    billed_usd: Decimal | None = None  # what the provider says it charged, so far
    bill_whole: bool = False  # and that grows no more
    bill_tries: int = 0
    bill_tried_at: float | None = None
    bill_error: str = ""  # of the newest try


@dataclass(frozen=True, slots=True)
class Push:
    """What is known of one place that the result is pushed to. where: set once it is verified."""

    target: str
    where: str = ""
    error: str = ""
    remedy: str = ""
    failed: bool = False  # and not tried again by itself
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a job. Times are UNIX seconds or None; `offer` is frozen with its price."""

    job_id: str
    number: int
    label: str
    provider: str
    offer: Offer
    disk_gib: int
    billing_step_s: float
    list_lag_s: float
    opened_at: float
    deadline_at: float
    bills: bool = False  # the provider can tell what it charged
    state: State = State.INTENDED
    reason: Reason | None = None
    evidence: str = ""
    launch_first_at: float | None = None  # the first launch call; a rate-limited one is repeated
    launch_asked_at: float | None = None  # the call that may have had an effect; None: none may
    launch_open: bool = False  # asked, and its outcome is not known
    launch_after: float = 0.0
    launch_error: str = ""
    settle_reads: int = 0
    settle_last_at: float | None = None
    machines: tuple[Machine, ...] = ()
    main_id: InstanceId | None = None
    launched_at: float | None = None
    endpoint: Endpoint | None = None
    ssh_ready_at: float | None = None
    prepare_step: str = ""
    start_asked_at: float | None = None
    trainer_started_at: float | None = None
    kept_step: int | None = None  # of the newest checkpoint at home
    trainer_exited_at: float | None = None
    pushed_at: float | None = None
    files: tuple[tuple[str, int, str], ...] = ()
    folder: str = ""
    pushes: tuple[Push, ...] = ()  # in the order in which they were heard of
    stopping_at: float | None = None
    closed_at: float | None = None
    proof: str = ""
    ended_at: float | None = None  # by a word beyond reads: of a machine that was rented by hand
    ended_by: str = ""
    suspect_until: float | None = None
    alarm_at: float | None = None
    alarm_text: str = ""
    note: str = ""

    @property
    def main(self) -> Machine | None:
        """Return the machine that the attempt works on."""
        return self.machine(self.main_id) if self.main_id is not None else None

    def machine(self, instance_id: InstanceId) -> Machine | None:
        """Return a known machine by its id."""
        return next((m for m in self.machines if m.id == instance_id), None)

    def push(self, target: str) -> Push:
        """Return what is known of a place; nothing yet, if nothing was heard."""
        return next((push for push in self.pushes if push.target == target), Push(target))

    @property
    def living(self) -> tuple[Machine, ...]:
        """Return the machines that are not proven gone."""
        return tuple(m for m in self.machines if m.gone_at is None)

    @property
    def may_bill(self) -> bool:
        """Return whether a machine of it may be costing money now."""
        if self.state not in MAY_HOLD_A_MACHINE:
            return False
        return bool(self.living) or self.launch_open


def label_of(owner8: str, job_id: str, number: int, rand: str) -> str:
    """Return the unique name of an attempt's machine, `gpujob-<owner8>-<job>-<attempt>-<rand6>`."""
    return f"{label_prefix(owner8)}{job_id}-{number}-{rand}"


def label_prefix(owner8: str) -> str:
    """Return what all machines of one owner are called."""
    return f"gpujob-{owner8}-"


def parse_label(label: str) -> tuple[str, str, int] | None:
    """Return (owner8, job id, attempt number) of a label of ours; None for anything else."""
    parts = label.split("-")
    if len(parts) != 5 or parts[0] != "gpujob" or not parts[3].isascii() or not parts[3].isdigit():
        return None
    if not all(parts) or len(parts[3]) > 6:
        return None
    return parts[1], parts[2], int(parts[3])
