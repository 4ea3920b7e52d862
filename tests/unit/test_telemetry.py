"""Prometheus figures, scraped over HTTP and read by prometheus-client's own parser."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.exits import Refused
from orchestrator.states import State
from orchestrator.telemetry import Calls, Counted, address, served
from providers.errors import Unavailable
from providers.fake import DEFAULT_OFFERS, Verb
from tests.support.bench import Bench


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(figures, name, **labels):
    return figures.get((name, tuple(sorted(labels.items()))))


def test_the_figures_of_a_running_and_of_a_stuck_job(tmp_path):
    bench = Bench(tmp_path)
    bench.submit()
    calls = Calls()
    bench.provider = Counted(bench.provider, calls)  # type: ignore[assignment]
    driver = bench.runner().take("abc123")
    with served("127.0.0.1:0", bench.store, bench.clock, calls) as port:
        figures = scrape(port)
        assert of(figures, "gpujob_jobs", state="INTENDED") == 1
        assert of(figures, "gpujob_jobs", state="CLOSED") == 0
        bench.drive(driver, until=lambda: bench.view().state is State.RUNNING)
        figures = scrape(port)
        price = DEFAULT_OFFERS[0].price_usd_per_hour
        assert of(figures, "gpujob_jobs", state="RUNNING") == 1
        assert of(figures, "gpujob_usd_per_hour", provider="fake") == float(price)
        held = {"provider": "fake", "teardown": "living"}
        assert of(figures, "gpujob_machines_not_proven_gone", **held) == 1
        launched = {"provider": "fake", "verb": "launch", "outcome": "ok"}
        assert of(figures, "gpujob_api_calls_total", **launched) == 1
        bench.fail(Verb.TERMINATE, *[Unavailable("503")] * 4)
        bench.drive(driver)
        figures = scrape(port)
        failed = {"provider": "fake", "verb": "terminate", "outcome": "Unavailable"}
        assert of(figures, "gpujob_api_calls_total", **failed) == 4
        assert of(figures, "gpujob_terminate_retries_total", provider="fake") >= 4
        assert of(figures, "gpujob_jobs", state="CLOSED") == 1
        assert of(figures, "gpujob_machines_not_proven_gone", **held) is None
        assert of(figures, "gpujob_usd_per_hour", provider="fake") is None


@pytest.mark.parametrize("text", ["", "9464", "host:", "host:x", "host:99999", ":-1"])
def test_a_bad_address_is_refused(text):
    with pytest.raises(Refused, match="--metrics"):
        address(text)


def test_addresses():
    assert address("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert address("[::1]:1") == ("::1", 1)
    assert address(":9464") == ("127.0.0.1", 9464)  # never every interface unasked


def test_a_port_in_use_is_refused_in_words(tmp_path):
    bench = Bench(tmp_path)
    with served("127.0.0.1:0", bench.store, bench.clock, Calls()) as port:
        taken = served(f"127.0.0.1:{port}", bench.store, bench.clock, Calls())
        with pytest.raises(Refused, match="in use"), taken:
            pass


def test_nobody_else_pays_for_it():
    """Neither the client nor structlog is imported by what only reads."""
    code = (
        "import sys, orchestrator.cli, orchestrator.cli_read, orchestrator.report, "
        "orchestrator.store_quick, orchestrator.cli_supervise; "
        "sys.exit(str([m for m in ('prometheus_client', 'structlog', 'tenacity') "
        "if m in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() in ("", "[]"), done.stderr
