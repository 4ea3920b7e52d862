"""`gpujob probe`: rent each card for some steps, measure, compare cost to finish, keep it."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Exit
from orchestrator.match import CPU
from orchestrator.opened import opened, out
from orchestrator.probe import Measured, Terms, measured, on_card, probe_spec

if TYPE_CHECKING:
    from jobs.load import LoadedJob
    from orchestrator.compose import Parts
    from orchestrator.opened import Opened
    from orchestrator.probe_goes_on import GoOn
    from orchestrator.report_text import Screen
    from orchestrator.sized import Sized
    from orchestrator.submit import Plan
    from providers.base import Offer


@dataclass(frozen=True, slots=True)
class Probed:
    """One probe's answer: what was met, and what the whole job would take on that card."""

    job_id: str
    offer: Offer
    reason: str
    found: Measured
    predicted_tokens_per_s: float | None
    predicted_gib: float | None
    hours: float | None
    expected_usd: Decimal | None
    cost_usd: Decimal


def probe(
    job_file: Path,
    *,
    gpus: Sequence[str],
    terms: Terms,
    yes: bool,
    changes: list[str],
    as_json: bool,
    go_on: bool = False,
    pii_reviewed: bool = False,
) -> int:
    """Run a probe on each card named (else on the best offer); 4 where none could be measured.

    Rents one machine after the other, each with its own cap in minutes and dollars. go_on: on the
    card that is forecast to be the cheapest the whole job is started, last; after the terms' steps
    it goes on there where that still holds, and the code is the job's.
    """
    from orchestrator import cli_run, submit
    from orchestrator.compose import compose
    from orchestrator.shapes import fetch
    from orchestrator.transfers import Transfers

    gc.enable()
    loaded = submit.read_job(job_file, changes)
    with opened() as state:
        transfers = Transfers()
        parts = compose(state, tell=transfers.tell)
        gated = cli_run.through_the_gate(loaded, state)
        root = state.home.root
        hub = fetch(loaded.spec.model, root)

        def planned_on(gpu: str | None, short: Terms | None) -> _Round:
            planned, sized = _plan(gated.loaded, parts, short, gpu, root=root, hub=hub)
            planned = submit.with_data(planned, gated, pii_reviewed=pii_reviewed)
            return _Round(gpu, planned, sized)

        rounds = [planned_on(gpu, terms) for gpu in (*gpus,) or (None,)]
        if go_on:
            rounds.sort(key=_Round.forecast_usd, reverse=True)
            rounds[-1] = planned_on(rounds[-1].gpu, None)
        found: list[Probed] = []
        judge: GoOn | None = None
        code: int = Exit.OK
        for number, one in enumerate(rounds, 1):
            if go_on and number == len(rounds):
                judge = _going_on(one, found, terms, state, as_json=as_json)
            cli_run.agree(one.planned, state, yes=yes, as_json=as_json)
            job_id, code = cli_run.drive_here(
                one.planned, state, parts, transfers, as_json=as_json, judge=judge
            )
            found.append(_judge(job_id, one.planned, one.sized, state))
            if code == Exit.INTERRUPTED:
                break
        went_on = judge.went_on if judge else ""
        answer = sorted(found, key=_rank)
        if as_json:
            from orchestrator.report_json import document, dumps

            bodies = [probed_body(p) for p in answer]
            out([dumps(document("probe", state.now(), went_on=went_on or None, probes=bodies))])
        elif not went_on:
            out(probed_lines(answer, state.screen))
    if went_on:
        return code
    return Exit.OK if any(one.found.step_s for one in found) else Exit.NOT_FINISHED


@dataclass(frozen=True, slots=True)
class _Round:
    """One card's turn: the job on it, and the size of the whole job."""

    gpu: str | None
    planned: Plan
    sized: Sized | None

    def forecast_usd(self) -> float:
        """Return what the whole job is forecast to cost there; infinite where nobody knows."""
        from orchestrator.sized import Fit

        offer = self.planned.best.offer
        if self.sized is None or offer.gpu == CPU:
            return float("inf")
        fit = self.sized.fit(offer.gpu, offer.gpu_count, offer.vram_gib)
        hours = fit.hours if isinstance(fit, Fit) else None
        return float("inf") if hours is None else hours * float(offer.price_usd_per_hour)


def _going_on(
    one: _Round, others: list[Probed], terms: Terms, state: Opened, *, as_json: bool
) -> GoOn:
    """Return the judge of the last round; `others` is read when it is asked."""
    from orchestrator.cli_run import talk_screen
    from orchestrator.probe_goes_on import GoOn

    screen = talk_screen(as_json=as_json)
    return GoOn(
        terms,
        one.planned.spec.limits.budget_usd,
        others,
        lambda job_id: _judge(job_id, one.planned, one.sized, state),
        lambda found: probed_lines(sorted(found, key=_rank), screen),
    )


