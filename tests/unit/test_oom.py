"""Out of memory: what was predicted, and one more try with less, or on a larger card."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from jobs.adapt import adapted
from jobs.spec import JobSpec
from orchestrator import events as ev
from orchestrator.attempt import Machine
from orchestrator.fold import fold
from orchestrator.jobflow import Close, Open, next_move
from orchestrator.oom import may_adapt, prediction, settings_of, with_prediction
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.states import Reason, State
from providers.base import InstanceId, Offer, OfferKey
from tests.support.core import T0, opened


def spec(**more: Any) -> JobSpec:
    body = {"name": "x", "model": "meta-llama/Llama-3.1-8B", "method": "qlora", "on_oom": "adapt"}
    return JobSpec.model_validate({**body, **more})


def effective(job: JobSpec) -> int:
    return job.training.micro_batch_size * job.training.gradient_accumulation_steps


@pytest.mark.parametrize(
    ("training", "word"),
    [
        ({}, "micro batch 1, 8 accumulated"),
        ({"micro_batch_size": 3}, "micro batch 1, 12 accumulated"),
        ({"micro_batch_size": 1, "gradient_checkpointing": False}, "gradient checkpointing"),
        ({"micro_batch_size": 1, "plugins": ["liger"]}, "Liger's fused loss"),
        ({"micro_batch_size": 1}, "offloaded"),
    ],
)
def test_the_cheapest_change_keeps_the_batch(training, word):
    job = spec(training=training)
    found = adapted(job)
    assert found is not None
    less, words = found
    assert word in words
    assert effective(less) == effective(job)
    assert (less.method, less.training.sequence_len) == (job.method, job.training.sequence_len)
    assert JobSpec.model_validate(less.model_dump(mode="json")) == less


def test_nothing_is_left_to_change():
    training = {"micro_batch_size": 1}
    assert adapted(spec(training=training, axolotl={"activation_offloading": True})) is None


def test_an_unknown_model_halves_its_batch():
    found = adapted(spec(model="acme/base"))
    assert found is not None
    assert found[0].training.micro_batch_size == 1


SMALL = Offer("fake", OfferKey("s"), "RTX4090", 1, 24.0, Decimal("0.4"))
OTHER = replace(SMALL, key=OfferKey("o"))
LARGE = Offer("fake", OfferKey("l"), "A100-80GB", 1, 80.0, Decimal("1.6"))


def new_job(job: JobSpec, *, budget: str | None = None) -> NewJob:
    caps = Caps(budget_usd=None if budget is None else Decimal(budget))
    body = job.model_dump(mode="json")
    return NewJob(
        "abc123", "x", body, (SMALL, OTHER, LARGE), LaunchSpec("ssh-ed25519 A"), caps, "out"
    )


def ended(number: int = 1, reason: Reason = Reason.OUT_OF_MEMORY, offer: Offer = SMALL) -> Any:
    return replace(
        fold([opened()]),
        number=number,
        state=State.CLOSED,
        reason=reason,
        evidence="CUDA out of memory",
        offer=offer,
        machines=(Machine(InstanceId(f"m-{number}"), T0),),
    )


def move(new: NewJob, *attempts: Any, cancel: Reason | None = None) -> Any:
    spent = Decimal("0.2")
    return next_move(new, attempts, cancel=cancel, spent_usd=spent, now=attempts[-1].opened_at + 60)


def test_it_tries_the_same_card_once_more_with_less():
    again = move(new_job(spec()), ended())
    assert isinstance(again, Open)
    assert (again.number, again.offer) == (2, SMALL)
    twice = move(new_job(spec()), ended(), ended(2))
    assert twice == Close(Reason.OUT_OF_MEMORY, "CUDA out of memory")


def test_it_takes_the_next_larger_card_where_nothing_is_left_to_change():
    job = spec(training={"micro_batch_size": 1}, axolotl={"activation_offloading": True})
    again = move(new_job(job), ended())
    assert isinstance(again, Open)
    assert again.offer == LARGE
    assert isinstance(move(new_job(job), ended(offer=LARGE)), Close)


@pytest.mark.parametrize(
    ("job", "budget", "cancel", "reason"),
    [
        (spec(on_oom="fail"), None, None, Reason.OUT_OF_MEMORY),
        (spec(), "0.2", None, Reason.OUT_OF_MEMORY),
        (spec(), None, Reason.CANCELLED, Reason.OUT_OF_MEMORY),
        (spec(), None, None, Reason.DIVERGED),
    ],
)
def test_it_ends_where_it_may_not_or_cannot(job, budget, cancel, reason):
    found = move(new_job(job, budget=budget), ended(reason=reason), cancel=cancel)
    assert isinstance(found, Close)
    assert found.reason is reason


def test_settings_follow_from_the_attempts():
    body = spec().model_dump(mode="json")
    assert settings_of(body, []) == (body, "")
    assert settings_of(body, [ended(reason=Reason.NO_CAPACITY)]) == (body, "")
    changed, words = settings_of(body, [ended()])
    assert changed["training"]["micro_batch_size"] == 1
    assert "micro batch 1" in words
    fail = {**body, "on_oom": "fail"}
    assert settings_of(fail, [ended()]) == (fail, "")
    assert may_adapt(body, [ended()])
    assert not may_adapt(body, [ended(), ended(2)])


def test_the_end_says_what_was_predicted_and_what_was_met():
    body = spec().model_dump(mode="json")
    said = prediction(body, SMALL)
    assert said.startswith("predicted ")
    assert said.endswith("usable 23.5")
    event = ev.TrainerExited(1.0, Reason.OUT_OF_MEMORY, "CUDA out of memory")
    told = with_prediction(event, body, ended(), 23.1)
    assert isinstance(told, ev.TrainerExited)
    assert "met 23.1 GiB" in told.evidence
    assert told.evidence.startswith("CUDA out of memory [predicted")
    other = ev.TrainerExited(1.0, Reason.DIVERGED, "nan")
    assert with_prediction(other, body, ended(), 1.0) is other
    unknown = {**body, "model": "acme/base"}
    assert with_prediction(event, unknown, ended(), 1.0) is event
