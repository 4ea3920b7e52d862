"""From events to money, to the micro-dollar."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from orchestrator import events as ev
from orchestrator import ledger
from orchestrator.fold import fold
from orchestrator.policy import Rules
from orchestrator.states import Reason, Teardown
from orchestrator.views_build import attempt_view
from providers.base import HANDED_ON, InstanceId
from tests.support.core import M1, M2, T0, launched, offer, opened

PRICE = Decimal("1.80")  # 0.0005 USD a second


def gone(at: float, machine: InstanceId = M1) -> list[Any]:
    return [
        ev.TerminateAsked(at - 20.0, machine),
        ev.TerminateAccepted(at - 20.0, machine),
        ev.AbsenceRead(at - 10.0, machine),
        ev.MachineGone(at, machine),
    ]


def stopped(at: float) -> list[Any]:
    return [ev.Aborted(at, Reason.CANCELLED, "")]


def test_from_the_launch_call_to_the_proof():
    attempt = fold([*launched(), *stopped(T0 + 50), *gone(T0 + 100)])
    (line,) = ledger.lines([attempt], T0 + 9999)
    assert (line.start, line.end) == (T0, T0 + 100)
    assert line.usd == Decimal("0.050000")
    assert ledger.cost([attempt], T0 + 9999) == ledger.cost([attempt], T0 + 999_999)


def test_the_meter_runs_until_the_second_read():
    attempt = fold([*launched(), *stopped(T0 + 50), *gone(T0 + 100)[:-1]])
    (line,) = ledger.lines([attempt], T0 + 200)
    assert line.end is None
    assert line.usd == Decimal("0.100000")


@pytest.mark.parametrize(
    ("step", "lasted", "usd"),
    [
        (1.0, 10.2, "0.005500"),  # 11 s
        (60.0, 61.0, "0.060000"),  # 120 s
        (60.0, 60.0, "0.030000"),
        (0.0, 0.001, "0.000001"),  # never rounded down to nothing
        (1.0, 0.0, "0"),
    ],
)
def test_time_is_rounded_up_to_the_billing_step(step, lasted, usd):
    attempt = fold([opened(billing_step_s=step), ev.LaunchAsked(T0)])
    assert ledger.cost([attempt], T0 + lasted) == Decimal(usd)


def test_a_refused_launch_costs_nothing():
    attempt = fold([opened(), ev.LaunchAsked(T0), ev.Refused(T0 + 30, Reason.NO_CAPACITY, "")])
    assert ledger.lines([attempt], T0 + 9999) == []


def test_a_rate_limited_launch_is_counted_from_the_call_that_worked():
    attempt = fold(
        [opened(), ev.LaunchAsked(T0), ev.LaunchDelayed(T0 + 1, "429", T0 + 60),
         ev.LaunchAsked(T0 + 60), ev.MachineSeen(T0 + 61, M1, "answered"),
         ev.Launched(T0 + 61, M1)]
    )  # fmt: skip
    (line,) = ledger.lines([attempt], T0 + 100)
    assert line.start == T0 + 60


def test_a_suspect_costs_nothing_but_has_an_upper_bound():
    history: list[Any] = [opened(), ev.LaunchAsked(T0), ev.LaunchUnclear(T0, "500")]
    assert ledger.cost([fold(history)], T0 + 100) == Decimal("0.050000")  # perhaps: counted
    history += [
        ev.Aborted(T0 + 900, Reason.LAUNCH_UNKNOWN, "500"),
        ev.InstanceGone(T0 + 900, "suspect", T0 + 900 + 86_400),
    ]
    (line,) = ledger.lines([fold(history)], T0 + 9999)
    assert line.usd == 0
    assert line.upper_bound_usd == Decimal("1.800000")  # its deadline is after one hour
    (total,) = ledger.totals([fold(history)], "job", T0 + 9999)
    assert (total.total_usd, total.upper_bound_usd) == (Decimal(0), Decimal("1.800000"))


def test_a_suspect_that_came_back_is_billed_from_the_launch_call():
    attempt = fold(
        [opened(), ev.LaunchAsked(T0), ev.LaunchUnclear(T0, "500"),
         ev.Aborted(T0 + 900, Reason.LAUNCH_UNKNOWN, ""),
         ev.InstanceGone(T0 + 900, "suspect", T0 + 90_000),
         ev.Resurfaced(T0 + 2000, M1), *gone(T0 + 2100), ev.InstanceGone(T0 + 2100, "reads")]
    )  # fmt: skip
    (line,) = ledger.lines([attempt], T0 + 9999)
    assert (line.start, line.end, line.upper_bound_usd) == (T0, T0 + 2100, Decimal(0))


def test_a_double_is_a_line_of_its_own():
    attempt = fold([*launched(), ev.MachineSeen(T0 + 30, M2, "double"), *gone(T0 + 100, M2)])
    main, double = ledger.lines([attempt], T0 + 200)
    assert (main.instance_id, main.end) == (M1, None)
    assert (double.instance_id, double.start, double.end) == (M2, T0, T0 + 100)


def test_what_the_provider_says_is_the_price():
    history: list[Any] = launched()
    history[2] = replace(history[2], usd_per_hour=Decimal("3.60"))
    assert ledger.cost([fold(history)], T0 + 100) == Decimal("0.100000")


def test_a_price_change_is_an_interval_and_nothing_is_priced_anew():
    attempt = fold([*launched(), ev.PriceSeen(T0 + 100, M1, Decimal("3.60"))])
    assert ledger.cost([attempt], T0 + 100) == Decimal("0.050000")
    assert ledger.cost([attempt], T0 + 200) == Decimal("0.150000")


def test_the_disk_costs_extra_where_it_does():
    disk = offer(storage_usd_per_gib_hour=Decimal("0.0001"))
    attempt = fold([opened(offer=disk, disk_gib=36), *launched()[1:]])
    compute, storage = ledger.lines([attempt], T0 + 100)
    assert (compute.kind, storage.kind) == ("compute", "storage")
    assert storage.usd == Decimal("0.000100")
    fixed = replace(disk, disk_gib=100.0)
    assert len(ledger.lines([fold([opened(offer=fixed, disk_gib=36), *launched()[1:]])], T0)) == 1


def test_days_are_cut_at_utc_midnight():
    midnight = datetime(2027, 1, 16, tzinfo=UTC).timestamp()
    attempt = fold(
        [opened(midnight - 100), ev.LaunchAsked(midnight - 100),
         ev.MachineSeen(midnight - 99, M1, "answered"), ev.Launched(midnight - 99, M1),
         *stopped(midnight + 10), *gone(midnight + 86_400 + 50.5)]
    )  # fmt: skip
    days = ledger.totals([attempt], "day", midnight + 999_999)
    assert [d.key for d in days] == ["2027-01-15", "2027-01-16", "2027-01-17"]
    assert [d.total_usd for d in days] == [
        Decimal("0.050000"), Decimal("43.200000"), Decimal("0.025500"),
    ]  # fmt: skip
    assert sum(d.total_usd for d in days) == ledger.cost([attempt], midnight + 999_999)


def test_an_end_at_midnight_leaves_nothing_for_the_next_day():
    midnight = datetime(2027, 1, 16, tzinfo=UTC).timestamp()
    attempt = fold([opened(midnight - 10), ev.LaunchAsked(midnight - 10)])
    days = ledger.totals([attempt], "day", midnight)
    assert [(d.key, d.total_usd) for d in days] == [("2027-01-15", Decimal("0.005000"))]


def test_sums_by_job_and_provider_say_what_never_served():
    first = fold([*launched(), *stopped(T0 + 50), *gone(T0 + 100)])
    served = fold(
        [*launched(), ev.SshReady(T0 + 1), ev.StartAsked(T0 + 1), ev.TrainerStarted(T0 + 2)]
    )
    second = replace(served, number=2, label="x")
    (total,) = ledger.totals([first, second], "job", T0 + 100)
    assert (total.key, total.total_usd) == ("abc123", Decimal("0.100000"))
    assert (total.unserved_usd, total.open) == (Decimal("0.050000"), True)
    (by_provider,) = ledger.totals([first, second], "provider", T0 + 100)
    assert (by_provider.key, by_provider.total_usd) == ("fake", Decimal("0.100000"))


def test_a_notional_price_is_marked():
    attempt = fold([opened(offer=offer(price_is_notional=True)), *launched()[1:]])
    assert ledger.totals([attempt], "job", T0 + 1)[0].notional


def test_with_the_rule_off_the_ledger_stops_at_the_terminate_call():
    attempt = fold([*launched(), *stopped(T0 + 50), *gone(T0 + 100)])
    cut = ledger.cost([attempt], T0 + 9999, Rules(bill_until_proof=False))
    assert cut == Decimal("0.040000")


def test_seconds_are_exact_to_the_microsecond():
    assert ledger.seconds(1_800_000_000.123456) == Decimal("1800000000.123456")


def by_hand(*more: Any) -> Any:
    end: list[Any] = [
        ev.TerminateAsked(T0 + 60, M1),
        ev.TerminateAccepted(T0 + 60, M1),
        ev.MachineGone(T0 + 61, M1),
        ev.InstanceGone(T0 + 61, "yours"),
    ]
    return fold([*launched(), *stopped(T0 + 50), *end, *more])


def test_a_machine_rented_by_hand_costs_until_its_owner_says_otherwise():
    attempt = by_hand()
    (line,) = ledger.lines([attempt], T0 + 200)
    assert (line.end, line.usd) == (None, Decimal("0.100000"))
    view = attempt_view(attempt, None, T0 + 200)
    assert (view.teardown, view.gone_at) == (Teardown.YOURS_TO_CLOSE, None)


def test_the_owners_word_stops_that_meter_at_its_time():
    attempt = by_hand(ev.EndDeclared(T0 + 500, M1, T0 + 100, "owner"))
    (line,) = ledger.lines([attempt], T0 + 9999)
    assert (line.end, line.usd) == (T0 + 100, Decimal("0.050000"))
    view = attempt_view(attempt, None, T0 + 9999)
    assert (view.teardown, view.gone_at) == (Teardown.CLOSED_BY_OWNER, T0 + 100)


def test_a_machine_handed_on_is_counted_on_by_the_next_and_by_it_alone():
    """Its step is not rounded up in the middle: the meter runs on with the next attempt."""
    first = replace(by_hand(ev.EndDeclared(T0 + 100, M1, T0 + 90, HANDED_ON)), billing_step_s=60.0)
    (line,) = ledger.lines([first], T0 + 9999)
    assert (line.end, line.usd) == (T0 + 90, Decimal("0.045000"))
    view = attempt_view(first, None, T0 + 9999)
    assert (view.teardown, view.gone_at) == (Teardown.HANDED_ON, T0 + 90)


def test_the_owners_own_command_is_a_read_not_a_word():
    attempt = by_hand(ev.EndDeclared(T0 + 90, M1, T0 + 90, "check_command"))
    assert attempt_view(attempt, None, T0 + 9999).teardown is Teardown.GONE
