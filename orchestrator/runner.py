"""The runner: observe, decide, perform, record. The only writer of state.

A `Runner` is one process's hands: store, providers, the way to a site. A `Driver` drives one job
under its lease, one `tick` after the other; everything it needs to go on is in the store, so it may
die at any byte. Order of writing: the intent is committed, then the effect, then what came of it.
The lease is checked in every write and immediately before every effect; who lost it stops at once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator import events as ev
from orchestrator import ledger, oom
from orchestrator.actions import Record, Wait
from orchestrator.attempt import Attempt, label_of, label_prefix
from orchestrator.case import Case, terms_of
from orchestrator.clock import Clock
from orchestrator.decide import decide
from orchestrator.fold import apply
from orchestrator.hands import Hands
from orchestrator.holder import new_holder
from orchestrator.home import Home, owner8
from orchestrator.jobflow import Close, Open, next_move
from orchestrator.observation import Described
from orchestrator.perform import perform, take_listing
from orchestrator.plan import JobRecord
from orchestrator.policy import ALL_RULES, DEFAULT_LIMITS, Limits, Rules
from orchestrator.pushing import Pushing
from orchestrator.reads import Reads
from orchestrator.redact import told
from orchestrator.site import Site
from orchestrator.site_order import SiteOrder
from orchestrator.states import Reason, State
from orchestrator.store import Store
from orchestrator.store_engine import StoreError
from orchestrator.store_journal import Admit, LeaseLost
from orchestrator.store_rows import Lease, Progress
from orchestrator.team_budget import UNBOUNDED, TeamBudget, TeamBudgetReached, admission
from orchestrator.watchdog import limits_of
from providers.base import Billing, Instance, InstanceState, Provider

log = logging.getLogger("gpujob.runner")

ROUNDS = 200  # decisions in one tick at the most; a machine needs some thirty from start to end
STORE_RETRY_S = 5.0
CRASH_RETRY_S = 30.0

SiteFactory = Callable[[SiteOrder], Site]


@dataclass(frozen=True, slots=True)
class Happening:
    """What a listener is told, after it was committed. attempt 0: of the job itself."""

    job_id: str
    attempt: int
    event: ev.AnyEvent | None = None
    progress: Progress | None = None
    log_grew: int = 0  # bytes of train.log that came


Listener = Callable[[Happening], None]


class Runner:
    """See the module. Safe for threads; one per process."""

    def __init__(  # noqa: PLR0917 - the composition root passes these six, always
        self,
        store: Store,
        providers: Mapping[str, Provider],
        make_site: SiteFactory,
        home: Home,
        clock: Clock,
        owner: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        rules: Rules = ALL_RULES,
        team: TeamBudget = UNBOUNDED,
        listeners: Sequence[Listener] = (),
        holder: str | None = None,
        draw: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> None:
        self.store = store
        self.providers = dict(providers)
        self.make_site = make_site
        self.home = home
        self.clock = clock
        self.owner = owner
        self.owner8 = owner8(owner)
        self.limits = limits
        self.rules = rules
        self.team = team
        self.listeners = tuple(listeners)
        self.holder = holder or new_holder()
        self.draw = draw
        prefix = label_prefix(self.owner8)
        self.reads = {
            name: Reads(provider, prefix, clock, limits, rules)
            for name, provider in self.providers.items()
        }

    def take(self, job_id: str, *, dead: str = "") -> Driver | None:
        """Return a driver of the job if nobody else drives it (or only `dead` did)."""
        lease = self.store.journal.acquire(job_id, self.holder, self.limits.lease_s, dead=dead)
        if lease is None:
            return None
        try:
            driver = Driver(self, lease)
        except BaseException:
            self.store.journal.release(lease)
            raise
        return driver

    def knows(self, record: JobRecord) -> bool:
        """Return whether all providers that the job may need are configured in this process."""
        return all(offer.provider in self.providers for offer in record.new.offers)

    def pulled(
        self,
        lease: Lease,
        attempt: Attempt,
        sizes: Mapping[str, int],
        figures: Progress | None,
        log_grew: int,
    ) -> None:
        """Commit the bytes that are safe on this disk, and the figures; then tell."""
        ttl_s = self.limits.lease_s
        self.store.journal.pulled(lease, attempt.number, sizes, figures, ttl_s=ttl_s)
        self.tell(Happening(lease.job_id, attempt.number, None, figures, log_grew))

    def tell(self, happening: Happening) -> None:
        """Tell the listeners; none of them can harm the job."""
        for listener in self.listeners:
            try:
                listener(happening)
            except Exception:
                log.exception("a listener failed")


class Driver:
    """One job under one lease. `tick` belongs to one thread; `interrupt` to any."""

    def __init__(self, runner: Runner, lease: Lease) -> None:
        self.runner = runner
        self.lease = lease
        self.lost = False
        self.cancel_seen = False  # the supervisor's note that it has cut what was blocked
        self.record, found = runner.store.load(lease.job_id)
        self.cases = [self._case(attempt) for attempt in found]
        self.pushing = Pushing(runner, self.record, self.commit)

    @property
    def job_id(self) -> str:
        """Return the job's id."""
        return self.lease.job_id

    def tick(self) -> float | None:
        """Do all that is due; return when to come again (UNIX s), None when nothing is left.

        Raises nothing that the world can cause. With the lease lost, `lost` is set.
        """
        now = self.runner.clock.now()
        try:
            return self._tick()
        except LeaseLost:
            log.warning("job %s: taken over by another process", self.job_id)
            self.lost = True
            return None
        except StoreError as error:
            log.error("job %s: %s; trying again", self.job_id, error)  # noqa: TRY400 - no traceback
            return now + STORE_RETRY_S

    def interrupt(self) -> None:
        """Cut what is blocked on the instance, from another thread; the next tick goes on."""
        for case in self.cases:
            case.cut()

    def armed(self) -> bool:
        """Return whether the agent was started on the newest attempt's machine."""
        last = self.cases[-1].attempt if self.cases else None
        return last is not None and last.trainer_started_at is not None

    def overdue(self, now: float) -> bool:
        """Return whether a call on the instance has outlived what its attempt may last."""
        return any(case.call_until is not None and now >= case.call_until for case in self.cases)

    def release(self) -> None:
        """Give the job up and close the connections."""
        self.pushing.stop()
        for case in self.cases:
            case.drop_site()
        if not self.lost:
            self.runner.store.journal.release(self.lease)

    # ---------------------------------------------------------------- one tick

    def _tick(self) -> float | None:
        runner = self.runner
        cancel = runner.store.cancel_of(self.job_id)
        while True:
            self._notice_returned()
            wake = [
                self._advance(case, cancel)
                for case in self.cases
                if case.attempt.state is not State.CLOSED
            ]
            wake += self.pushing.step(self.cases, cancel)
            now = runner.clock.now()
            if self._under_way():
                return min(wake)
            move = next_move(
                self.record.new,
                [case.attempt for case in self.cases],
                cancel=cancel if runner.rules.heed_cancel else None,
                spent_usd=self.cost(now),
                now=now,
                rules=runner.rules,
            )
            if self.record.closed_at is not None and isinstance(move, Open):
                move = Close(Reason.INTERNAL, "")  # closed long ago; only its machine came back
            if isinstance(move, Close):
                self.close(move, now)
                return None
            if move is None:
                return min(wake, default=now + STORE_RETRY_S)
            refused = self._open(move, now)
            if refused is not None:
                self.close(refused, now)
                return None

    def _under_way(self) -> bool:
        """Return whether the newest attempt is open: then there is no other move to think of."""
        newest = self.cases[-1].attempt.state if self.cases else State.CLOSED
        return newest is not State.CLOSED and self.runner.rules.one_at_a_time

    def _advance(self, case: Case, cancel: Reason | None) -> float:
        """Decide and perform until there is nothing to do; return when there will be."""
        clock = self.runner.clock
        for _ in range(ROUNDS):
            now = clock.now()
            # A listing that somebody else needed costs nothing: a late machine is adopted sooner.
            take_listing(case, self.runner.reads[case.attempt.provider].newest)
            case.seen.cancel = cancel
            if case.terms.budget_usd is not None:
                case.seen.cost_usd = self.cost(now)
            try:
                actions = decide(case.attempt, case.seen, now, case.terms)
                for action in actions:
                    if isinstance(action, Wait):
                        return action.until
                    if isinstance(action, Record):
                        self.commit(case, action.event)
                    else:
                        perform(action, case, self._hands(case))
            except StoreError:
                raise
            except Exception as error:
                log.exception("job %s: a mistake of ours", self.job_id)
                if not self._crashed(case, error):
                    return clock.now() + CRASH_RETRY_S
            if case.attempt.state is State.CLOSED:
                case.drop_site()
                break
        return clock.now()

    def _crashed(self, case: Case, error: Exception) -> bool:
        """Turn our own mistake into the one way out; False where the attempt is on it already."""
        now = self.runner.clock.now()
        said = told(error)
        if case.attempt.state in {State.STOPPING, State.CLOSED}:
            if case.attempt.note != said:
                self.commit(case, ev.Noted(now, said))
            return False
        self.commit(case, ev.Aborted(now, Reason.INTERNAL, said))
        return True

    def _hands(self, case: Case) -> Hands:
        runner = self.runner
        return Hands(
            runner=runner,
            lease=self.lease,
            reads=runner.reads[case.attempt.provider],
            commit=lambda *happened: self.commit(case, *happened),
            record=self.record,
            left_usd=self._left_usd(),
            attempts=tuple(known.attempt for known in self.cases),
        )

    # ---------------------------------------------------------------- writing

    def commit(self, case: Case, *happened: ev.AttemptEvent) -> None:
        """Commit events of one attempt in one transaction, then tell."""
        attempt: Attempt = case.attempt
        spec, met = self.record.new.spec, case.figures.peak_gib
        happened = tuple(oom.with_prediction(event, spec, attempt, met) for event in happened)
        for event in happened:
            attempt = apply(attempt, event)
        self._append(happened, attempt)
        case.attempt = attempt

    def _append(
        self, happened: Sequence[ev.AttemptEvent], attempt: Attempt, admit: Admit | None = None
    ) -> None:
        runner = self.runner
        runner.store.journal.append(
            self.lease,
            happened,
            attempt,
            ttl_s=runner.limits.lease_s,
            fenced=runner.rules.fence_writes,
            admit=admit,
        )
        for event in happened:
            runner.tell(Happening(self.job_id, attempt.number, event))

    def _open(self, move: Open, now: float) -> Close | None:
        """Write the next attempt's intent; return the job's end where no money is left for it."""
        runner, new = self.runner, self.record.new
        provider = runner.providers[move.offer.provider]
        traits = provider.traits
        event = ev.Opened(
            now, self.job_id, move.number, label_of(runner.owner8, self.job_id, move.number,
            runner.draw()), move.offer.provider, move.offer, new.launch.disk_gib,
            move.offer.billing_step_s or traits.billing_step_s, traits.list_lag_s,
            move.deadline_at, isinstance(provider, Billing),
        )  # fmt: skip
        attempt = apply(None, event)
        admit = admission(runner.team, attempt, owner8=runner.owner8, now=now)
        try:
            self._append((event,), attempt, admit)
        except TeamBudgetReached as reached:
            return Close(Reason.TEAM_BUDGET, str(reached))
        words = oom.settings_of(new.spec, [known.attempt for known in self.cases])[1]
        self.cases.append(self._case(attempt))
        if words:
            self.commit(self.cases[-1], ev.Noted(now, f"memory ran out: now with {words}"))
        return None

    def close(self, move: Close, now: float) -> None:
        """Commit the job's end, and tell."""
        event = ev.JobClosed(now, move.reason, move.evidence)
        runner = self.runner
        runner.store.journal.close_job(self.lease, event, ttl_s=runner.limits.lease_s)
        runner.tell(Happening(self.job_id, 0, event))

    def begin(self, history: Sequence[ev.AttemptEvent]) -> None:
        """Commit the whole history of an attempt that was found rather than opened."""
        attempt: Attempt | None = None
        for event in history:
            attempt = apply(attempt, event)
        if attempt is not None:
            self._append(history, attempt)
            self.cases.append(self._case(attempt))

    def resurface(self, number: int, instance: Instance) -> None:
        """Take a machine that bears a CLOSED attempt's label back under control."""
        self._resurface(next(c for c in self.cases if c.attempt.number == number), instance)

    def _resurface(self, case: Case, instance: Instance) -> None:
        self.commit(case, ev.Resurfaced(self.runner.clock.now(), instance.id))
        case.forget()

    def _notice_returned(self) -> None:
        """Look for machines of earlier attempts in the listing that the others needed anyway."""
        if not self.runner.rules.keep_suspects:
            return
        for case in self.cases:
            attempt = case.attempt
            if attempt.state is not State.CLOSED or attempt.proof == "yours":
                continue
            reads = self.runner.reads[attempt.provider]
            back = reads.shows(attempt.label, newer_than=attempt.closed_at or 0.0)
            said = reads.describe(back.id) if back is not None else None
            living = said.instance if isinstance(said, Described) else None
            if living is not None and living.state is not InstanceState.GONE:
                self._resurface(case, living)

    # ---------------------------------------------------------------- helpers

    def cost(self, now: float) -> Decimal:
        """Return USD of the whole job up to now."""
        return ledger.cost([case.attempt for case in self.cases], now, self.runner.rules)

    def _left_usd(self) -> Decimal | None:
        budget = self.record.new.caps.budget_usd
        if budget is None:
            return None
        return max(Decimal(0), budget - self.cost(self.runner.clock.now()))

    def _case(self, attempt: Attempt) -> Case:
        watch = limits_of(self.record.new.spec, speed=self.runner.limits.watch_speed)
        return Case(attempt, terms_of(self.runner, self.record, attempt), watch)
