"""From a job to what is asked of offers: memory, tokens, caps; and what to change if nothing fits.

Reads the data set's first records and, for a model folder, its `config.json`; asks no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.architectures import ArchitectureError
from jobs.memory_levers import Lever, levers
from jobs.sizing import Lengths, Tokens, architecture_of, sizing_of, tokens_of
from jobs.workload import WorkloadError, check
from orchestrator.exits import Refused
from orchestrator.match import CPU, Quote, Requirement, match, same_gpu
from orchestrator.measured import MeasuredPoint, speeds
from orchestrator.sized import Sized
from providers.base import Offer, Tier
from providers.gpus import GPUS

if TYPE_CHECKING:
    from jobs.spec import JobSpec

SAMPLE_RECORDS = 20_000  # lengths are measured on so many; the rest is counted by bytes
NOMINAL_TOKENS = 10_000_000  # hours and costs are for so many where the data is not at hand
SHOWN_CHANGES = 6


@dataclass(frozen=True, slots=True)
class Need:
    """What the job asks: the requirement, and every assumption beside the models' own, in words.

    unsized: why nothing is known of the job's memory; empty where it is. contradicts: because its
    own settings contradict one another, not because its model is unknown.
    """

    requirement: Requirement
    assumptions: tuple[str, ...] = ()
    unsized: str = ""
    contradicts: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the job that makes an offer fit, with the best quote after it."""

    words: str
    quote: Quote
    size: float  # small is less of a change: GiB saved, or steps of relaxed wishes


def wishes_of(spec: JobSpec) -> Requirement:
    """Return what the job's `gpu` and `limits` sections ask for; nothing of its memory."""
    gpu = spec.gpu
    return Requirement(
        providers=tuple(gpu.providers),
        types=tuple(gpu.types),
        count=gpu.count,
        max_price_usd_per_hour=gpu.max_price_usd_per_hour,
        tiers=() if gpu.tier == "any" else (Tier(gpu.tier),),
        spot=gpu.spot,
        prefer=gpu.prefer,
        budget_usd=spec.limits.budget_usd,
        max_hours=float(spec.limits.hours),
    )


def need_of(
    spec: JobSpec,
    points: Sequence[MeasuredPoint] = (),
    *,
    with_tokens: bool = True,
    configs: Path | None = None,
) -> Need:
    """Return what the job asks of a machine; a model that no table knows is said in `unsized`.

    points: what probes measured. with_tokens: False leaves the data alone; hours and cost are
    nominal then. configs: as in `architecture_of`.
    """
    wishes = wishes_of(spec)
    try:
        sizing = sizing_of(spec, architecture_of(spec, configs))
        check(replace(sizing.work, gpus=1, strategy="none"))
    except (ArchitectureError, WorkloadError) as error:
        contradicts = isinstance(error, WorkloadError)
        return Need(wishes, unsized=str(error), contradicts=contradicts)
    keys = {**spec.axolotl.base, **spec.axolotl.keys}
    work = replace(sizing.work, gpus=spec.gpu.count or 1, strategy=_any_strategy(spec))
    found = lengths_of(spec) if with_tokens else None
    assumptions = list(sizing.supposed)
    tokens: Tokens
    if found is None:
        tokens = Tokens(NOMINAL_TOKENS, 0, NOMINAL_TOKENS, 0, "nominal", assumed=True)
        assumptions.append(
            f"the data's length is not known: hours and cost are for {NOMINAL_TOKENS:,} tokens"
        )
    else:
        held = spec.data.validation
        share = float(held) if not isinstance(held, Path) else None
        tokens = tokens_of(spec, work, found, share)
        assumptions.append(tokens.how)
    sized = Sized(
        sizing.work,
        tokens,
        keep_batch=spec.gpu.count is None,
        wants_bf16=keys.get("bf16", "auto") is not False,
        wants_fp8=bool(keys.get("fp8")),
        kept_checkpoints=spec.checkpoints.keep,
        measured=speeds(points, sizing.work),
    )
    if wishes.spot:
        assumptions.append("spot: one interruption in 20 hours, half a checkpoint's work lost")
    caps = replace(wishes, sized=sized)
    if tokens.assumed:  # a nominal job must not lose offers by its nominal cost
        caps = replace(caps, budget_usd=None, max_hours=None)
    return Need(caps, tuple(assumptions))


def _any_strategy(spec: JobSpec) -> str:
    return "ddp" if (spec.gpu.count or 1) > 1 else "none"


