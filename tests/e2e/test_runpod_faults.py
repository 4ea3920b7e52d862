"""The guarantee under every switch of the simulated RunPod: no pod is left, none is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import fault_table
from tests.support.faulty import OK, Fault, play

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]
CASES = [
    pytest.param(f, id=f.name, marks=() if f.name in fault_table.GATE else pytest.mark.prove)
    for f in fault_table.ALL
]


@pytest.mark.parametrize("fault", CASES)
def test_nothing_is_left_whatever_fails(fault: Fault, tmp_path: Path) -> None:
    came = play(fault, tmp_path)
    assert came.left == 0, came.text
    assert came.foreign_alive, "a pod of somebody else was ended"
    assert came.code in fault.ends, came.text
    if came.code == OK:
        assert "training SUCCEEDED   machine GONE" in came.text
