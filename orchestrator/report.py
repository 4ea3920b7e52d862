"""What a person reads about jobs: the list, one job, what still costs. Views in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from jobs.plain import harmless
from orchestrator.report_cost import billed_fields
from orchestrator.report_text import (
    Column,
    Screen,
    cells,
    clip,
    duration,
    moment,
    money,
    number,
    rate,
    table,
    wrap,
)
from orchestrator.report_yours import by_hand_words, deadline_words, yours_lines
from orchestrator.states import ENDINGS, Outcome, State, Teardown
from orchestrator.views import AttemptView, JobView

if TYPE_CHECKING:
    from orchestrator.finish import Finish
    from orchestrator.store_rows import Stray

LABEL_WIDTH = 10  # of the words that open the lines of one job

MACHINE_WORD: dict[Teardown, str] = {
    Teardown.NONE: "none",
    Teardown.LIVING: "living",
    Teardown.STOPPING: "stopping",
    Teardown.STILL_BILLING: "BILLING",
    Teardown.SUSPECT: "suspect",
    Teardown.GONE: "gone",
    Teardown.YOURS_TO_CLOSE: "yours",
    Teardown.CLOSED_BY_OWNER: "closed",
    Teardown.HANDED_ON: "handed on",
}

PS_COLUMNS = (
    Column("job", floor=10, keep=90),
    Column("id", floor=6, keep=70),
    Column("state", floor=9, keep=95),
    Column("where", floor=16, keep=30),
    Column("age", right=True, keep=20),
    Column("training", floor=11, keep=80),
    Column("machine", floor=7, keep=85),
    Column("cost", right=True, floor=6),
)


def ps_lines(
    jobs: Sequence[JobView], now: float, screen: Screen, strays: Sequence[Stray] = ()
) -> list[str]:
    """Return what costs money although it should not, then one line a job, newest first."""
    lines = still_billing_lines(jobs, now, screen) + yours_lines(jobs, now, screen)
    lines += stray_lines(strays, now, screen)
    if not jobs:
        return [*lines, "no jobs yet.  gpujob init writes a job file; gpujob submit runs it."]
    rows = [_ps_row(job, now) for job in jobs]
    body = table(PS_COLUMNS, rows, screen.width)
    for i, job in enumerate(jobs, start=1):
        if job.teardown is Teardown.STILL_BILLING:
            body[i] = screen.accent(body[i])
    return [*lines, *([""] if lines else []), *body]


def _ps_row(job: JobView, now: float) -> tuple[str, ...]:
    return (
        harmless(job.name),
        job.id,
        job.state,
        where(job),
        duration(now - job.created_at),
        progress_word(job),
        MACHINE_WORD[job.teardown],
        money(job.cost_usd),
    )


def newest(job: JobView) -> AttemptView | None:
    """Return the attempt that counts now; None before the first one."""
    return job.attempts[-1] if job.attempts else None


def where(job: JobView) -> str:
    """Return "RTX 4090 runpod" for the newest attempt, "2x" before it for two GPUs."""
    attempt = newest(job)
    if attempt is None:
        return "-"
    count = f"{attempt.gpu_count}x " if attempt.gpu_count > 1 else ""
    return f"{count}{attempt.gpu} {attempt.provider}"


def place(attempt: AttemptView) -> str:
    """Return "RTX 4090, runpod EU-RO-1, $0.74/h", with "notional" where the price is made up."""
    count = f"{attempt.gpu_count}x " if attempt.gpu_count > 1 else ""
    region = f" {attempt.region}" if attempt.region else ""
    notional = " notional" if attempt.price_is_notional else ""
    price = f"{money(attempt.price_usd_per_hour)}/h{notional}"
    return f"{count}{attempt.gpu}, {attempt.provider}{region}, {price}"


def progress_word(job: JobView) -> str:
    """Return how far the training is: "step 88/400" while it runs, then its outcome."""
    attempt = newest(job)
    if job.outcome is not Outcome.RUNNING:
        return job.outcome
    if attempt is not None and attempt.step is not None and attempt.max_steps:
        return f"step {attempt.step}/{attempt.max_steps}"
    return "-"


def machine_claim(job: JobView, now: float) -> str:
    """Return what is known of the machine and how it is known."""
    attempt = newest(job)
    match job.teardown:
        case Teardown.GONE if attempt is not None:
            proof = f"proven {moment(attempt.gone_at, now)}, {attempt.absence_reads} reads"
            return f"machine GONE ({proof})"
        case Teardown.STOPPING if attempt is not None:
            asked = moment(attempt.terminate_first_asked_at, now)
            return f"machine STOPPING (asked {asked}, not yet proven)"
        case Teardown.STILL_BILLING:
            return "machine STILL BILLING"
        case Teardown.SUSPECT:
            return f"machine SUSPECT (the launch was never answered; {_watched(job, now)})"
        case Teardown.YOURS_TO_CLOSE:
            return "machine YOURS TO CLOSE (no call of ours can end it)"
        case Teardown.CLOSED_BY_OWNER if attempt is not None:
            return f"machine CLOSED by its owner's word ({moment(attempt.gone_at, now)})"
        case Teardown.HANDED_ON if attempt is not None:
            return (
                f"machine HANDED ON to a later job ({moment(attempt.gone_at, now)}), counted there"
            )
        case Teardown.LIVING:
            return "machine LIVING"
        case _:
            return "no machine"


def _watched(job: JobView, now: float) -> str:
    """Return until when the name is watched: the latest of all attempts, not the newest's."""
    ends = [a.suspect_until for a in job.attempts if a.suspect_until is not None]
    return f"watched until {moment(max(ends), now)}" if ends else "being looked for"


