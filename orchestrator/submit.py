"""From a job file to a stored job: read, ask for offers, match, and write down. Prints nothing.

Nothing here spends: the first call that may is the runner's launch, after the job is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Exit, Refused
from orchestrator.match import Matching, Quote, Requirement, match
from orchestrator.redact import told
from providers.base import Offer, Provider, Tier
from providers.errors import ProviderError

if TYPE_CHECKING:
    from jobs.load import LoadedJob
    from jobs.spec import JobSpec
    from orchestrator.data_gate import Gated
    from orchestrator.home import Home
    from orchestrator.store import Store

SHOWN_REJECTED = 8  # of the offers that lost: enough to see why, not a catalogue


@dataclass(frozen=True, slots=True)
class Plan:
    """What a submit would do: the job, its quotes in order of trying, and what was unreachable."""

    spec: JobSpec
    matching: Matching
    unreachable: Mapping[str, str]  # provider -> its own words
    notes: tuple[str, ...] = ()  # what was put right in the job file
    data_lines: tuple[str, ...] = ()  # what the data gate says, for the screen
    data: Mapping[str, Any] = field(default_factory=dict)  # and for --json; empty: not checked

    @property
    def best(self) -> Quote:
        """Return the quote that is tried first."""
        return self.matching.quotes[0]


def read_job(path: Path, changes: Sequence[str]) -> LoadedJob:
    """Return the checked job; raises JobFileError, whose text is the answer."""
    from jobs.load import load_job

    return load_job(path, overrides=tuple(changes))


def requirement_of(spec: JobSpec) -> Requirement:
    """Return what the job's `gpu` section asks for."""
    gpu = spec.gpu
    return Requirement(
        providers=tuple(gpu.providers),
        types=tuple(gpu.types),
        count=gpu.count,
        max_price_usd_per_hour=gpu.max_price_usd_per_hour,
        tiers=() if gpu.tier == "any" else (Tier(gpu.tier),),
        spot=gpu.spot,
    )


def plan(loaded: LoadedJob, providers: Mapping[str, Provider]) -> Plan:
    """Return the quotes of all providers asked, n calls; raises Refused where none will do."""
    spec = loaded.spec
    wanted = spec.gpu.providers
    unknown = [name for name in wanted if name not in providers]
    if unknown:
        raise Refused(
            f"gpu.providers: {', '.join(unknown)}: not set up here",
            remedy=f"Set up: {', '.join(providers) or 'none'}. gpujob doctor says what is missing.",
        )
    offers: list[Offer] = []
    unreachable: dict[str, str] = {}
    for name, provider in providers.items():
        if wanted and name not in wanted:
            continue
        try:
            offers += provider.offers()
        except ProviderError as error:
            unreachable[name] = told(error, kind=False)
    matching = match(requirement_of(spec), offers)
    if not matching.quotes:
        raise Refused(*_nothing_fits(matching, unreachable), code=Exit.NO_OFFER)
    return Plan(spec, matching, unreachable, loaded.notes)


def with_data(planned: Plan, gated: Gated, *, pii_reviewed: bool) -> Plan:
    """Return the plan with what the data gate says, and without the offers that its finds forbid.

    Raises Refused, exit code 6, where no offer is left.
    """
    from orchestrator.data_gate import in_region

    matching = in_region(
        planned.matching, gated, planned.spec.data.region or "", reviewed=pii_reviewed
    )
    return replace(planned, matching=matching, data_lines=gated.lines, data=gated.summary)


def _nothing_fits(matching: Matching, unreachable: Mapping[str, str]) -> tuple[str]:
    lines = ["no offer fits this job."]
    lines += [f"  {name} did not answer: {words}" for name, words in unreachable.items()]
    for lost in matching.rejected[:SHOWN_REJECTED]:
        offer = lost.offer
        lines.append(f"  {offer.gpu} at {offer.provider}: {lost.reason}")
    more = len(matching.rejected) - SHOWN_REJECTED
    if more > 0:
        lines.append(f"  and {more} more; gpujob providers lists them")
    return ("\n".join(lines),)


def price_asked(offer: Offer) -> Decimal:
    """Return USD per hour that somebody will really bill: nothing where the price is made up."""
    return Decimal(0) if offer.price_is_notional else offer.price_usd_per_hour


def at_most_usd(spec: JobSpec, offer: Offer) -> Decimal:
    """Return what the job can cost at the most: its budget, or its hours at this price."""
    by_time = offer.price_usd_per_hour * Decimal(str(spec.limits.hours))
    budget = spec.limits.budget_usd
    return by_time if budget is None else min(budget, by_time)


def environment_note(offer: Offer, root: Path, given: Path | None) -> str | None:
    """Return what has to be downloaded before this very machine can train; None where nothing has.

    root: the home. given: GPUJOB_AXOLOTL_ENV.
    """
    from orchestrator.axolotl_env import DISK_BYTES, DOWNLOAD_BYTES
    from orchestrator.compose_site import ENVIRONMENTS
    from orchestrator.match import CPU

    if offer.tier is not Tier.OWN or given is not None:
        return None
    if any((root / ENVIRONMENTS).glob("*/READY.json")):
        return None
    variant = "cpu" if offer.gpu == CPU else "cuda"
    down, disk = DOWNLOAD_BYTES[variant] / 1e9, DISK_BYTES[variant] / 1e9
    return (
        f"the first job here builds Axolotl's environment: about {down:.1f} GB to download, "
        f"{disk:.1f} GB on disk, some minutes; later jobs reuse it"
    )


def axolotl_text(spec: JobSpec, offer: Offer) -> str:
    """Return the Axolotl file that the instance would get, with paths below `<folder>`."""
    from jobs.axolotl import Layout, Stack, axolotl_config, to_yaml
    from orchestrator.match import CPU

    stack: Stack = "cpu" if offer.gpu == CPU else "cuda"
    return to_yaml(axolotl_config(spec, layout=Layout("<folder>"), stack=stack))


def store_job(planned: Plan, store: Store, home: Home, *, now: float) -> str:
    """Return the id of the job, written down with its key: a supervisor may now take it up."""
    from orchestrator.plan import Caps, LaunchSpec, NewJob
    from orchestrator.ssh_keys import job_key

    spec = planned.spec
    job_id = store.new_job_id()
    key = job_key(home.root, job_id)
    boot = spec.limits.boot_minutes
    store.create_job(
        NewJob(
            id=job_id,
            name=spec.name,
            spec=spec.model_dump(mode="json"),
            offers=tuple(quote.offer for quote in planned.matching.quotes),
            launch=LaunchSpec(public_key=key.public_line, image=spec.gpu.image),
            caps=Caps(
                budget_usd=spec.limits.budget_usd,
                max_s=float(spec.limits.hours) * 3600,
                boot_timeout_s=None if boot is None else float(boot) * 60,
                keep_checkpoints=spec.checkpoints.kept_at_home(spec.method),
            ),
            output_folder=str(spec.output),
            expected_usd=planned.best.expected_usd,
        ),
        now=now,
    )
    return job_id


def refuse_unasked_spending(planned: Plan, *, yes: bool) -> None:
    """Raise Refused where money would be spent and nobody can be asked."""
    price = price_asked(planned.best.offer)
    if price > 0 and not yes and not sys.stdin.isatty():
        raise Refused(
            f"this would cost ${price}/h, and there is no terminal to ask on",
            remedy="Add --yes to agree beforehand, or --dry-run to only look.",
        )
