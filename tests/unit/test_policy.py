"""Limits from the environment, and the table of launch errors."""

import pytest

from orchestrator.policy import (
    ALL_RULES,
    ON_LAUNCH_ERROR,
    LimitRefusedError,
    Limits,
    Rules,
    Then,
    limits_from,
    on_launch_error,
)
from providers import errors
from tests.support.core import TRAITS


def every_error():
    found, todo = [], [errors.ProviderError]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == "providers.errors"]


def test_every_provider_error_has_a_row():
    assert set(ON_LAUNCH_ERROR) == set(every_error())


@pytest.mark.parametrize("cls", every_error())
def test_an_unknown_outcome_is_never_launched_again(cls):
    then = ON_LAUNCH_ERROR[cls].then
    if cls.outcome_unknown or cls is errors.ProviderError:
        assert then is Then.SETTLE
    elif cls.retryable:
        assert then is Then.WAIT
    else:
        assert then in {Then.NEXT_OFFER, Then.END_JOB}


def test_the_nearest_base_decides_and_strangers_settle():
    class Vendor(errors.NoCapacity):
        pass

    assert on_launch_error(Vendor("x")).then is Then.NEXT_OFFER
    assert on_launch_error(RuntimeError("a bug in an adapter")).then is Then.SETTLE


def test_limits_come_from_the_environment():
    limits = limits_from({"GPUJOB_SETTLE_GAP_S": "0.5", "GPUJOB_SETTLE_READS": "3", "HOME": "/x"})
    assert (limits.settle_gap_s, limits.settle_reads) == (0.5, 3)
    assert limits_from({}) == Limits()


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan", ""])
def test_a_bad_limit_is_named(text):
    with pytest.raises(LimitRefusedError, match="GPUJOB_LEASE_S"):
        limits_from({"GPUJOB_LEASE_S": text})


def test_the_documented_figures():
    limits = Limits()
    assert (limits.settle_reads, limits.settle_gap_s) == (12, 10.0)
    assert (limits.settle_late_1_s, limits.settle_late_2_s) == (300.0, 900.0)
    assert limits.suspect_s == 24 * 3600
    assert (limits.alarm_failures, limits.alarm_after_s, limits.alarm_again_s) == (3, 60.0, 3600.0)
    assert limits.requests_per_minute == 12
    assert limits.absence_gap(TRAITS) == TRAITS.list_lag_s == 10.0


def test_all_rules_are_on():
    assert all(getattr(ALL_RULES, name) for name in Rules.__dataclass_fields__)