def still_billing_lines(jobs: Iterable[JobView], now: float, screen: Screen) -> list[str]:
    """Return the block that opens every screen while a machine is past its end; empty otherwise."""
    lines: list[str] = []
    for job in jobs:
        for attempt in job.attempts:
            if attempt.teardown is Teardown.STILL_BILLING:
                lines += _billing_block(job, attempt, now, screen)
    return lines


def _billing_block(job: JobView, attempt: AttemptView, now: float, screen: Screen) -> list[str]:
    asked = attempt.terminate_first_asked_at or attempt.deadline_at
    wasted = attempt.price_usd_per_hour * _hours(now - asked)
    machine = attempt.instance_id or f"label {attempt.label}"
    head = (
        f"STILL BILLING   {harmless(job.name)} #{job.id}   {machine}   "
        f"{money(attempt.price_usd_per_hour)}/h   "
        f"since {moment(asked, now)}, {money(wasted)} so far"
    )
    why = harmless(attempt.terminate_error) or "asked to end, not proven gone"
    calls = f"{attempt.terminate_calls} terminate calls"
    retry = (
        f"{job.supervised_by} keeps trying."
        if job.supervised_by
        else "Nobody is trying now: gpujob sweep tries at once, gpujob supervise keeps trying."
    )
    hand = by_hand_words(job, attempt)
    lines = wrap(head, screen.width) if len(head) > screen.width else [head]
    lines = [screen.accent(line) for line in lines]
    for text in (f"{attempt.provider}, {calls}: {why}", retry, hand):
        lines += wrap(text, screen.width, "  ")
    return lines


def stray_lines(strays: Iterable[Stray], now: float, screen: Screen) -> list[str]:
    """Return the machines that the newest sweep found and no job explains."""
    lines: list[str] = []
    for stray in strays:
        price = f"   ${stray.price_usd_per_hour}/h" if stray.price_usd_per_hour else ""
        head = f"STRAY   {stray.provider} {harmless(stray.instance_id)}{price}"
        lines.append(screen.accent(clip(head, screen.width)))
        text = (
            f"named {harmless(stray.label)}, {stray.kind}, seen since "
            f"{moment(stray.first_seen_at, now)}; gpujob sweep --unknown end ends it, "
            "--unknown adopt makes it a job again."
        )
        lines += wrap(text, screen.width, "  ")
    return lines


def event_lines(events: Sequence[dict[str, Any]], now: float, screen: Screen) -> list[str]:
    """Return the journal in words: when, which attempt, and what happened."""
    lines = []
    for event in events:
        attempt = f"{event['attempt']}" if event["attempt"] else "-"
        lead = f"{moment(event['at_unix_s'], now)}  {attempt}  "
        first, *rest = wrap(harmless(event["text"]), screen.width - len(lead)) or [""]
        lines.append(lead + first)
        lines += [" " * len(lead) + line for line in rest]
    return lines


def _hours(seconds: float) -> Decimal:
    return Decimal(max(0, int(seconds))) / 3600


def status_lines(
    job: JobView, now: float, screen: Screen, finish: Finish | None = None
) -> list[str]:
    """Return one job as a person asks after it: both outcomes, why, progress, cost, attempts."""
    lines = still_billing_lines([job], now, screen) + yours_lines([job], now, screen)
    if lines:
        lines.append("")
    lines += headline_lines(job, now, screen)
    attempt = newest(job)
    fields: list[tuple[str, str]] = [("state", _state_words(job, now))]
    if attempt is not None:
        fields.append(("where", place(attempt)))
        if attempt.note:
            fields.append(("note", harmless(attempt.note)))
    fields += _why_fields(job)
    fields += _training_fields(attempt)
    fields += _finish_fields(finish)
    fields += _money_fields(job)
    fields.append(("output", harmless(job.output_folder)))
    fields += push_fields(job)
    for label, text in fields:
        lines += field_lines(label, text, screen)
    if len(job.attempts) > 1:
        lines += ["", *_attempt_table(job, now, screen)]
    return lines


def headline(job: JobView, now: float) -> str:
    """Return "tone #3f2a   training SUCCEEDED   machine GONE (proven 15:52:09, 2 reads)"."""
    return f"{harmless(job.name)} #{job.id}   training {job.outcome}   {machine_claim(job, now)}"


