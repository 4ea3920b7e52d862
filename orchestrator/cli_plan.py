"""Commands that answer before money is spent: plan, size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, looked, out

if TYPE_CHECKING:
    from jobs.architectures import Architecture
    from jobs.workload import Workload
    from orchestrator.submit import Plan

LOSSES = {"hf": "hf", "liger": "liger", "cce": "cce"}


@dataclass(frozen=True, slots=True)
class SizeWords:
    """What `gpujob size` was asked; every word as the person gave it."""

    model: str
    method: str = "qlora"
    seq_len: int = 2048
    micro_batch: int = 2
    accumulation: int = 4
    rank: int = 16
    quant: str | None = None
    optimizer: str | None = None
    loss: str = "hf"
    attention: str = "sdpa"
    checkpointing: bool = True
    gpus: int | None = None
    types: tuple[str, ...] = ()
    tokens: int | None = None


def plan(job_file: Path, *, changes: list[str], as_json: bool, pii_reviewed: bool = False) -> int:
    """Print the job's memory, quotes and price; 3 where nothing fits, 2 where it cannot be sized.

    Sees what `submit` would see: the data goes through the gate first (6 where it is refused), and
    what was prepared is kept in the home for the submit. Rents nothing.
    """
    from orchestrator import cli_run, report_plan, submit
    from orchestrator.compose import make_providers
    from orchestrator.measured import read
    from orchestrator.settings import load_settings
    from orchestrator.shapes import CONFIGS, fetch, refuse_unsized
    from providers.registry import KEYS

    loaded = submit.read_job(job_file, changes)
    with looked() as state:
        root = state.home.root
        providers = make_providers(load_settings(), root)
        # One that is known but has no key yet is planned for with its list prices.
        submit.check_provider_names(loaded.spec.gpu.providers, {**providers, **KEYS})
        gated = cli_run.through_the_gate(loaded, state)
        hub = fetch(loaded.spec.model, root)
        planned = submit.look(
            gated.loaded, providers, read(root), list_prices=True, configs=root / CONFIGS
        )
        refuse_unsized(planned, hub)
        planned = submit.with_data(planned, gated, pii_reviewed=pii_reviewed)
        if as_json:
            from orchestrator.report_json import dumps

            text = None
            if planned.matching.quotes:
                text = submit.axolotl_text(planned.spec, planned.best)
            out([dumps(report_plan.plan_document(planned, text, state.now()))])
        else:
            out(report_plan.plan_lines(planned, state.screen))
    return Exit.OK if planned.matching.quotes else Exit.NO_OFFER


def size(words: SizeWords, *, exact: bool, as_json: bool) -> int:
    """Print what a training needs and costs, without a job file; exit codes as `plan`."""
    from orchestrator import report_plan
    from orchestrator.compose import make_providers
    from orchestrator.report_json import document, dumps
    from orchestrator.settings import load_settings
    from orchestrator.submit import change_words

    with looked() as state:
        work = workload_of(words, state.home.root)
        oracle_gib = _exact(work) if exact else None
        planned = _planned(words, work, make_providers(load_settings(), state.home.root))
        if as_json:
            body = report_plan.size_body(planned, oracle_gib)
            out([dumps(document("size", state.now(), model=work.architecture.name, **body))])
        else:
            lines = [f"{words.method} of {work.architecture.name}", ""]
            lines += report_plan.size_lines(planned, state.screen)
            for change in planned.changes:
                lines.append(f"would fit with {change_words(change)}")
            out(lines)
    return Exit.OK if planned.matching.quotes else Exit.NO_OFFER


def workload_of(words: SizeWords, root: Path) -> Workload:
    """Return the workload that the words describe; raises Refused for what cannot be.

    root: the home, where the shapes of hub models are kept.
    """
    from jobs.sizing import ALL_TARGETS
    from jobs.workload import Workload, WorkloadError, check

    if words.loss not in LOSSES:
        raise Refused(f"--loss {words.loss}: one of {', '.join(LOSSES)}")
    if words.tokens is not None and words.tokens < 1:
        raise Refused(f"--tokens {words.tokens}: give 1 or more")
    full = words.method == "full"
    work = Workload(
        _architecture(words.model, root),
        method=words.method,
        quant=words.quant,
        lora_rank=words.rank,
        lora_targets=ALL_TARGETS,
        sequence_len=words.seq_len,
        micro_batch_size=words.micro_batch,
        gradient_accumulation_steps=words.accumulation,
        optimizer=words.optimizer or ("paged_adamw_8bit" if full else "adamw_torch_fused"),
        checkpointing=words.checkpointing,
        attention=words.attention,
        loss_kernel=LOSSES[words.loss],
    )
    try:
        check(work)
    except WorkloadError as error:
        raise Refused(str(error)) from None
    return work


def _architecture(model: str, root: Path) -> Architecture:
    from jobs.architectures import ArchitectureError, from_folder
    from jobs.sizing import find_or_kept
    from orchestrator.shapes import CONFIGS, fetch

    path = Path(model).expanduser()
    hub = "" if path.exists() else fetch(model, root)
    try:
        return from_folder(path) if path.exists() else find_or_kept(model, root / CONFIGS)
    except ArchitectureError as error:
        raise Refused(str(error) + (f" ({hub})" if hub else "")) from None


def _planned(words: SizeWords, work: Workload, providers: object) -> Plan:
    from collections.abc import Mapping
    from typing import cast

    from jobs.sizing import Tokens
    from jobs.spec import JobSpec
    from orchestrator.match import CPU, Requirement, match
    from orchestrator.planning import NOMINAL_TOKENS, Need, changes_that_fit, check_gpu_names
    from orchestrator.sized import Sized
    from orchestrator.submit import Plan, ask
    from providers.base import Provider, Tier
    from providers.catalogue import list_offers

    offers, unreachable = ask(cast("Mapping[str, Provider]", providers), ())
    listed = all(offer.gpu == CPU for offer in offers)
    if listed:
        offers += list_offers()
    check_gpu_names(words.types, offers)
    count = words.tokens or NOMINAL_TOKENS
    how = f"{count:,} trained tokens" + ("" if words.tokens else " (nominal; --tokens says more)")
    tokens = Tokens(count, 0, count, 0, how, assumed=words.tokens is None)
    sized = Sized(work, tokens, keep_batch=words.gpus is None)
    tiers = (Tier.SECURE, Tier.OWN)
    wishes = Requirement(types=words.types, count=words.gpus, tiers=tiers, sized=sized)
    matching = match(wishes, offers)
    spec = JobSpec.model_validate({"name": "size", "model": words.model, "method": words.method})
    changes = () if matching.quotes else changes_that_fit(wishes, offers)
    need = Need(wishes, (how,))
    return Plan(spec, matching, unreachable, need=need, listed=listed, changes=changes)


def _exact(work: Workload) -> float:
    """Return the oracle's allocated peak, and say how far the closed form is from it."""
    from jobs.memory import footprint
    from jobs.oracle import OracleRun, OracleUnavailableError, exact_peak_gib

    twin = replace(
        work,
        method="full" if work.method == "full" else "lora",
        quant=None,
        optimizer="adamw_torch",
        gradient_accumulation_steps=1,
        attention="eager" if work.attention == "eager" else "flash",
        loss_kernel="hf",
    )
    run = OracleRun(
        twin.architecture,
        twin.micro_batch_size,
        twin.sequence_len,
        lora_targets=frozenset() if twin.method == "full" else twin.lora_targets,
        lora_rank=0 if twin.method == "full" else twin.lora_rank,
        checkpointing=twin.checkpointing,
        attention=twin.attention,
    )
    err("the shape oracle runs two steps on tensors without data: some seconds to a minute ...")
    try:
        exact = exact_peak_gib(run)
    except OracleUnavailableError as error:
        raise Refused(str(error), remedy="pip install torch transformers peft") from None
    closed = footprint(twin).allocated_gib
    what = "LoRA with 16-bit weights in its place" if work.quantised else "this very configuration"
    err(
        f"oracle {exact:.2f} GiB allocated, closed form {closed:.2f} "
        f"({100 * (closed / exact - 1):+.1f} %), of {what}, AdamW, whole logits"
    )
    return exact
