"""The screen of a running job: what is known now, as lines. A view and a few figures in, text out.

On a terminal the lines are painted over each other; elsewhere `plain_lines` gives the same text
once per change. Painting itself is `orchestrator/paint.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.plain import harmless
from jobs.throughput import Remaining
from orchestrator.eta import Planned, left_of
from orchestrator.finish import PACE_POINTS, costs_at_end
from orchestrator.push_state import PushState
from orchestrator.report import (
    field_lines,
    headline_lines,
    newest,
    place,
    push_fields,
    still_billing_lines,
)
from orchestrator.report_text import (
    Screen,
    bar,
    clip,
    duration,
    moment,
    money,
    number,
    rate,
    size,
    sparkline,
)
from orchestrator.report_yours import yours_lines
from orchestrator.states import ENDINGS, Outcome, Reason, State, Teardown
from orchestrator.views import AttemptView, JobView
from providers.base import BY_HAND

BAR_WIDTH = 24
PLAIN_LINES = 20  # of a whole training, where every change is a line that stays
SPARK_WIDTH = 48


@dataclass(frozen=True, slots=True)
class Transfer:
    """A running upload or download."""

    name: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Curve:
    """What the metrics file told so far: progress as (moment, step), losses, newest GPU figures."""

    points: tuple[tuple[float, int], ...] = ()
    losses: tuple[float, ...] = ()
    gpu_util_percent: float | None = None
    gpu_used_gib: float | None = None
    gpu_total_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """One moment of one job."""

    job: JobView
    now: float
    curve: Curve = Curve()
    transfer: Transfer | None = None
    planned: Planned | None = None


def seconds_per_step(points: Sequence[tuple[float, int]]) -> float | None:
    """Return the newest pace, None before two different steps were seen."""
    recent = points[-PACE_POINTS:]
    if len(recent) < 2 or recent[-1][1] <= recent[0][1]:
        return None
    return (recent[-1][0] - recent[0][0]) / (recent[-1][1] - recent[0][1])


def left(live: Live) -> Remaining | None:
    """Return what is left of the training, by its own steps and the plan; None while unknown."""
    attempt = newest(live.job)
    if attempt is None or attempt.step is None or not attempt.max_steps:
        return None
    return left_of(live.curve.points, attempt.step, attempt.max_steps, live.planned)


def live_lines(live: Live, screen: Screen) -> list[str]:
    """Return the whole screen of a job that is not over; never wider than the screen."""
    job, attempt = live.job, newest(live.job)
    alarm = still_billing_lines([job], live.now, screen)
    if attempt is None:
        return [*alarm, *field_lines("intent", "being written", screen)]
    lines: list[str] = []
    for label, text in phases(live):
        lines += field_lines(label, text, screen)
    if attempt.trainer_started_at is not None and job.state is State.RUNNING:
        lines += training_lines(live, screen)
    if job.closed_at is None:  # the closing lines have the final figure
        lines += field_lines("cost", cost_words(live), screen)
    return [*alarm, *(clip(line, screen.width) for line in lines)]


def phases(live: Live) -> list[tuple[str, str]]:
    """Return the phases reached so far, each with what it did and the seconds it took."""
    attempt = newest(live.job)
    if attempt is None:
        return []
    rows = [("intent", f"attempt {attempt.number} written")]
    rows.append(
        _phase("launch", attempt.intent_at, attempt.launched_at, live, _machine_words(attempt))
    )
    if attempt.launched_at is not None:
        rows.append(
            _phase("boot", attempt.launched_at, attempt.ssh_ready_at, live, "SSH, host key checked")
        )
    if attempt.ssh_ready_at is not None:
        words = "environment, model, data, config"
        if attempt.trainer_started_at is None:
            words = _preparing_words(attempt, live.transfer)
        rows.append(
            _phase("prepare", attempt.ssh_ready_at, attempt.trainer_started_at, live, words)
        )
    if attempt.trainer_started_at is not None and attempt.trainer_exited_at is not None:
        steps = f"{attempt.step}/{attempt.max_steps} steps" if attempt.step is not None else ""
        rows.append(
            _phase("train", attempt.trainer_started_at, attempt.trainer_exited_at, live, steps)
        )
        if live.job.state is State.COLLECTING or attempt.reason is Reason.SUCCEEDED:
            home_at = attempt.terminate_first_asked_at
            words = "bringing the adapter home" if home_at is None else "adapter home, checked"
            rows.append(_phase("collect", attempt.trainer_exited_at, home_at, live, words))
            if attempt.note and home_at is None:
                rows.append(("", harmless(attempt.note)))
    if attempt.terminate_first_asked_at is not None:
        reads = attempt.absence_reads
        gone = f"read as gone {times(reads)}" if reads else "not yet read as gone"
        words = (
            f"asked {times(attempt.terminate_calls)}, {gone}"
            if attempt.provider != BY_HAND
            else f"left by us, asked {times(attempt.terminate_calls)}; its end is yours"
        )
        rows.append(_phase("stop", attempt.terminate_first_asked_at, attempt.gone_at, live, words))
    rows.append(("push", push_words(live.job)))
    return [(label, text) for label, text in rows if text]


def push_words(job: JobView) -> str:
    """Return "s3://bucket/x verified, hf://ada/tone pushing"; "" before anything is pushed."""
    begun = [push for push in job.pushes if push.state != PushState.WAITING]
    return ", ".join(harmless(f"{push.target} {push.state}") for push in begun)


def _phase(label: str, start: float, end: float | None, live: Live, words: str) -> tuple[str, str]:
    over = end is not None or live.job.state is State.CLOSED
    took = duration((end or live.now) - start)
    return label, harmless(f"{words}  {took}" if over else f"{words} ...  {took}")


def _machine_words(attempt: AttemptView) -> str:
    return attempt.instance_id or "asked"


def _preparing_words(attempt: AttemptView, transfer: Transfer | None) -> str:
    words = attempt.prepare_step or "connecting"
    if transfer is not None and transfer.total_bytes:
        done = f"{size(transfer.done_bytes)} of {size(transfer.total_bytes)}"
        meter = bar(transfer.done_bytes, transfer.total_bytes, BAR_WIDTH // 2)
        words += f": {transfer.name} {meter} {done}"
    return words


def training_lines(live: Live, screen: Screen) -> list[str]:
    """Return the bar with step, pace and ETA, the newest figures, the loss as a line of blocks."""
    attempt = newest(live.job)
    if attempt is None:
        return []
    lines = field_lines("train", progress_words(live), screen)
    figures = figure_words(live)
    if figures:
        lines += field_lines("", figures, screen)
    losses = live.curve.losses
    finite = [loss for loss in losses if loss - loss == 0]
    if len(losses) > 1 and finite:
        room = min(SPARK_WIDTH, screen.width - 34)
        spark = f"{number(losses[0])} {sparkline(losses, room)} {number(losses[-1])}"
        lines += field_lines("loss", clip(spark, screen.width - 12), screen)
    return lines


def progress_words(live: Live) -> str:
    """Return "######-----  step 512/902  1.9 s/it  ETA 12m21s"."""
    attempt = newest(live.job)
    if attempt is None or attempt.step is None:
        started = attempt.trainer_started_at if attempt else None
        return f"loading  {duration(live.now - (started or live.now))}"
    if not attempt.max_steps:
        return f"step {attempt.step}"
    words = f"{bar(attempt.step, attempt.max_steps, BAR_WIDTH)}  step {attempt.step}"
    words += f"/{attempt.max_steps}"
    pace = seconds_per_step(live.curve.points)
    if pace is not None and pace > 0:
        words += f"  {pace:.1f} s/it" if pace >= 1 else f"  {1 / pace:.1f} it/s"
    rest = left(live)
    if rest is not None:
        words += f"  ETA {duration(rest.seconds)}"
        low, high = duration(rest.low_s), duration(rest.high_s)
        words += f" ({low} - {high})" if low != high else ""
    return words


def figure_words(live: Live) -> str:
    """Return "loss 1.284 (eval 1.311), 2,531 tok/s, GPU 97 %, 16.1 of 23.6 GiB", what is known."""
    attempt, curve = newest(live.job), live.curve
    if attempt is None:
        return ""
    parts = []
    if attempt.loss is not None:
        evaluated = f" (eval {number(attempt.eval_loss)})" if attempt.eval_loss is not None else ""
        parts.append(f"loss {number(attempt.loss)}{evaluated}")
    if attempt.tokens_per_s:
        parts.append(f"{rate(attempt.tokens_per_s)} tok/s")
    if curve.gpu_util_percent is not None:
        parts.append(f"GPU {curve.gpu_util_percent:.0f} %")
    if curve.gpu_used_gib is not None and curve.gpu_total_gib is not None:
        parts.append(f"{curve.gpu_used_gib:.1f} of {curve.gpu_total_gib:.1f} GiB")
    return ", ".join(parts)


def cost_words(live: Live) -> str:
    """Return "$0.71 so far, about $2.38 at the end", never without saying when it is notional."""
    job, attempt = live.job, newest(live.job)
    words = f"{money(job.cost_usd)} so far"
    rest = left(live)
    if attempt is not None and rest is not None and job.state is State.RUNNING:
        at_end = [money(usd) for usd in costs_at_end(job, rest)]
        words += f", about {at_end[0]}"
        words += f" ({at_end[1]} - {at_end[2]})" if at_end[1] != at_end[2] else ""
        words += " at the end"
    if job.budget_usd is not None:
        words += f", at most {money(job.budget_usd)}"
    if attempt is not None and attempt.price_is_notional:
        words += " (notional price)"
    return words


def times(count: int) -> str:
    """Return "once" or "3 times"."""
    return "once" if count == 1 else f"{count} times"


def opening_lines(job: JobView, screen: Screen) -> list[str]:
    """Return the line above the phases: which job, on what, at what price."""
    attempt = newest(job)
    parts = [f"{harmless(job.name)} #{job.id}"]
    if attempt is not None:
        parts.append(place(attempt))
    if job.budget_usd is not None:
        parts.append(f"budget {money(job.budget_usd)}")
    return [clip("   ".join(parts), screen.width)]


def closing_lines(job: JobView, files: int | None, now: float, screen: Screen) -> list[str]:
    """Return what stays on the screen at the end: both outcomes, adapter, loss, time, cost."""
    lines = still_billing_lines([job], now, screen) + yours_lines([job], now, screen)
    lines += [""] if lines else []
    lines += headline_lines(job, now, screen)
    attempt = newest(job)
    rows: list[tuple[str, str]] = []
    if job.reason is not None and job.outcome is not Outcome.SUCCEEDED:
        ending = ENDINGS[job.reason]
        rows.append(("why", f"{job.reason}: {ending.cause}"))
        if job.evidence:
            rows.append(("evidence", harmless(job.evidence)))
        if ending.next_step:
            rows.append(("next", ending.next_step))
    if job.outcome is Outcome.SUCCEEDED:
        checked = f"{files} files verified, " if files is not None else ""
        rows.append(("adapter", f"{checked}{harmless(job.output_folder)}"))
    rows += push_fields(job)
    rows += _closing_figures(job, attempt, now)
    for label, text in rows:
        lines += field_lines(label, text, screen)
    return lines


def _closing_figures(
    job: JobView, attempt: AttemptView | None, now: float
) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if attempt is not None and attempt.loss is not None:
        evaluated = f", {number(attempt.eval_loss)} eval" if attempt.eval_loss is not None else ""
        rows.append(("loss", f"{number(attempt.loss)} train{evaluated}"))
    words = f"{duration((job.closed_at or now) - job.created_at)} from submit"
    if attempt is not None and attempt.trainer_started_at is not None:
        end = attempt.trainer_exited_at or job.closed_at or now
        words += f", {duration(end - attempt.trainer_started_at)} trained"
    rows.append(("time", words))
    notional = attempt is not None and attempt.price_is_notional
    cost = f"{money(job.cost_usd)} {'at a notional price' if notional else 'estimated'}"
    if job.expected_usd is not None:
        cost += f" (expected {money(job.expected_usd)})"
    if notional:
        cost += "; nobody bills it"
    elif attempt is not None and attempt.price_usd_per_hour > 0:
        cost += "; the provider's bill follows"
    rows.append(("cost", cost))
    return rows


def plain_lines(before: Live | None, live: Live, screen: Screen) -> list[str]:
    """Return what is new since `before`, as lines for a log: phases at their end, new steps."""
    told = dict(phases(before)) if before is not None else {}
    lines: list[str] = []
    for label, text in phases(live):
        if _timeless(text) != _timeless(told.get(label, "")):
            lines += field_lines(label, _timeless(text), screen)
    if live.job.state is State.RUNNING and _share(live) != (before and _share(before)):
        text = progress_words(live)
        lines += field_lines("train", f"{text}  {figure_words(live)}".rstrip(), screen)
    if live.job.teardown is Teardown.STILL_BILLING and (
        before is None or before.job.teardown is not Teardown.STILL_BILLING
    ):
        lines += still_billing_lines([live.job], live.now, screen)
    return lines


def _timeless(text: str) -> str:
    """Return a phase's words without the seconds of a phase that still goes on."""
    words, going_on, _ = text.partition(" ...")
    return words + going_on if going_on else text


def _share(live: Live) -> int | None:
    """Return which twentieth of the training is done: the steps worth a line of their own."""
    attempt = newest(live.job)
    if attempt is None or attempt.step is None or not attempt.max_steps:
        return None
    return attempt.step * PLAIN_LINES // attempt.max_steps


def closed_at_words(job: JobView, now: float) -> str:
    """Return when the job was closed, for lists."""
    return moment(job.closed_at, now)