def check_gpu_names(names: Sequence[str], offers: Sequence[Offer]) -> None:
    """Raise Refused for a card that no table and no offer knows, with the nearest name."""
    import difflib

    known = sorted({*GPUS, *(offer.gpu for offer in offers), CPU})
    for name in names:
        if any(same_gpu(name, card) for card in known):
            continue
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.3)
        raise Refused(
            f"gpu.types: no table knows a card {name!r}",
            remedy=f"Nearest: {near[0]}." if near else f"Known: {', '.join(known)}.",
        )


def lengths_of(spec: JobSpec) -> Lengths | None:
    """Return the lengths of the training records, from the first ones; None where none is read."""
    from jobs.data import gate
    from jobs.data.digest import Steps
    from jobs.data.options import Options

    train = spec.data.train
    if train is None or not Path(train).exists():
        return None
    options = Options(
        columns=tuple(sorted(spec.data.columns.items())),
        tokenizer=str(spec.model_folder) if spec.model_folder else "",
        with_pii=False,
    )
    report = gate.Report()
    read_whole = [0, 1]

    def progress(done: int, whole: int, _records: int) -> None:
        read_whole[:] = [done, whole]

    sources = gate.sources_of([Path(train)], report)
    for _ in gate.stream(
        sources, report, options, Steps(lengths=True), progress=progress, processes=1
    ):
        if len(report.lengths.total) >= SAMPLE_RECORDS:
            break
    lengths = sorted(report.lengths.total)
    if not lengths:
        return None
    done, whole = read_whole
    partly = 0 < done < whole
    examples = round(len(lengths) * whole / done) if partly else len(lengths)
    how = "counted" if report.lengths.how != "estimate" else "estimated, ±25 %"
    return Lengths(tuple(lengths), examples, how)


def changes_that_fit(requirement: Requirement, offers: Sequence[Offer]) -> tuple[Change, ...]:
    """Return single changes after which an offer fits, smallest first, each with its price.

    Where no single one will do, all that leave the result as it is are made together, then the
    others are added one by one.
    """
    found = [
        Change(words, best, size)
        for words, size, changed in _single_changes(requirement)
        if (best := _best(changed, offers)) is not None
    ]
    if not found:
        found = list(_together(requirement, offers))
    found.sort(key=lambda change: (change.size, change.quote.expected_usd or Decimal(0)))
    return tuple(found[:SHOWN_CHANGES])


def _best(requirement: Requirement, offers: Sequence[Offer]) -> Quote | None:
    quotes = match(requirement, offers).quotes
    return quotes[0] if quotes else None


def _single_changes(need: Requirement) -> Iterator[tuple[str, float, Requirement]]:
    """Yield words, size and the changed requirement: of the training, then of the wishes."""
    if need.sized is not None:
        for lever in levers(need.sized.work):
            if "gpus" not in dict(lever.changes):
                work = lever.apply(need.sized.work)
                size = lever.saves_gib + (0 if lever.same_result else 1000)
                yield _lever_words(lever), size, replace(need, sized=need.sized.changed(work))
    for words, changed in (
        ("gpu.types: any", replace(need, types=())),
        ("gpu.count: as many as it takes", replace(need, count=None)),
        ("gpu.max_price_usd_per_hour: none", replace(need, max_price_usd_per_hour=None)),
        ("limits.budget_usd: higher", replace(need, budget_usd=None)),
        ("limits.hours: higher", replace(need, max_hours=None)),
        ("gpu.tier: any", replace(need, tiers=())),
        ("gpu.spot: true", replace(need, spot=True)),
    ):
        if changed != need:
            yield words, 500.0, changed


def _lever_words(lever: Lever) -> str:
    return f"{lever.name} ({lever.costs})"


def _together(need: Requirement, offers: Sequence[Offer]) -> Iterator[Change]:
    """Yield the first heap of changes that fits: the harmless ones, then one more at a time."""
    if need.sized is None:
        return
    work, said = need.sized.work, []
    for harmless in (True, False):
        for _ in range(12):
            left = [v for v in levers(work) if v.same_result is harmless]
            left = [v for v in left if "gpus" not in dict(v.changes)]
            if not left:
                break
            work = left[0].apply(work)
            said.append(left[0].name)
            best = _best(replace(need, sized=need.sized.changed(work)), offers)
            if best is not None:
                yield Change(" and ".join(said), best, float(len(said)))
                return
