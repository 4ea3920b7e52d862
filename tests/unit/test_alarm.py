"""Alarms: what there is to say, remembered once, delivered for real, also after a restart."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.alarm import Alarmer
from orchestrator.alarm_matters import KINDS, OLD_S, Matter, matters
from orchestrator.alarm_send import Channels, NotSent, environment_for, message, send, signature
from orchestrator.redact import remember_secrets
from orchestrator.states import Outcome, Reason, State, Teardown
from orchestrator.store_alarms import Alarms
from providers.errors import Unavailable
from providers.fake import Verb
from tests.support.bench import Bench
from tests.support.clocks import VirtualClock
from tests.support.core import memory_store
from tests.support.ears import listening
from tests.support.job_views import JOB as RUNNING
from tests.support.job_views import NOW, billing, succeeded

BILLING, DONE = billing(), succeeded()
SAID = Matter("abc123/finished", "abc123", "finished", NOW, "tone #abc123: training SUCCEEDED")


def kinds(job, now=NOW):
    return [matter.kind for matter in matters(job, now)]


def test_what_there_is_to_say():
    assert kinds(RUNNING) == []
    (billing,) = matters(BILLING, NOW)
    assert billing.kind == "still_billing"
    assert "STILL BILLING" in billing.text
    ended = replace(DONE, closed_at=NOW - 5)
    assert kinds(ended) == ["finished"]
    assert kinds(replace(DONE, closed_at=NOW - OLD_S - 5)) == []  # no news any more
    attempt = replace(RUNNING.attempts[-1], reason=Reason.STALLED, trainer_exited_at=NOW - 3)
    assert kinds(replace(RUNNING, attempts=(attempt,))) == ["stalled"]
    mine = replace(RUNNING.attempts[-1], teardown=Teardown.YOURS_TO_CLOSE)
    assert kinds(replace(RUNNING, attempts=(mine,))) == ["yours_to_close"]


@pytest.mark.parametrize(("spent", "said"), [("7.99", False), ("8.00", True), ("12", True)])
def test_the_budget_at_eighty_percent(spent, said):
    job = replace(RUNNING, budget_usd=Decimal(10), cost_usd=Decimal(spent))
    assert ("budget" in kinds(job)) is said
    assert "budget" not in kinds(replace(job, closed_at=NOW, outcome=Outcome.FAILED))


def test_still_billing_is_said_again_each_hour_and_only_then():
    keys = {matters(BILLING, NOW + minutes * 60)[0].key for minutes in range(0, 180, 5)}
    assert 3 <= len(keys) <= 4


def test_each_matter_is_remembered_once_and_claimed_by_one():
    alarms = Alarms(memory_store().database)
    assert alarms.note([SAID, SAID]) == 1
    assert alarms.note([SAID]) == 0
    (pending,) = alarms.claim(NOW, 60.0)
    assert pending.matter == SAID
    assert alarms.claim(NOW + 59, 60.0) == []  # another is sending it
    (again,) = alarms.claim(NOW + 61, 60.0)  # ... and died
    assert again.tries == 1
    alarms.failed(SAID.key, "no route", NOW + 200)
    assert alarms.claim(NOW + 199, 60.0) == []
    assert alarms.unheard()[0][1:] == (2, "no route")
    alarms.claim(NOW + 200, 60.0)
    alarms.delivered(SAID.key, NOW + 201)
    assert alarms.unheard() == []
    assert alarms.claim(NOW + 9999, 60.0) == []
    assert alarms.note([SAID]) == 0


# ---------------------------------------------------------------- channels


def test_a_webhook_is_posted_to_and_signed():
    with listening() as ears:
        send(SAID, Channels(webhook=ears.url, secret="s3cret-of-mine"), VirtualClock())
    ((_, headers, body),) = ears.posts
    at, digest = headers["x-gpujob-signature"].removeprefix("t=").split(",v1=")
    expected = hmac.new(b"s3cret-of-mine", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == expected
    assert signature("s3cret-of-mine", int(at), body) == headers["x-gpujob-signature"]
    assert json.loads(body) == message(SAID)
    assert message(SAID)["kind"] in KINDS


def test_a_webhook_that_falters_is_tried_again():
    with listening() as ears:
        ears.answers = [503, 429]
        send(SAID, Channels(webhook=ears.url), VirtualClock())
        assert len(ears.posts) == 3
        assert len(ears.heard) == 1


@pytest.mark.parametrize(("answers", "posts"), [([404], 1), ([302], 1), ([500] * 9, 3)])
def test_a_webhook_that_refuses_is_said_without_its_address(answers, posts):
    with listening() as ears:
        ears.answers = list(answers)
        with pytest.raises(NotSent) as refused:
            send(SAID, Channels(webhook=f"{ears.url}/hook/T0K3N"), VirtualClock())
        assert len(ears.posts) == posts
    assert "T0K3N" not in str(refused.value)
    assert str(answers[0]) in str(refused.value)


def test_nobody_at_the_address():
    with pytest.raises(NotSent, match="refused"):
        send(SAID, Channels(webhook="http://127.0.0.1:9/T0K3N"), VirtualClock())


def test_a_command_hears_the_message_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa-very-secret-value")
    monkeypatch.setenv("GPUJOB_ALARM_SECRET", "another-secret-value")
    monkeypatch.setenv("NEUTRAL", "x-rpa-very-secret-value-x")
    remember_secrets(["rpa-very-secret-value"])
    heard = tmp_path / "heard"
    command = f'cat > "{heard}"; echo "$GPUJOB_ALARM_TEXT" >> "{heard}"; env >> "{heard}"'
    matter = replace(SAID, text="the key rpa-very-secret-value was refused")
    send(matter, Channels(command=command), VirtualClock())
    text = heard.read_text()
    assert '"kind": "finished"' in text
    assert "the key *** was refused\n" in text
    assert "very-secret" not in text
    assert "another-secret" not in text
    assert "PATH" in environment_for(message(SAID), {"PATH": "/bin"})


def test_a_command_that_fails_is_said_and_the_other_channel_is_enough():
    with pytest.raises(NotSent, match=r"command: exit status 7\s+no mail today"):
        send(SAID, Channels(command="echo no mail today >&2; exit 7"), VirtualClock())
    with listening() as ears:
        send(SAID, Channels(command="exit 7", webhook=ears.url), VirtualClock())
        assert len(ears.heard) == 1


def test_a_command_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr("orchestrator.alarm_send.COMMAND_S", 0.2)
    with pytest.raises(NotSent, match="still running"):
        send(SAID, Channels(command="sleep 600"), VirtualClock())


# ---------------------------------------------------------------- the whole


def billing_bench(tmp_path):
    """Return a bench whose job ended, and whose machine cannot be ended."""
    bench = Bench(tmp_path)
    bench.submit()
    bench.fail(Verb.TERMINATE, *[Unavailable("503")] * 10_000)
    return bench


def test_a_terminate_that_keeps_failing_is_heard_within_a_minute_once(tmp_path):
    """By the job's own clock; a restart in between changes nothing."""
    bench = billing_bench(tmp_path)
    heard = []

    def alarmer():
        def remember(matter, *_):
            heard.append((bench.clock.now(), matter))

        return Alarmer(bench.store, bench.clock, Channels(command="true"), send=remember)

    first = alarmer()
    stopping: list[float] = []

    def look():
        view = bench.view()
        if view.state is State.STOPPING and not stopping:
            stopping.append(bench.clock.now())
        first.round()
        return any(matter.kind == "still_billing" for _, matter in heard)

    bench.drive(until=look)
    at, _ = next(one for one in heard if one[1].kind == "still_billing")
    assert at - stopping[0] <= 60.0
    for _ in range(5):
        bench.clock.advance(60.0)
        alarmer().round()  # fresh processes
    assert [matter.kind for _, matter in heard].count("still_billing") == 1
    bench.clock.advance(3600.0)
    alarmer().round()
    assert [matter.kind for _, matter in heard].count("still_billing") == 2


def test_what_was_not_heard_is_sent_after_a_restart(tmp_path):
    bench = Bench(tmp_path)
    bench.submit()
    bench.drive()
    with listening() as ears:
        ears.answers = [404]
        channels = Channels(webhook=ears.url)
        Alarmer(bench.store, bench.clock, channels).round()
        assert ears.heard == []
        bench.clock.advance(60.0)
        Alarmer(bench.store, bench.clock, channels).round()
        Alarmer(bench.store, bench.clock, channels).round()
        assert [one["kind"] for one in ears.heard] == ["finished"]


def test_the_thread_sends_what_is_left_when_its_process_ends(tmp_path):
    bench = Bench(tmp_path)
    bench.submit()
    bench.drive()
    with listening() as ears:
        with Alarmer(bench.store, bench.clock, Channels(webhook=ears.url)).at_work():
            pass
        assert [one["kind"] for one in ears.heard] == ["finished"]


def test_without_a_channel_nothing_is_kept(tmp_path):
    bench = Bench(tmp_path)
    bench.submit()
    bench.drive()
    with Alarmer(bench.store, bench.clock, Channels()).at_work():
        time.sleep(0)
    assert Alarms(bench.store.database).unheard() == []
