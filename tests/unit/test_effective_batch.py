"""An attempt on another machine, or with less memory, trains with the batch of the one before."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from jobs.adapt import adapted
from jobs.spec import JobSpec
from orchestrator.axolotl_env import EnvReady
from orchestrator.bootstrap import Machine
from orchestrator.compose_site import compose_run


def spec(model: str, **training: Any) -> JobSpec:
    return JobSpec.model_validate({
        "name": "x", "model": model, "method": "lora", "on_oom": "adapt",
        "data": {"train": "/d.jsonl", "format": "chat"},
        "training": {"micro_batch_size": 4, "gradient_accumulation_steps": 8, **training},
    })  # fmt: skip


def batch(job: JobSpec, gpus: int) -> int:
    """Return the sequences of an optimizer step, as Axolotl is told."""
    ready = EnvReady("/env/bin/axolotl", "/env/bin/python", "cuda", {})
    composed = compose_run(job, Machine("/w", gpus, ready), "A100-80GB", 80.0)
    config = yaml.safe_load(composed.config)
    return int(config["micro_batch_size"] * config["gradient_accumulation_steps"] * gpus)


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "acme/nobody-knows-it"])
def test_whatever_the_gpus_and_the_micro_batch(model):
    job, seen = spec(model), []
    while True:
        seen += [batch(job, gpus) for gpus in (1, 2, 4, 8)]
        found = adapted(job)
        if found is None or job.training.micro_batch_size == 1:
            break
        job = found[0]
    assert job.training.micro_batch_size == 1
    assert set(seen) == {32}


def test_a_number_of_gpus_that_a_person_names_is_theirs():
    job = spec("acme/nobody-knows-it")
    named = job.model_copy(update={"gpu": job.gpu.model_copy(update={"count": 2})})
    assert batch(named, 2) == 64
