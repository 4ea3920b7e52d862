"""A job against offers: what is known of it, why nothing fits, what would, and what is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from jobs.axolotl import Layout, axolotl_config
from jobs.axolotl_rules import check_config
from jobs.load import load_job
from jobs.sizing import shared_out
from orchestrator import cli_plan, submit
from orchestrator.compose_site import compose_run
from orchestrator.exits import Exit, Refused
from orchestrator.managed import managed
from orchestrator.planning import need_of
from orchestrator.report_plan import plan_lines, short_size
from orchestrator.report_size import band, managed_line
from orchestrator.report_text import Screen
from orchestrator.sized import Fit
from providers.catalogue import list_offers, span
from providers.fake import FakeProvider
from providers.fake_cloud import FakeCloud
from tests.support.clocks import VirtualClock

JOB = """\
name: tone
model: meta-llama/Llama-3.1-8B
method: qlora
data: {train: data.jsonl, format: alpaca}
training: {packing: true}
limits: {hours: 10, budget_usd: 30}
"""


@pytest.fixture
def loaded(tmp_path):
    def load(*changes: str, records: int = 50, **replaced: str):
        record = {"instruction": "say x " * 30, "input": "", "output": "y " * 50}
        (tmp_path / "data.jsonl").write_text((json.dumps(record) + "\n") * records)
        text = JOB
        for word, other in replaced.items():
            text = text.replace(
                {"model": "meta-llama/Llama-3.1-8B", "method": "qlora"}[word], other
            )
        (tmp_path / "job.yaml").write_text(text)
        return load_job(tmp_path / "job.yaml", changes)

    return load


@pytest.fixture
def fake():
    return FakeProvider(FakeCloud(VirtualClock(), random.Random(1)))


def test_the_preview_shows_memory_and_cost_to_finish(loaded, fake):
    planned = submit.plan(loaded(), {"fake": fake})
    assert planned.best.expected_usd is not None
    assert planned.best.expected_usd == min(
        quote.expected_usd for quote in planned.matching.quotes if quote.expected_usd
    )
    text = short_size(planned)
    assert "GiB a GPU" in text
    assert "to finish, about $" in text


def test_submit_tries_offers_in_the_order_of_the_plan(loaded, fake):
    job = loaded(records=2000)
    planned = submit.plan(job, {"fake": fake})
    looked = submit.look(job, {"fake": fake}, list_prices=True)
    assert planned.matching == looked.matching
    assert not looked.listed


def test_a_card_that_is_too_small_loses_with_its_figures(loaded, fake):
    planned = submit.plan(loaded("training.micro_batch_size=4"), {"fake": fake})
    reasons = {lost.offer.gpu: lost.reason for lost in planned.matching.rejected}
    assert "GiB a GPU" in reasons["RTX4090"]
    assert "has 23.5" in reasons["RTX4090"]


def test_nothing_fits_names_changes_with_their_price(loaded, fake):
    with pytest.raises(Refused) as refused:
        submit.plan(loaded(method="full", model="meta-llama/Llama-2-70b-hf"), {"fake": fake})
    assert refused.value.code is Exit.NO_OFFER
    assert "what would make one fit:" in str(refused.value)
    assert "to finish" in str(refused.value)


def test_the_smallest_change_comes_first(loaded, fake):
    job = loaded("gpu.types=[RTX 4090]", "training.micro_batch_size=4")
    planned = submit.look(job, {"fake": fake})
    assert not planned.matching.quotes
    words = [change.words for change in planned.changes]
    assert any("micro batch 2" in word for word in words)
    assert any("fused loss" in word for word in words)
    assert all(change.quote.expected_usd for change in planned.changes)
    lines = "\n".join(plan_lines(planned, Screen(width=100)))
    assert "would fit with" in lines


def test_an_unknown_model_is_a_note_of_submit(loaded, fake):
    planned = submit.plan(loaded(model="acme/base"), {"fake": fake})
    assert any("memory not checked: unknown model" in note for note in planned.notes)
    assert planned.best.fit is None


def test_unknown_gpu_names_are_refused_with_the_nearest(loaded, fake):
    with pytest.raises(Refused, match="no table knows a card 'RTX 4095'") as refused:
        submit.plan(loaded("gpu.types=[RTX 4095]"), {"fake": fake})
    assert refused.value.code is Exit.USAGE
    assert "RTX4090" in refused.value.remedy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (cli_plan.SizeWords("Llama-9B"), "nearest known"),
        (cli_plan.SizeWords("Llama-3.1-8B", method="full", quant="nf4"), "use method: qlora"),
        (cli_plan.SizeWords("Llama-3.1-8B", attention="eager"), "packing: eager"),
        (cli_plan.SizeWords("Llama-3.1-8B", rank=0), "lora_rank: 0"),
        (cli_plan.SizeWords("Llama-2-7B", seq_len=9000), "use 4096 or less"),
        (cli_plan.SizeWords("Llama-3.1-8B", method="qlor"), "nearest: qlora"),
        (cli_plan.SizeWords("Llama-3.1-8B", loss="x"), "one of hf, liger, cce"),
        (cli_plan.SizeWords("Llama-3.1-8B", tokens=0), "give 1 or more"),
    ],
)
def test_what_cannot_be_sized_is_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refused) as refused:
        cli_plan.workload_of(words, tmp_path)
    assert said in str(refused.value)
    assert refused.value.code is Exit.USAGE


def test_list_prices_are_dated_and_cover_one_to_eight():
    offers = list_offers()
    assert {offer.gpu_count for offer in offers} == {1, 2, 4, 8}
    assert all(offer.region.startswith("list 202") for offer in offers)
    assert len({offer.key for offer in offers}) == len(offers)
    oldest, newest = span()
    assert oldest <= newest
    one = {offer.key: offer.price_usd_per_hour for offer in offers}
    key = "list:{}xA100-80GB:secure:on-demand"
    assert one[key.format(8)] == 8 * one[key.format(1)] > 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("params", "full", "usd"),
    [(8e9, False, "4.80"), (7e9, True, "5.40"), (32e9, False, "15.00"), (70.6e9, False, "29.00")],
)
def test_the_managed_card(params, full, usd):
    found = managed(params, 10_000_000, full=full)
    assert found is not None
    assert found.usd == Decimal(usd)
    assert managed(400e9, 1, full=full) is None


def test_several_gpus_are_written_into_axolotls_file(loaded):
    """A 70B adapter over 16-bit weights: on two big cards it has to be sharded."""
    spec = loaded(method="lora", model="meta-llama/Llama-2-70b-hf").spec
    machine = SimpleNamespace(folder="/i", gpus=4, axolotl=SimpleNamespace(axolotl="axolotl"))
    made = compose_run(spec, machine, "A100-80GB", 80.0)  # type: ignore[arg-type]
    text = made.config.decode()
    assert "TRANSFORMER_BASED_WRAP" in text
    assert "gradient_accumulation_steps: 1" in text
    assert "--nproc_per_node" in made.argv
    small = loaded().spec
    copies = compose_run(small, machine, "A100-80GB", 80.0)  # type: ignore[arg-type]
    assert "fsdp" not in copies.config.decode()
    assert "gradient_accumulation_steps: 1" in copies.config.decode()


@pytest.mark.parametrize("method", ["qlora", "lora", "full"])
def test_axolotls_rules_take_the_sharded_file(loaded, method):
    spec = loaded(method=method, model="meta-llama/Llama-2-70b-hf").spec
    sized = need_of(spec, with_tokens=False).requirement.sized
    assert sized is not None
    fit = sized.fit("B300", 4, 288.0)
    assert isinstance(fit, Fit)
    work = replace(fit.work, strategy="fsdp", optimizer="adamw_torch_fused")
    config = axolotl_config(spec, layout=Layout("/i"), stack="cuda")
    assert check_config(shared_out(config, work)) == []


def test_the_speeds_band_is_that_of_the_speed_and_not_of_the_whole_job(loaded, fake):
    """A tiny job is mostly boot: its hours are certain, its tokens per second are not."""
    best = submit.plan(loaded(records=5), {"fake": fake}).best
    assert best.fit is not None
    assert best.fit.confidence == "few points"
    assert band(best.fit).endswith("±30 %")
    assert band(None) == "-"


def test_a_card_for_few_tokens_does_not_say_none():
    few = managed(8e9, 3_024, full=False)
    assert few is not None
    assert "3,024 tokens" in managed_line(few)
