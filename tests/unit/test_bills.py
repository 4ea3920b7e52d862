"""Bills: read over closed hours, pending until they grow no more, kept beside our own estimate."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.billed import Bill, Billed
from orchestrator.bills import WINDOW_S, read_bills
from orchestrator.report import status_lines
from orchestrator.report_cost import cost_csv, cost_lines
from orchestrator.report_text import Screen
from orchestrator.states import Teardown
from orchestrator.sweep import sweep
from providers.errors import ProviderError, Unavailable
from tests.support.bench import Bench

HOUR_S, AFTER_S = 3600.0, 900.0
WIDE = Screen(width=120)


class Bills:
    """What the provider answers when it is asked for a bill, and how often it was."""

    def __init__(self, bench: Bench) -> None:
        self.asked: list[tuple[float, float]] = []
        self.answer: Decimal | ProviderError | None = None
        vars(bench.provider)["billed"] = self.billed

    def billed(self, _: Any, start: float, end: float) -> Decimal | None:
        self.asked.append((start, end))
        if isinstance(self.answer, ProviderError):
            raise self.answer
        return self.answer


@pytest.fixture
def bench(tmp_path: Any) -> Iterator[Bench]:
    yield (made := Bench(tmp_path))
    made.store.close()


@pytest.fixture
def bills(bench: Bench) -> Bills:
    """Return the bills of a job that trained and is over; its last hour has just ended."""
    found = Bills(bench)
    bench.submit()
    bench.stub.work_s = 1200.0
    assert bench.drive().teardown is Teardown.GONE
    (attempt,) = bench.view().attempts
    assert attempt.gone_at is not None
    bench.clock.advance(-bench.clock.now() % HOUR_S)
    return found


def test_a_bill_is_pending_until_it_grows_no_more(bench: Bench, bills: Bills) -> None:
    estimate = bench.view().cost_usd
    runner = bench.runner()
    assert read_bills(runner) == 0  # the hour is over, and may still be filled in
    assert bench.view().billed == Billed(Bill.PENDING)
    bench.clock.advance(AFTER_S)
    bills.answer = Decimal("0.30")
    assert read_bills(runner) == 1
    assert bench.view().billed.known is None
    assert read_bills(runner) == 0
    for amount, state in (("0.58", Bill.PENDING), ("0.58", Bill.WHOLE)):
        bench.clock.advance(HOUR_S)
        bills.answer = Decimal(amount)
        assert read_bills(runner) == 1
        assert bench.view().billed.state is state
    bench.clock.advance(10 * HOUR_S)
    assert read_bills(runner) == 0
    job = bench.view()
    assert (job.billed.usd, job.billed.estimate_usd) == (Decimal("0.58"), estimate)
    assert job.cost_usd == estimate  # never re-priced
    (attempt,) = job.attempts
    gone_at = attempt.gone_at or 0.0
    assert all(start < gone_at == end for start, end in bills.asked)
    assert bench.kinds().count("BillRead") == 3


def test_a_difference_is_pointed_at_and_a_small_one_is_not(bench: Bench, bills: Bills) -> None:
    runner, estimate = bench.runner(), bench.view().cost_usd
    bills.answer = (estimate * Decimal("0.9")).quantize(Decimal("0.000001"))
    for pause in (AFTER_S, HOUR_S):
        bench.clock.advance(pause)
        sweep(runner)  # the bills are the sweep's errand
    job = bench.view()
    assert job.billed.differs
    assert "look at the account's own bill" in " ".join(status_lines(job, 0.0, WIDE))
    rows = bench.store.totals("job", now=bench.clock.now())
    shown = cost_lines(rows, {}, "job", WIDE)
    assert f"{bills.answer:.2f}!" in "\n".join(shown)
    assert cost_csv(rows, {}, "job")[1].endswith(f"billed,{bills.answer},{estimate:.6f},yes")
    assert not Billed(Bill.WHOLE, estimate * Decimal("0.96"), estimate).differs
    assert not Billed(Bill.WHOLE, Decimal("0.001"), Decimal("0.010")).differs
    day = bench.store.totals("day", now=bench.clock.now())
    assert [row.billed for row in day] == [Billed()]


def test_an_endpoint_that_is_off_is_asked_less_and_less(bench: Bench, bills: Bills) -> None:
    runner = bench.runner()
    bills.answer = Unavailable("500 from the billing endpoint")
    until = bench.clock.now() + 2 * WINDOW_S
    while bench.clock.now() < until:
        bench.clock.advance(600.0)
        sweep(runner)
    assert 10 < len(bills.asked) < 25
    job = bench.view()
    assert job.billed.state is Bill.UNANSWERED
    assert "not answered" in " ".join(status_lines(job, 0.0, WIDE))
    assert bench.view().teardown is Teardown.GONE


def test_nobody_is_asked_for_a_job_that_another_process_drives(bench: Bench, bills: Bills) -> None:
    other = bench.runner("another").take("abc123")
    assert other is not None
    bench.clock.advance(AFTER_S)
    bench.store.journal.renew("another", 1e6)
    assert read_bills(bench.runner()) == 0
    assert bills.asked == []
    other.release()
    assert read_bills(bench.runner()) == 1