def headline_lines(job: JobView, now: float, screen: Screen) -> list[str]:
    """Return the headline, the machine's outcome on a line of its own where one is too narrow."""
    whole = headline(job, now)
    if cells(whole) <= screen.width:
        return [whole]
    training, _, machine = whole.rpartition("   ")
    return [*wrap(training, screen.width), *wrap(machine, screen.width, "  ")]


def field_lines(label: str, text: str, screen: Screen) -> list[str]:
    """Return "  label     text", wrapped below its first word."""
    room = screen.width - LABEL_WIDTH - 2
    first, *rest = wrap(text, room) or [""]
    pad = " " * (LABEL_WIDTH + 2)
    return [f"  {label:<{LABEL_WIDTH}}{first}".rstrip(), *(pad + line for line in rest)]


def _state_words(job: JobView, now: float) -> str:
    attempt = newest(job)
    since = f"{job.state}, {duration((job.closed_at or now) - job.created_at)} from submit"
    if job.cancel_asked_at is not None and job.state is not State.CLOSED:
        since += f", cancel asked {moment(job.cancel_asked_at, now)}"
    if job.closed_at is None:
        held = f"driven by {job.supervised_by}" if job.supervised_by else "nobody drives it now"
        since += f"; {held}"
    if attempt is not None and job.closed_at is None:
        since += f"; {deadline_words(attempt, now)}"
    return since


def _why_fields(job: JobView) -> list[tuple[str, str]]:
    if job.reason is None or job.outcome is Outcome.SUCCEEDED:
        return []
    ending = ENDINGS[job.reason]
    fields = [("why", f"{job.reason}: {ending.cause}")]
    if ending.next_step:
        fields.append(("next", ending.next_step))
    kept = max((attempt.kept_step or 0 for attempt in job.attempts), default=0)
    if kept and job.closed_at is not None:
        fields.append(("or", f"gpujob resume {job.id} goes on from step {kept:,}"))
    if job.evidence:
        fields.append(("evidence", clip(harmless(job.evidence), 500)))
    return fields


def _training_fields(attempt: AttemptView | None) -> list[tuple[str, str]]:
    if attempt is None or attempt.step is None:
        return []
    total = f"/{attempt.max_steps}" if attempt.max_steps else ""
    parts = [f"step {attempt.step}{total}"]
    if attempt.loss is not None:
        parts.append(f"loss {number(attempt.loss)}")
    if attempt.eval_loss is not None:
        parts.append(f"eval {number(attempt.eval_loss)}")
    if attempt.tokens_per_s:
        parts.append(f"{rate(attempt.tokens_per_s)} tok/s")
    return [("training", ", ".join(parts))]


def _finish_fields(finish: Finish | None) -> list[tuple[str, str]]:
    if finish is None:
        return []
    low, high = duration(finish.left.low_s), duration(finish.left.high_s)
    text = f"{duration(finish.left.seconds)} left" + (f" ({low} - {high})" if low != high else "")
    least, most = money(finish.low_usd), money(finish.high_usd)
    text += f", about {money(finish.usd)} at the end"
    return [("ETA", text + (f" ({least} - {most})" if least != most else ""))]


def push_fields(job: JobView) -> list[tuple[str, str]]:
    """Return a line for each place that the result is pushed to."""
    rows = []
    for push in job.pushes:
        text = push.where or f"{push.target}: {push.state}"
        if push.where:
            text += " verified"
        elif push.error:
            text += f", {push.error}. {push.remedy}"
        rows.append(("push", harmless(text.strip())))
    return rows


def _money_fields(job: JobView) -> list[tuple[str, str]]:
    attempt = newest(job)
    notional = attempt is not None and attempt.price_is_notional
    text = money(job.cost_usd) + (" notional" if notional else " estimated")
    if job.expected_usd is not None:
        text += f", expected {money(job.expected_usd)}"
    if job.budget_usd is not None:
        text += f", at most {money(job.budget_usd)}"
    fields = [("cost", text)]
    idle = sum(
        (a.cost_usd for a in job.attempts if a.gone_at and a.trainer_started_at is None), Decimal(0)
    )
    if idle > 0 and not notional:
        fields.append(("unserved", f"{money(idle)} of it for machines that never came to train"))
    return fields + billed_fields(job)


def _attempt_table(job: JobView, now: float, screen: Screen) -> list[str]:
    columns = (
        Column("try", right=True),
        Column("where", floor=8, keep=60),
        Column("reason", floor=12),
        Column("machine", floor=7),
        Column("trained", right=True, keep=50),
        Column("cost", right=True),
    )
    rows = [
        (
            str(attempt.number),
            f"{attempt.gpu} {attempt.provider}",
            attempt.reason or attempt.state,
            MACHINE_WORD[attempt.teardown],
            duration(_trained_s(attempt, now)),
            money(attempt.cost_usd),
        )
        for attempt in job.attempts
    ]
    return ["  " + line for line in table(columns, rows, screen.width - 2)]


def _trained_s(attempt: AttemptView, now: float) -> float | None:
    if attempt.trainer_started_at is None:
        return None
    end = attempt.trainer_exited_at or attempt.gone_at or now
    return end - attempt.trainer_started_at
