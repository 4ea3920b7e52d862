"""Orders are checked field by field, and the deadline survives clocks that are wrong by a day."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.order import CLOCKS_AGREE_S, BadOrder, read_order, seconds_left

DAY = 86_400.0
GOOD = {
    "schema": 1,
    "job": "3f2a01",
    "attempt": 1,
    "label": "gpujob-x",
    "token": "t",
    "argv": ["axolotl", "train", "config.yml"],
    "env": {"A": "b"},
    "cwd": ".",
    "deadline_at": 5_000.0,
    "deadline_in_s": 4_000.0,
    "stop_grace_s": 10,
    "expect_adapter": True,
    "self_destruct": None,
}


@pytest.fixture
def order(tmp_path):
    def read(**changes):
        path = tmp_path / "order.json"
        path.write_text(json.dumps({**GOOD, **changes}))
        os.utime(path, (1_000, 1_000))
        return read_order(str(path))

    return read


def test_a_good_order(order, tmp_path):
    found = order()
    assert found.folder == str(tmp_path)
    assert found.out == str(tmp_path / "out")
    assert found.written_at == 1_000
    assert found.expect_adapter
    assert not found.may_stop_early
    assert not order(expect_adapter=False).expect_adapter
    assert order(self_destruct="poweroff").self_destruct == "poweroff"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": 2}, "schema"),
        ({"argv": []}, "argv"),
        ({"argv": "axolotl"}, "argv"),
        ({"argv": ["a", 1]}, "argv"),
        ({"env": {"A": 1}}, "env"),
        ({"env": []}, "env"),
        ({"token": ""}, "token"),
        ({"deadline_at": None}, "deadline_at"),
        ({"deadline_at": "soon"}, "deadline_at"),
        ({"deadline_in_s": -1}, "deadline_in_s"),
        ({"deadline_in_s": True}, "deadline_in_s"),
        ({"deadline_in_s": float("nan")}, "deadline_in_s"),
        ({"stop_grace_s": []}, "stop_grace_s"),
        ({"self_destruct": 3}, "self_destruct"),
    ],
)
def test_a_bad_order_names_the_field(order, changes, field):
    with pytest.raises(BadOrder, match=field):
        order(**changes)


def test_no_order_at_all(tmp_path):
    with pytest.raises(BadOrder, match="no JSON object"):
        read_order(str(tmp_path / "order.json"))


# The order was written at 1000 by the instance's clock, with 4000 s to go: 5000.
@pytest.mark.parametrize(
    ("now", "left"),
    [
        (1_000, 4_000),  # at once
        (1_060, 3_940),  # a minute of upload lay between
        (4_990, 10),
        (5_000, 0),
        (9_000, 0),  # long past: never negative
        (1_000 + 3 * DAY, 0),  # an order from three days ago buys no time
    ],
)
def test_what_is_left(order, now, left):
    assert seconds_left(order(), now) == left


@pytest.mark.parametrize("skew", [DAY, -DAY, 3_600, -3_600, 10 * 365 * DAY])
def test_a_wall_clock_that_is_wrong_does_not_count(order, skew):
    """The orchestrator says 5000, by its own clock; the instance's is off by `skew`."""
    found = order()._replace(written_at=1_000 + skew)
    assert seconds_left(found, 1_000 + skew) == 4_000
    assert seconds_left(found, 1_100 + skew) == 3_900


def test_a_wall_clock_that_is_a_little_ahead_counts(order):
    assert seconds_left(order(deadline_at=4_900.0), 1_000) == 3_900  # the earlier of the two
    assert seconds_left(order(deadline_at=5_100.0), 1_000) == 4_000


@given(
    skew=st.floats(-1e8, 1e8),
    upload_s=st.floats(0, 1e4),
    lease_s=st.floats(0, 1e6),
)
def test_never_later_than_what_the_orchestrator_meant(skew, upload_s, lease_s):
    """Whatever the instance's clock says, the end is at most as far away as was ordered."""
    from orchestrator.agent.order import Order

    order = Order(
        folder="/",
        token="t",
        argv=["x"],
        env={},
        cwd="/",
        out="/",
        deadline_at=2e9 + lease_s,
        deadline_in_s=lease_s,
        stop_grace_s=1,
        expect_adapter=True,
        may_stop_early=False,
        self_destruct=None,
        written_at=2e9 + skew,
        watch=None,
    )
    left = seconds_left(order, 2e9 + skew + upload_s)
    assert left <= max(0.0, lease_s - upload_s) + 1e-3
    assert left >= max(0.0, lease_s - upload_s - CLOCKS_AGREE_S) - 1e-3
