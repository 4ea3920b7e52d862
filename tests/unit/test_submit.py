"""From a job file to a stored job: quotes, refusals, the question, and what is written down."""

from __future__ import annotations

import contextlib
import io
import json
import random
import threading
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.load import load_job
from orchestrator import cli_run, submit
from orchestrator.exits import Exit, Refused
from orchestrator.home import open_home
from orchestrator.report_plan import dry_run_lines, offer_lines, question
from orchestrator.report_text import Screen
from orchestrator.store import Store
from orchestrator.transfers import Transfers
from providers.base import Tier
from providers.errors import Unavailable
from providers.fake import FakeProvider
from providers.fake_cloud import FakeCloud
from tests.support.clocks import VirtualClock

JOB = """\
name: tone
model: acme/base
method: qlora
data: {train: data.jsonl, format: alpaca}
limits: {hours: 10, budget_usd: 3}
"""


@pytest.fixture
def loaded(tmp_path):
    def load(*changes: str):
        record = {"instruction": "x", "input": "", "output": "y"}
        (tmp_path / "data.jsonl").write_text(json.dumps(record) + "\n")
        (tmp_path / "job.yaml").write_text(JOB)
        return load_job(tmp_path / "job.yaml", changes)

    return load


@pytest.fixture
def fake():
    return FakeProvider(FakeCloud(VirtualClock(), random.Random(1)))


def test_the_cheapest_that_fits_is_first(loaded, fake):
    planned = submit.plan(loaded(), {"fake": fake})
    prices = [quote.offer.price_usd_per_hour for quote in planned.matching.quotes]
    assert prices == sorted(prices)
    assert planned.best.offer.gpu == "RTX4090"
    assert any("spot" in lost.reason for lost in planned.matching.rejected)
    assert any("gpu.count: 2 asks" in lost.reason for lost in planned.matching.rejected)


def test_what_the_job_asks_for_is_heeded(loaded, fake):
    planned = submit.plan(loaded("gpu.types=[A100]", "gpu.spot=true"), {"fake": fake})
    assert [quote.offer.key for quote in planned.matching.quotes] == ["a100-spot", "a100"]


def test_nothing_fits_says_why_for_each(loaded, fake):
    with pytest.raises(Refused, match=r"costs \$0\.40/h, above") as refused:
        submit.plan(loaded("gpu.max_price_usd_per_hour=0.1"), {"fake": fake})
    assert refused.value.code is Exit.NO_OFFER
    assert not refused.value.launched


def test_a_provider_that_is_not_set_up(loaded, fake):
    with pytest.raises(Refused, match="runpod: not set up here") as refused:
        submit.plan(loaded("gpu.providers=[runpod]"), {"fake": fake})
    assert refused.value.code is Exit.USAGE


def test_one_provider_down_does_not_hide_the_others(loaded, fake):
    def down():
        raise Unavailable("503 from there")

    broken = SimpleNamespace(name="broken", offers=down)
    planned = submit.plan(loaded(), {"broken": broken, "fake": fake})
    assert planned.unreachable == {"broken": "503 from there"}
    assert "broken did not answer" in "\n".join(offer_lines(planned, Screen(width=200)))
    with pytest.raises(Refused, match="broken did not answer: 503"):
        submit.plan(loaded("gpu.providers=[broken]"), {"broken": broken})


def test_the_most_it_can_cost(loaded, fake):
    planned = submit.plan(loaded(), {"fake": fake})
    assert submit.at_most_usd(planned.spec, planned.best.offer) == Decimal(3)
    planned = submit.plan(loaded("limits.budget_usd=50"), {"fake": fake})
    assert submit.at_most_usd(planned.spec, planned.best.offer) == Decimal(4)
    assert "at most $4.00, then it is shut down" in question(planned)


def test_what_is_stored(loaded, fake, tmp_path):
    home = open_home(tmp_path / "home")
    store = Store.open(home.database_url)
    planned = submit.plan(loaded(), {"fake": fake})
    job_id = submit.store_job(planned, store, home, now=1_700_000_000.0)
    record, attempts = store.load(job_id)
    store.close()
    assert attempts == []
    assert record.new.offers == tuple(quote.offer for quote in planned.matching.quotes)
    assert record.new.caps.budget_usd == Decimal(3)
    assert record.new.caps.max_s == 36_000.0
    assert record.new.launch.public_key.startswith("ssh-ed25519 ")
    assert record.new.spec["data"]["train"] == str(tmp_path / "data.jsonl")
    key = home.root / "keys" / job_id / "id_ed25519"
    assert key.stat().st_mode & 0o077 == 0


def test_a_dry_run_shows_quotes_and_configuration(loaded, fake):
    planned = submit.plan(loaded(), {"fake": fake})
    text = submit.axolotl_text(planned.spec, planned.best)
    lines = dry_run_lines(planned, text, Screen(width=100))
    shown = "\n".join(lines)
    assert "base_model: acme/base" in shown
    assert "tried first" in shown
    assert "may be called back" in shown
    assert lines[-1] == "nothing was started: this is a dry run."


def test_what_will_be_downloaded_is_said_beforehand(fake, tmp_path):
    from dataclasses import replace

    own = replace(fake.cloud.offers[0], provider="local", tier=Tier.OWN, gpu="CPU")
    note = submit.environment_note(own, tmp_path, None)
    assert note is not None
    assert "0.8 GB to download" in note
    assert submit.environment_note(own, tmp_path, tmp_path / "mine") is None
    assert submit.environment_note(fake.cloud.offers[0], tmp_path, None) is None
    ready = tmp_path / "environments" / "axolotl-cpu-1" / "READY.json"
    ready.parent.mkdir(parents=True)
    ready.write_text("{}")
    assert submit.environment_note(own, tmp_path, None) is None


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _quiet_state() -> Any:
    return SimpleNamespace(store=SimpleNamespace(jobs=lambda now: []), now=lambda: 0.0)


