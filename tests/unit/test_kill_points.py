"""The harness of the kill tests, on a real process: it dies where it is told, and nowhere else."""

import subprocess
import sys

import pytest

from orchestrator import points
from orchestrator.store import Store, UnknownJob
from tests.support.core import T0

CHILD = """
import sys
from orchestrator import points
from orchestrator.store import Store
from tests.support.core import T0, new_job
from tests.support.kill_main import hook_from
store = Store.open(sys.argv[1])
points.install(hook_from(sys.argv[2], sys.argv[3]))
store.create_job(new_job(), now=T0)
store.ask_cancel("abc123", now=T0)
"""

POINTS = [
    "journal.before:JobSubmitted",
    "journal.after:JobSubmitted",
    "journal.before:CancelAsked",
    "journal.after:CancelAsked",
]


@pytest.mark.parametrize(
    ("kill_at", "died_at"),
    [("", 4), ("1", 1), ("3", 3), ("9", 4), (POINTS[1], 2), (f"{POINTS[2]}#1", 3),
     (f"{POINTS[2]}#2", 4)],
)  # fmt: skip
def test_it_dies_at_the_point_and_what_was_committed_is_there(tmp_path, kill_at, died_at):
    url, seen = f"sqlite:///{tmp_path}/gpujob.db", tmp_path / "points"
    Store.open(url).close()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, url, kill_at, str(seen)], check=False, timeout=60
    )
    killed = kill_at not in {"", "9", f"{POINTS[2]}#2"}
    assert done.returncode == (-9 if killed else 0)
    assert seen.read_text().splitlines() == POINTS[:died_at]
    store = Store.open(url)
    if died_at < 2:
        with pytest.raises(UnknownJob):
            store.job("abc123", now=T0)
    else:
        cancelled = store.job("abc123", now=T0).cancel_asked_at is not None
        assert cancelled == (died_at == 4)
    store.close()


def test_a_point_costs_nothing_where_no_hook_is_installed():
    points.install(None)
    points.reach("anything")
