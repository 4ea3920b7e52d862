"""A probe: the job cut short, what its metrics tell, and what later plans make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.architectures import find
from jobs.axolotl import Layout, axolotl_config
from jobs.axolotl_rules import check_config
from jobs.load import load_job
from jobs.sizing import Tokens
from jobs.spec import JobSpec
from jobs.workload import Workload
from orchestrator.cli_probe import _judge, _plan, probed_lines
from orchestrator.match import Matching, Quote
from orchestrator.measured import FILE, MeasuredPoint, keep, key_of, read, speeds
from orchestrator.probe import Terms, measured, probe_spec
from orchestrator.report_text import Screen
from orchestrator.sized import Fit, Sized
from providers.base import Offer, OfferKey, Traits

WORK = Workload(find("Llama-3.1-8B"), micro_batch_size=2, gradient_accumulation_steps=4)


def spec(**more: Any) -> JobSpec:
    body = {"name": "n" * 63, "model": "acme/base", "method": "lora", "data": {"train": "/d.jsonl"}}
    return JobSpec.model_validate({**body, **more})


def test_the_job_is_cut_short_and_stays_what_it_is():
    job = spec(training={"lora_r": 4, "sequence_len": 512}, limits={"hours": 9, "budget_usd": 90})
    short = probe_spec(job, Terms(steps=7, minutes=6, usd=Decimal("0.5")), "RTX 4090")
    again = JobSpec.model_validate(short.model_dump(mode="json"))  # what the store will hold
    assert again == short
    assert (short.training.max_steps, short.training.epochs) == (7, None)
    assert (short.limits.hours, short.limits.budget_usd) == (0.1, Decimal("0.5"))
    assert short.gpu.types == ("RTX 4090",)
    assert short.training.lora_r == 4
    config = axolotl_config(short, layout=Layout("/i"), stack="cuda")
    assert config["max_steps"] == 7
    assert "num_epochs" not in config
    assert config["sequence_len"] == 512
    assert config["val_set_size"] == 0


@pytest.mark.parametrize("packing", [True, False])
def test_the_longest_batch_comes_first(packing):
    job = spec(training={"packing": packing}, data={"train": "/d.jsonl", "format": "alpaca"})
    config = axolotl_config(probe_spec(job, Terms(), None), layout=Layout("/i"), stack="cuda")
    assert bool(config.get("group_by_length")) is not packing
    assert not [fault for fault in check_config(config) if "group_by_length" in str(fault)]


def _log(step: int, at: float) -> str:
    return json.dumps({"event": "log", "loss": 1.0, "step": step, "at": at})


def test_the_pace_leaves_the_first_step_and_hiccups_out():
    at = [0.0, 100.0, 102.0, 104.0, 124.0, 126.0, 128.0]
    lines = [_log(step, moment) for step, moment in enumerate(at)][1:]
    lines.insert(3, json.dumps({"event": "gpu", "gpus": [{"memory_used_mib": 2048.0}, {}]}))
    lines.append('{"event": "log", "lo')
    met = measured(lines, 1000.0)
    assert (met.steps, met.step_s, met.tokens_per_s, met.peak_gib) == (6, 2.0, 500.0, 2.0)


def test_nothing_met():
    met = measured([], 1000.0)
    assert (met.steps, met.step_s, met.tokens_per_s, met.peak_gib) == (0, None, None, None)


def test_points_are_kept_and_the_newest_of_the_same_configuration_counts(tmp_path):
    point = MeasuredPoint(1.0, key_of(WORK), "A100-80GB", 1, 3000.0, 20.5, 30)
    assert read(tmp_path) == ()
    keep(tmp_path, point)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"at": 1\n{"other": 2}\n')
    keep(tmp_path, replace(point, tokens_per_s=3100.0))
    keep(tmp_path, replace(point, key="other", tokens_per_s=1.0))
    assert speeds(read(tmp_path), WORK) == {("A100-80GB", 1): 3100.0}
    assert speeds(read(tmp_path), replace(WORK, sequence_len=1024)) == {}


def test_a_later_plan_uses_what_was_measured():
    tokens = Tokens(36_000_000, 0, 36_000_000, 1000, "x")
    forecast = Sized(WORK, tokens).fit("A100-80GB", 1, 80.0)
    probed = Sized(WORK, tokens, measured={("A100-80GB", 1): 1000.0}).fit("A100-80GB", 1, 80.0)
    assert isinstance(forecast, Fit)
    assert isinstance(probed, Fit)
    assert (probed.tokens_per_s, probed.confidence) == (1000.0, "probed")
    assert probed.hours == pytest.approx(10.0, abs=0.4)
    assert probed.low_h is not None
    assert probed.high_h is not None
    assert (probed.high_h - probed.low_h) / 10.0 < 0.11
    assert forecast.confidence == "measured"


OFFER = Offer("fake", OfferKey("a"), "A100-80GB", 1, 80.0, Decimal("1.60"))
CARDLESS = Offer("local", OfferKey("cpu"), "CPU", 0, 0.0, Decimal(0))


@pytest.mark.parametrize(("offer", "each"), [(OFFER, 2 * 4 * 512), (CARDLESS, 2 * 4 * 32)])
def test_without_a_gpu_the_steps_are_counted_unpacked(tmp_path, offer, each):
    """40 examples of some 30 tokens: packed, a step holds full sequences; unpacked, far less."""
    words = "one two three four five six seven eight nine ten eleven twelve "
    rows = [{"prompt": f"say {i}", "completion": words} for i in range(400)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "job.yaml").write_text(
        "name: a\nmodel: meta-llama/Llama-3.1-8B\nmethod: lora\n"
        "data: {train: data.jsonl, format: prompt-completion}\n"
        "training: {packing: true, sequence_len: 512, micro_batch_size: 2, epochs: 50,\n"
        "  gradient_accumulation_steps: 4}\n"
        f"gpu: {{providers: [{offer.provider}], types: [{offer.gpu}]}}\n"
    )
    traits = Traits(1.0, 2.0, 3.0, proves_absence=True, self_destruct=None)
    provider: Any = SimpleNamespace(offers=lambda: [offer], traits=traits)
    parts: Any = SimpleNamespace(providers={offer.provider: provider})
    loaded = load_job(tmp_path / "job.yaml")
    _, sized = _plan(loaded, parts, Terms(), None, root=tmp_path, hub="")
    assert sized is not None
    assert sized.tokens is not None
    assert sized.tokens.trained / sized.tokens.steps == pytest.approx(each, rel=0.15)


@pytest.mark.parametrize(("offer", "forecast"), [(OFFER, True), (CARDLESS, False)])
def test_what_a_probe_met_is_judged_and_kept(tmp_path, offer, forecast):
    log = tmp_path / "metrics.jsonl"
    log.write_text("\n".join(_log(step, 2.0 * step) for step in range(1, 10)))
    attempt = SimpleNamespace(
        number=1, provider=offer.provider, gpu=offer.gpu, gpu_count=offer.gpu_count
    )
    job = SimpleNamespace(attempts=(attempt,), reason="SUCCEEDED", cost_usd=Decimal("0.02"))
    state: Any = SimpleNamespace(
        now=lambda: 5.0,
        store=SimpleNamespace(job=lambda _id, now: job),
        home=SimpleNamespace(root=tmp_path, log_path=lambda *_: log),
    )
    planned: Any = SimpleNamespace(matching=Matching((Quote(offer),), ()), best=Quote(offer))
    sized = Sized(WORK, Tokens(16_384_000, 0, 16_000_000, 1000, "x"))
    found = _judge("abc123", planned, sized, state)
    assert found.found.tokens_per_s == 8192.0
    assert (found.predicted_gib is not None) is forecast
    assert found.hours == pytest.approx(2000 / 3600 + sized.fixed().total_s / 3600)
    assert found.hours is not None
    assert found.expected_usd == offer.price_usd_per_hour * Decimal(str(round(found.hours, 5)))
    (point,) = read(tmp_path)
    assert (point.gpu, point.gpu_count, point.tokens_per_s) == (offer.gpu, offer.gpu_count, 8192.0)
    shown = "\n".join(probed_lines([found], Screen(width=120)))
    assert "the cheapest of these" in shown