def _plan(
    loaded: LoadedJob, parts: Parts, terms: Terms | None, gpu: str | None, *, root: Path, hub: str
) -> tuple[Plan, Sized | None]:
    """Return the probe as a job with its offers, and the size of the whole job on the best one.

    terms: None: the whole job on that card, not cut short.
    On a machine without a GPU packing is off whatever the job says: its steps hold fewer tokens.
    """
    from orchestrator import submit
    from orchestrator.planning import need_of
    from orchestrator.shapes import CONFIGS

    spec, configs = loaded.spec, root / CONFIGS
    if terms is not None:
        short = replace(loaded, spec=probe_spec(spec, terms, gpu))
    else:
        short = replace(loaded, spec=on_card(spec, gpu))
    planned = submit.plan(short, parts.providers, configs=configs, hub=hub)
    if planned.best.offer.gpu == CPU:
        training = spec.training.model_copy(update={"packing": False})
        spec = spec.model_copy(update={"training": training})
    return planned, need_of(spec, configs=configs).requirement.sized


def _judge(job_id: str, planned: Plan, sized: Sized | None, state: Opened) -> Probed:
    """Read what the probe met, and keep it for later plans."""
    from orchestrator.measured import MeasuredPoint, keep, key_of
    from orchestrator.sized import Fit

    job = state.store.job(job_id, now=state.now())
    number = job.attempts[-1].number if job.attempts else 1
    offer = _offer_of(planned, job)
    try:
        path = state.home.log_path(job_id, number, "metrics.jsonl")
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    tokens = sized.tokens if sized is not None and not _nominal(sized) else None
    met = measured(lines, tokens.trained / tokens.steps if tokens else None)
    on_gpu = sized is not None and offer.gpu != CPU
    fit = sized.fit(offer.gpu, offer.gpu_count, offer.vram_gib) if sized and on_gpu else None
    hours = expected = None
    if met.step_s is not None and tokens is not None and sized is not None:
        hours = (tokens.steps * met.step_s + sized.fixed().total_s) / 3600
        expected = offer.price_usd_per_hour * Decimal(str(round(hours, 5)))
    if sized is not None and met.tokens_per_s is not None:
        keep(
            state.home.root,
            MeasuredPoint(
                state.now(), key_of(sized.work), offer.gpu, offer.gpu_count, met.tokens_per_s,
                met.peak_gib, met.steps,
            ),
        )  # fmt: skip
    known = fit if isinstance(fit, Fit) else None
    return Probed(
        job_id,
        offer,
        str(job.reason or "RUNNING"),
        met,
        known.tokens_per_s if known else None,
        known.need.footprint.device_gib if known else None,
        hours,
        expected,
        job.cost_usd,
    )


def _nominal(sized: Sized) -> bool:
    return sized.tokens is None or sized.tokens.assumed or sized.tokens.steps < 1


def _offer_of(planned: Plan, job: Any) -> Offer:
    """Return the offer that the newest attempt ran on."""
    if job.attempts:
        last = job.attempts[-1]
        for quote in planned.matching.quotes:
            offer = quote.offer
            if (offer.provider, offer.gpu, offer.gpu_count) == (
                last.provider,
                last.gpu,
                last.gpu_count,
            ):
                return offer
    return planned.best.offer


def _rank(one: Probed) -> tuple[bool, Decimal, float]:
    return (one.hours is None, one.expected_usd or Decimal(0), one.hours or 0.0)


def probed_lines(found: Sequence[Probed], screen: Screen) -> list[str]:
    """Return the table of what was met, the best first, and which card to take."""
    from orchestrator.report_plan import machine
    from orchestrator.report_text import Column, money, rate, table

    def number(value: float | None, words: str) -> str:
        return "-" if value is None else words.format(value)

    columns = (
        Column("GPU", floor=8),
        Column("s/step", right=True),
        Column("tokens/s", right=True),
        Column("forecast", right=True, keep=60),
        Column("GiB", right=True),
        Column("forecast", right=True, keep=50),
        Column("hours", right=True),
        Column("to finish", right=True),
        Column("probe cost", right=True, keep=70),
        Column("", floor=8, keep=80),
    )
    rows = [
        (
            machine(one.offer),
            number(one.found.step_s, "{:.2f}"),
            "-" if one.found.tokens_per_s is None else rate(one.found.tokens_per_s),
            number(one.predicted_tokens_per_s, "{:,.0f}"),
            number(one.found.peak_gib, "{:.1f}"),
            number(one.predicted_gib, "{:.1f}"),
            number(one.hours, "{:.2f}"),
            "-" if one.expected_usd is None else money(one.expected_usd),
            money(one.cost_usd),
            "" if one.found.step_s else one.reason,
        )
        for one in found
    ]
    lines = ["", *table(columns, rows, screen.width)]
    if found and found[0].hours is not None:
        lines.append(f"take {machine(found[0].offer)}: the cheapest of these to finish on.")
        lines.append("later plans of this configuration use what was measured.")
    return lines


def probed_body(one: Probed) -> Mapping[str, Any]:
    """Return one probe as plain data."""
    from orchestrator.report_plan import offer_body
    from orchestrator.report_text import exact_money

    return {
        **offer_body(one.offer),
        "job_id": one.job_id,
        "reason": one.reason,
        "steps": one.found.steps,
        "seconds_per_step": one.found.step_s,
        "tokens_per_s": one.found.tokens_per_s,
        "forecast_tokens_per_s": one.predicted_tokens_per_s,
        "peak_gib": one.found.peak_gib,
        "forecast_gib": one.predicted_gib,
        "hours": one.hours,
        "expected_usd": None if one.expected_usd is None else exact_money(one.expected_usd),
        "cost_usd": exact_money(one.cost_usd),
    }
