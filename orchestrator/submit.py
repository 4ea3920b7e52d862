"""From a job file to a stored job: read, ask for offers, match, and write down. Prints nothing.

Nothing here spends: the first call that may is the runner's launch, after the job is stored.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.exits import Exit, Refused
from orchestrator.match import CPU, Matching, Quote, match
from orchestrator.redact import told
from providers.base import BY_HAND, Offer, Provider, Selective, Tier, Wish
from providers.errors import InvalidRequest, ProviderError

if TYPE_CHECKING:
    from jobs.load import LoadedJob
    from jobs.spec import JobSpec
    from orchestrator.data_gate import Gated
    from orchestrator.home import Home
    from orchestrator.measured import MeasuredPoint
    from orchestrator.plan import JobRecord
    from orchestrator.planning import Change, Need
    from orchestrator.sized import Sized
    from orchestrator.store import Store

ANYTHING = Wish()
# Axolotl's environment (8.5 GB), a 7B model (15), its adapter, prepared data, and as much to spare.
UNSIZED_DISK_GIB = 60
# Of a container's own disk, which a restart wipes and no job works on (providers/runpod_pods.py).
CONTAINER_GIB = 20
SHOWN_REJECTED = 8  # of the offers that lost: enough to see why, not a catalogue


@dataclass(frozen=True, slots=True)
class Plan:
    """What a submit would do: the job, its quotes in order of trying, and what was unreachable.

    listed: the prices are a list's, and nothing of them is for hire now. changes: what would make
    an offer fit, where none does.
    """

    spec: JobSpec
    matching: Matching
    unreachable: Mapping[str, str]  # provider -> its own words
    notes: tuple[str, ...] = ()  # what was put right in the job file
    data_lines: tuple[str, ...] = ()  # what the data gate says, for the screen
    data: Mapping[str, Any] = field(default_factory=dict)  # and for --json; empty: not checked
    need: Need | None = None
    listed: bool = False
    changes: tuple[Change, ...] = ()
    resume_from: Path | None = None  # a checkpoint at home to go on from
    keep_on_failure_s: float = 0.0
    boot_s: float | None = None  # the best offer's provider waits so long for a first login

    @property
    def best(self) -> Quote:
        """Return the quote that is tried first."""
        return self.matching.quotes[0]

    @property
    def sized(self) -> Sized | None:
        """Return the job's memory and speed; None where its model is not known."""
        return None if self.need is None else self.need.requirement.sized


def read_job(path: Path, changes: Sequence[str]) -> LoadedJob:
    """Return the checked job; raises JobFileError, whose text is the answer."""
    from jobs.load import load_job

    return load_job(path, overrides=tuple(changes))


def offers_of(provider: Provider, wish: Wish) -> Sequence[Offer]:
    """Return a provider's offers, asked for in the way that it prefers. n calls."""
    return provider.offers_for(wish) if isinstance(provider, Selective) else provider.offers()


def plan(
    loaded: LoadedJob,
    providers: Mapping[str, Provider],
    points: Sequence[MeasuredPoint] = (),
    configs: Path | None = None,
    hub: str | None = None,
) -> Plan:
    """Return the quotes of all providers asked, n calls; raises Refused where none will do.

    hub: why the hub did not tell the model's shape; a job that nobody can size is refused then.
    None: it is taken.
    """
    from orchestrator.shapes import refuse_unsized

    check_provider_names(loaded.spec.gpu.providers, providers)
    planned = look(loaded, providers, points, configs=configs)
    if hub is not None:
        refuse_unsized(planned, hub)
    return fitting(planned)


def check_provider_names(wanted: Sequence[str], there: Collection[str]) -> None:
    """Raise Refused for a provider that the job names and that is not among these."""
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise Refused(
            f"gpu.providers: {', '.join(unknown)}: not set up here",
            remedy=f"Set up: {', '.join(there) or 'none'}. gpujob doctor says what is missing.",
        )


def fitting(planned: Plan) -> Plan:
    """Return the plan itself; raises Refused, exit code 3, where no offer will do."""
    if not planned.matching.quotes:
        raise Refused(nothing_fits(planned), code=Exit.NO_OFFER)
    return planned