def _agree(planned, monkeypatch, typed, *, yes=False):
    stdin = _Terminal(typed) if typed is not None else io.StringIO("")
    monkeypatch.setattr("sys.stdin", stdin)
    cli_run.agree(planned, _quiet_state(), yes=yes, as_json=False)


def test_money_is_asked_for(loaded, fake, monkeypatch, capsys):
    planned = submit.plan(loaded(), {"fake": fake})
    _agree(planned, monkeypatch, "y\n")
    assert "Rent it?  at most $3.00" in capsys.readouterr().out
    for typed in ("n\n", "\n", "", "yesterday\n"):
        with pytest.raises(Refused) as refused:
            _agree(planned, monkeypatch, typed)
        assert refused.value.code is Exit.INTERRUPTED
        assert not refused.value.launched


def test_ctrl_c_at_the_question_launches_nothing(loaded, fake, monkeypatch):
    planned = submit.plan(loaded(), {"fake": fake})

    class Interrupted(_Terminal):
        def readline(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    with pytest.raises(Refused) as refused:
        cli_run.agree(planned, _quiet_state(), yes=False, as_json=False)
    assert refused.value.code is Exit.INTERRUPTED
    assert not refused.value.launched


def test_without_a_terminal_money_needs_yes(loaded, fake, monkeypatch, capsys):
    planned = submit.plan(loaded(), {"fake": fake})
    with pytest.raises(Refused, match="no terminal") as refused:
        _agree(planned, monkeypatch, None)
    assert refused.value.code is Exit.USAGE
    assert "--yes" in refused.value.remedy
    _agree(planned, monkeypatch, None, yes=True)
    assert "Rent it?" not in capsys.readouterr().out


@pytest.mark.parametrize("notional", [False, True])
def test_what_nobody_bills_is_not_asked_for(loaded, fake, monkeypatch, capsys, notional):
    from dataclasses import replace

    price = Decimal("0.40") if notional else Decimal(0)
    fake.cloud.offers = [
        replace(offer, price_usd_per_hour=price, price_is_notional=notional)
        for offer in fake.cloud.offers[:1]
    ]
    _agree(submit.plan(loaded(), {"fake": fake}), monkeypatch, None)
    assert "Rent it?" not in capsys.readouterr().out


def test_a_fault_of_the_screen_does_not_leave_the_job_without_a_driver(
    loaded, fake, tmp_path, monkeypatch
):
    class Supervisor:
        let_go = False

        def __init__(self, *_args, **_options):
            self.stop = threading.Event()

        def run(self):
            self.stop.wait(30)

        def detach(self):
            Supervisor.let_go = True
            self.stop.set()

    def broken(_one):
        raise ZeroDivisionError

    started = []

    def ensure(home):
        started.append(home)
        return 1, True

    monkeypatch.setattr("orchestrator.supervisor.Supervisor", Supervisor)
    monkeypatch.setattr("orchestrator.drive.watch", broken)
    monkeypatch.setattr("orchestrator.daemon.ensure", ensure)
    home = open_home(tmp_path / "home")
    store = Store.open(home.database_url)
    state: Any = SimpleNamespace(home=home, store=store, now=lambda: 1_700_000_000.0)
    alarms = SimpleNamespace(at_work=contextlib.nullcontext)
    settings = SimpleNamespace(machine_lease_s=None)
    parts: Any = SimpleNamespace(runner=None, alarms=alarms, settings=settings)
    planned = submit.plan(loaded(), {"fake": fake})
    transfers = Transfers()
    with pytest.raises(ZeroDivisionError):
        cli_run._in_foreground(planned, state, parts, transfers, as_json=False)
    store.close()
    assert Supervisor.let_go
    assert started == [home.root]


def test_a_disk_is_asked_for_where_it_is_rented_with_the_machine(loaded, fake):
    planned = submit.plan(loaded(), {"fake": fake})
    assert submit.disk_gib(planned) == 0

    def renting(*quotes):
        matching = replace(planned.matching, quotes=quotes)
        return submit.disk_gib(replace(planned, matching=matching))

    (first, *_) = planned.matching.quotes
    rented = replace(first.offer, storage_usd_per_gib_hour=Decimal("0.0001"))
    assert renting(replace(first, offer=rented, fit=None)) == submit.UNSIZED_DISK_GIB
    assert renting(replace(first, offer=replace(rented, disk_gib=100.0), fit=None)) == 0
    if first.fit is not None:
        need = first.fit.need.disk_gib
        got = renting(replace(first, offer=rented))
        assert need + submit.CONTAINER_GIB <= got <= need + submit.CONTAINER_GIB + 1


def test_a_provider_that_can_is_asked_by_what_the_job_wants(loaded, fake):
    class Picky:
        name, traits = fake.name, fake.traits

        def offers(self):
            raise AssertionError

        def offers_for(self, wish):
            self.wish = wish
            return fake.offers()

    picky: Any = Picky()
    submit.plan(loaded(), {"fake": picky})
    assert (picky.wish.count, picky.wish.spot) == (None, False)
    assert picky.wish.tiers == (Tier.SECURE,)
