"""What survives the process: killed at every point, restarted, asleep, and our own mistakes."""

from typing import Any

import pytest

from orchestrator import points
from orchestrator.states import Outcome, Reason, State, Teardown
from tests.support.bench import Bench


@pytest.fixture
def bench(tmp_path):
    yield (made := Bench(tmp_path))
    points.install(None)
    made.store.close()


def test_a_restarted_process_goes_on_where_the_last_one_was(bench):
    bench.submit()
    bench.stub.work_s = 300.0
    for number in range(12):
        driver = bench.runner(f"p{number}").take("abc123")
        for _ in range(3):
            again = driver.tick()
            if again is not None:
                bench.clock.advance(max(0.0, again - bench.clock.now()))
        if again is None:
            break
        driver.release()
    job = bench.drive(bench.runner("last").take("abc123")) if again is not None else bench.view()
    assert job.outcome is Outcome.SUCCEEDED
    assert (len(bench.cloud.machines), bench.stub.starts) == (1, 1)
    assert bench.home.log_path("abc123", 1).read_bytes() == bench.stub.log


class Killed(BaseException):
    pass


# Dead between the intent and the call, nobody can tell whether it was made: after the settle window
# the attempt is closed as a suspect, and another one serves.
UNKNOWABLE = {"journal.after:LaunchAsked", "provider.before:launch"}


def test_killed_at_every_point_and_started_again(bench, tmp_path):
    """At each named point in turn: the process dies there, another takes over, all ends well."""
    names: list[Any] = []
    bench.submit()
    points.install(names.append)
    bench.drive()
    assert len(names) >= 60
    for number in range(len(names)):
        world = Bench(tmp_path / str(number))
        world.submit()
        reached: list[Any] = []

        def kill(name, reached=reached, number=number):
            reached.append(name)
            if len(reached) == number + 1:
                raise Killed

        points.install(kill)
        try:
            world.drive(world.runner("first").take("abc123"))
        except Killed:
            points.install(None)
            driver = world.runner("second").take("abc123", dead="first")
            if driver is not None:
                world.drive(driver)
        points.install(None)
        job = world.view()
        at = f"killed at {number}: {names[number]}"
        assert job.closed_at is not None, at
        unknown = names[number] in UNKNOWABLE
        assert job.outcome is Outcome.SUCCEEDED, at
        assert job.attempts[-1].teardown is Teardown.GONE, at
        assert job.teardown is (Teardown.SUSPECT if unknown else Teardown.GONE), at
        assert len(world.cloud.machines) == 1, at
        assert len(job.attempts) == (2 if unknown else 1), at
        assert world.stub.starts == 1, at
        assert world.cloud.living() == [], at
        assert job.cost_usd >= world.cloud.total_bill(), at
        world.store.close()


def test_who_lost_the_lease_makes_no_call(bench):
    bench.submit()
    driver = bench.runner("slow").take("abc123")
    taken: list[Any] = []

    def pause(name):
        if name == "journal.after:LaunchAsked" and not taken:
            taken.append(bench.runner("fast").take("abc123", dead="slow"))

    points.install(pause)
    assert driver.tick() is None
    assert driver.lost
    assert bench.cloud.machines == {}
    points.install(None)
    driver.release()  # harmless
    bench.drive(taken[0], for_s=100.0)
    assert "LaunchUnclear" not in bench.kinds()
    assert bench.kinds().count("LaunchAsked") == 1


def test_our_own_mistake_ends_the_machine_and_says_so(bench):
    bench.submit()
    bench.stub.errors["status"] = ZeroDivisionError("a bug of ours")
    job = bench.drive()
    assert (job.reason, job.exit_code, job.teardown) == (Reason.INTERNAL, 4, Teardown.GONE)
    assert "ZeroDivisionError: a bug of ours" in job.evidence
    assert bench.cloud.living() == []


def test_a_mistake_while_stopping_never_stops_the_stopping(bench, monkeypatch):
    bench.submit()
    real = bench.provider.describe
    broken: list[int] = []

    def describe(instance_id):
        if bench.stub.starts and len(broken) < 3 and bench.view().state is State.STOPPING:
            broken.append(1)
            raise ZeroDivisionError("a bug in the adapter")
        return real(instance_id)

    monkeypatch.setattr(bench.provider, "describe", describe)
    job = bench.drive()
    assert (job.outcome, job.teardown) == (Outcome.SUCCEEDED, Teardown.GONE)
    assert len(broken) == 3
    assert "Noted" in bench.kinds()