def look(
    loaded: LoadedJob,
    providers: Mapping[str, Provider],
    points: Sequence[MeasuredPoint] = (),
    *,
    list_prices: bool = False,
    configs: Path | None = None,
) -> Plan:
    """Return what all providers asked offer for the job, n calls; none may do.

    points: what probes measured. list_prices: where no GPU is for hire at any of them, plan with a
    dated price list. configs: as in `architecture_of`.
    """
    from orchestrator.planning import changes_that_fit, check_gpu_names, need_of

    spec = loaded.spec
    need = need_of(spec, points, configs=configs)
    asked = need.requirement
    wish = Wish(asked.count, asked.tiers, asked.spot)
    offers, unreachable = ask(providers, spec.gpu.providers, wish)
    listed = list_prices and all(offer.gpu == CPU for offer in offers)
    if listed:
        from providers.catalogue import list_offers

        offers += list_offers()
    check_gpu_names(spec.gpu.types, offers)
    matching = match(need.requirement, offers)
    notes = loaded.notes
    if need.unsized:
        notes = (*notes, f"memory not checked: {need.unsized}")
    changes = () if matching.quotes else changes_that_fit(need.requirement, offers)
    best = providers.get(matching.quotes[0].offer.provider) if matching.quotes else None
    return Plan(
        spec, matching, unreachable, notes, need=need, listed=listed, changes=changes,
        boot_s=None if best is None else best.traits.boot_timeout_s,
    )  # fmt: skip


def ask(
    providers: Mapping[str, Provider], wanted: Sequence[str], wish: Wish = ANYTHING
) -> tuple[list[Offer], dict[str, str]]:
    """Return what is for hire at the providers wanted (all for none), and who did not answer."""
    offers: list[Offer] = []
    unreachable: dict[str, str] = {}
    for name, provider in providers.items():
        if wanted and name not in wanted:
            continue
        try:
            offers += offers_of(provider, wish)
        except InvalidRequest as error:  # what the person wrote for this provider is wrong
            raise Refused(told(error, kind=False)) from error
        except ProviderError as error:
            unreachable[name] = told(error, kind=False)
    return offers, unreachable


def with_data(planned: Plan, gated: Gated, *, pii_reviewed: bool) -> Plan:
    """Return the plan with what the data gate says, and without the offers that its finds forbid.

    Raises Refused, exit code 6, where no offer is left. To a list of prices nothing is sent.
    """
    from orchestrator.data_gate import in_region

    if planned.listed:
        return replace(planned, data_lines=gated.lines, data=gated.summary)

    matching = in_region(
        planned.matching, gated, planned.spec.data.region or "", reviewed=pii_reviewed
    )
    return replace(planned, matching=matching, data_lines=gated.lines, data=gated.summary)


def nothing_fits(planned: Plan) -> str:
    """Return why no offer will do, and the smallest changes after which one would."""
    lines = ["no offer fits this job."]
    lines += [f"  {name} did not answer: {words}" for name, words in planned.unreachable.items()]
    rejected = planned.matching.rejected
    for lost in rejected[:SHOWN_REJECTED]:
        offer = lost.offer
        count = f"{offer.gpu_count}x " if offer.gpu_count > 1 else ""
        lines.append(f"  {count}{offer.gpu} at {offer.provider}: {lost.reason}")
    more = len(rejected) - SHOWN_REJECTED
    if more > 0:
        lines.append(f"  and {more} more; gpujob providers lists them")
    if planned.changes:
        lines.append("what would make one fit:")
    lines += [f"  {change_words(change)}" for change in planned.changes]
    return "\n".join(lines)


def change_words(change: Change) -> str:
    """Return "fused loss (costs nothing; ...): A5000 at $0.27/h, about $2.10 to finish"."""
    offer, expected = change.quote.offer, change.quote.expected_usd
    count = f"{offer.gpu_count}x " if offer.gpu_count > 1 else ""
    cost = "" if expected is None else f", about ${expected:.2f} to finish"
    return f"{change.words}: {count}{offer.gpu} at ${offer.price_usd_per_hour}/h{cost}"


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

    if offer.tier is not Tier.OWN or offer.provider == BY_HAND or given is not None:
        return None
    if any((root / ENVIRONMENTS).glob("*/READY.json")):
        return None
    variant = "cpu" if offer.gpu == CPU else "cuda"
    down, disk = DOWNLOAD_BYTES[variant] / 1e9, DISK_BYTES[variant] / 1e9
    return (
        f"the first job here builds Axolotl's environment: about {down:.1f} GB to download, "
        f"{disk:.1f} GB on disk, some minutes; later jobs reuse it"
    )


def axolotl_text(spec: JobSpec, quote: Quote | None) -> str:
    """Return the Axolotl file that the instance would get, with paths below `<folder>`.

    quote: None where no offer fits: as for one GPU.
    """
    from jobs.axolotl import Layout, Stack, axolotl_config, to_yaml
    from jobs.sizing import shared_out

    stack: Stack = "cpu" if quote is not None and quote.offer.gpu == CPU else "cuda"
    config = axolotl_config(spec, layout=Layout("<folder>"), stack=stack)
    if quote is not None and quote.fit is not None and quote.offer.gpu_count > 1:
        config = shared_out(config, quote.fit.work)
    return to_yaml(config)


def disk_gib(planned: Plan) -> int:
    """Return what is asked for of a machine whose disk is rented with it; 0 for all others."""
    rented = [
        quote
        for quote in planned.matching.quotes
        if quote.offer.disk_gib is None and quote.offer.storage_usd_per_gib_hour > 0
    ]
    needs = [ceil(quote.fit.need.disk_gib) for quote in rented if quote.fit is not None]
    if not rented:
        return 0
    return CONTAINER_GIB + max(needs, default=UNSIZED_DISK_GIB - CONTAINER_GIB)


def store_job(
    planned: Plan, store: Store, home: Home, *, now: float, lease_s: float | None = None
) -> str:
    """Return the id of the job, written down with its key: a supervisor may now take it up.

    lease_s: of its machines, where the job file names none.
    """
    from orchestrator.plan import Caps, LaunchSpec, NewJob
    from orchestrator.ssh_keys import job_key
    from orchestrator.submit_money import reserve_usd

    spec = planned.spec
    job_id = store.new_job_id()
    key = job_key(home.root, job_id)
    boot, lease = spec.limits.boot_minutes, spec.limits.lease_minutes
    if planned.resume_from is not None:
        _take_over(planned.resume_from, home.checkpoints(job_id))
    store.create_job(
        NewJob(
            id=job_id,
            name=spec.name,
            spec=spec.model_dump(mode="json"),
            offers=tuple(quote.offer for quote in planned.matching.quotes),
            launch=LaunchSpec(
                public_key=key.public_line,
                image=spec.gpu.image,
                template=spec.gpu.template,
                disk_gib=disk_gib(planned),
                lease_s=(lease_s or 0.0) if lease is None else float(lease) * 60,
            ),
            caps=Caps(
                budget_usd=spec.limits.budget_usd,
                reserve_usd=reserve_usd(planned.best.offer, spec.limits.budget_usd),
                keep_on_failure_s=planned.keep_on_failure_s,
                max_s=float(spec.limits.hours) * 3600,
                boot_timeout_s=None if boot is None else float(boot) * 60,
                keep_checkpoints=spec.checkpoints.kept(spec.method),
            ),
            output_folder=str(spec.output_folder),
            pushes=spec.pushes,
            expected_usd=planned.best.expected_usd,
        ),
        now=now,
    )
    return job_id


def _take_over(checkpoint: Path, folder: Path) -> None:
    """Give a job another one's checkpoint: by links, so that it costs no room; whole or not."""
    part = folder / f"{checkpoint.name}.part"
    shutil.copytree(checkpoint, part, copy_function=os.link)
    part.rename(folder / checkpoint.name)


def resumed(record: JobRecord, gpu_types: Sequence[str]) -> LoadedJob:
    """Return the job that goes on where a closed one ended, perhaps on other GPUs.

    Raises Refused where it finished or still runs, or where its data or model is no longer there.
    """
    from jobs.load import LoadedJob
    from jobs.spec import JobSpec

    new = record.new
    name = f"{new.name} #{new.id}"
    if record.closed_at is None:
        raise Refused(
            f"{name} is not over", remedy="gpujob attach shows it, gpujob cancel ends it."
        )
    spec = JobSpec.model_validate(new.spec)
    for place in (spec.model_folder, spec.data.train, spec.data.validation):
        if isinstance(place, Path) and not place.exists():
            raise Refused(f"{name}: {place} is no longer there", remedy="Submit the job anew.")
    if gpu_types:
        spec = spec.model_copy(update={"gpu": spec.gpu.model_copy(update={"types": [*gpu_types]})})
    return LoadedJob(spec=spec, path=Path(name), text="", lines={})


def where_it_may_go(planned: Plan, record: JobRecord) -> Plan:
    """Return the plan without regions that the first submit did not offer: its data may not go.

    Raises Refused, exit code 3, where nothing is left.
    """
    allowed = {(offer.provider, offer.region) for offer in record.new.offers}
    quotes = tuple(
        q for q in planned.matching.quotes if (q.offer.provider, q.offer.region) in allowed
    )
    if not quotes:
        raise Refused("no offer is left where this job's data may go.", code=Exit.NO_OFFER)
    return replace(planned, matching=replace(planned.matching, quotes=quotes))


def refuse_unasked_spending(planned: Plan, *, yes: bool) -> None:
    """Raise Refused where money would be spent and nobody can be asked."""
    price = price_asked(planned.best.offer)
    if price > 0 and not yes and not sys.stdin.isatty():
        raise Refused(
            f"this would cost ${price}/h, and there is no terminal to ask on",
            remedy="Add --yes to agree beforehand, or --dry-run to only look.",
        )
