"""The command line: parse, call one library function, print. No logic, no heavy import at the top.

A command's body lives in `cli_read.py` (what the store knows), `cli_run.py` (what drives jobs) or
`cli_tools.py` (the rest); each returns the exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator import cli_more
from orchestrator.cli_words import Job, JobFile, Json, Set, job_words, leave
from orchestrator.data_cli import data_app

app = typer.Typer(
    name="gpujob",
    help="Rent a GPU, fine-tune with Axolotl, bring the adapter home, prove the machine is gone.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich costs a third of the start-up time that --help is allowed
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 2 usage or bad job file, 3 nothing fits or no offer, 4 no finished "
    "training, 5 a machine not proven gone, 6 data refused, 7 artifacts failed, 130 interrupted.",
)


def show_version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        from orchestrator import __version__

        typer.echo(f"gpujob {__version__}")
        leave(0)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Rent a GPU, fine-tune with Axolotl, bring the adapter home, prove the machine is gone."""


@app.command()
def submit(  # noqa: PLR0917 - typer gives options by name
    job_file: JobFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once the job is in the daemon's hands.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show offers and the Axolotl file; start nothing.")
    ] = False,
    pii_reviewed: Annotated[
        bool, typer.Option("--pii-reviewed", help="You looked at the personal data that was found.")
    ] = False,
    keep_on_failure: Annotated[
        float,
        typer.Option(
            metavar="MINUTES",
            min=0,
            max=1440,
            help="Leave a machine whose training failed for so long; it costs.",
        ),
    ] = 0.0,
    change: Set = None,
    as_json: Json = False,
) -> None:
    """Rent, train, bring home, end the machine, prove it."""
    from orchestrator import cli_run

    leave(
        cli_run.submit(
            job_file,
            yes=yes,
            detach=detach,
            dry_run=dry_run,
            changes=change or [],
            as_json=as_json,
            pii_reviewed=pii_reviewed,
            keep_s=keep_on_failure * 60,
        )
    )


@app.command()
def plan(
    job_file: JobFile,
    pii_reviewed: Annotated[
        bool, typer.Option("--pii-reviewed", help="You looked at the personal data that was found.")
    ] = False,
    change: Set = None,
    as_json: Json = False,
) -> None:
    """Say what a job needs and costs, on which GPU.

    Rents nothing. Without a provider that has GPUs, dated list prices are used.
    """
    from orchestrator import cli_plan

    leave(cli_plan.plan(job_file, changes=change or [], as_json=as_json, pii_reviewed=pii_reviewed))


@app.command()
def probe(  # noqa: PLR0917 - typer gives options by name
    job_file: JobFile,
    gpu: Annotated[list[str] | None, typer.Option(help="This card; may be repeated.")] = None,
    steps: Annotated[int, typer.Option(min=3, help="Optimizer steps on each.")] = 30,
    minutes: Annotated[float, typer.Option(min=1, help="At most, on each.")] = 20.0,
    usd: Annotated[float, typer.Option(min=0.01, help="At most, on each.")] = 2.0,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Start the whole job on the best card; it may go on.")
    ] = False,
    pii_reviewed: Annotated[
        bool, typer.Option("--pii-reviewed", help="You looked at the personal data that was found.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    change: Set = None,
    as_json: Json = False,
) -> None:
    """Measure a job's speed and memory on real cards, briefly.

    Tells which card to take; later plans use what was measured.
    """
    from decimal import Decimal

    from orchestrator import cli_probe
    from orchestrator.probe import Terms

    terms = Terms(steps, minutes, Decimal(str(usd)))
    leave(
        cli_probe.probe(
            job_file,
            gpus=gpu or (),
            terms=terms,
            yes=yes,
            changes=change or [],
            as_json=as_json,
            go_on=go_on,
            pii_reviewed=pii_reviewed,
        )
    )


@app.command()
def size(  # noqa: PLR0917 - typer gives options by name
    model: Annotated[str, typer.Option(help="Id of the hub, a short name, or a folder.")],
    method: Annotated[str, typer.Option(help="qlora, lora or full.")] = "qlora",
    seq_len: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 2048,
    micro_batch: Annotated[int, typer.Option(help="Sequences in one forward pass.")] = 2,
    accumulation: Annotated[int, typer.Option(help="Forward passes to a step.")] = 4,
    rank: Annotated[int, typer.Option(help="Rank of the adapter.")] = 16,
    quant: Annotated[str | None, typer.Option(help="nf4, nf4dq, int8, gptq4, ...")] = None,
    optimizer: Annotated[str | None, typer.Option(help="By Axolotl's name.")] = None,
    loss: Annotated[str, typer.Option(help="hf, liger or cce.")] = "hf",
    attention: Annotated[str, typer.Option(help="sdpa, flash, flex or eager.")] = "sdpa",
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations.")] = True,
    gpus: Annotated[int | None, typer.Option(min=1, help="As many as it takes.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Only this card; may be repeated.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Trained tokens, all epochs.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Check by the shape oracle.")] = False,
    as_json: Json = False,
) -> None:
    """Say what a training needs and costs, without a job file."""
    from orchestrator import cli_plan

    words = cli_plan.SizeWords(
        model, method, seq_len, micro_batch, accumulation, rank, quant, optimizer, loss,
        attention, checkpointing, gpus, tuple(gpu or ()), tokens,
    )  # fmt: skip
    leave(cli_plan.size(words, exact=exact, as_json=as_json))


@app.command()
def resume(
    job: Job,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="On this type instead; may be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once the job is in the daemon's hands.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Go on from the newest checkpoint of a job that ended early."""
    from orchestrator import cli_run

    leave(cli_run.resume(job, yes=yes, detach=detach, gpu_types=gpu or [], as_json=as_json))


@app.command()
def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Also jobs long closed.")] = False,
    as_json: Json = False,
) -> None:
    """List jobs; first of all what still costs money."""
    from orchestrator import cli_read

    leave(cli_read.ps(all_jobs=all_jobs, as_json=as_json))


@app.command()
def status(
    job: Job,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with the job's code; 0 while it runs.")
    ] = False,
    events: Annotated[bool, typer.Option("--events", help="Also the journal.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job: both outcomes, why, and its cost."""
    from orchestrator import cli_read

    leave(cli_read.status(job, exit_code=exit_code, events=events, as_json=as_json))


@app.command()
def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only what came since: 10m, 2h, 14:05."),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=1, metavar="N", help="Of this attempt, not the newest."),
    ] = None,
) -> None:
    """Print the training's log, byte for byte."""
    from orchestrator import cli_logs

    leave(cli_logs.logs(job, follow=follow, since=since, attempt=attempt))


@app.command()
def attach(job: Job) -> None:
    """Watch a job until it is over.

    The exit code is the job's. Ctrl-C only stops watching.
    """
    from orchestrator import cli_run

    leave(cli_run.attach(job))


@app.command()
def ssh(
    job: Job,
    command: Annotated[
        list[str] | None, typer.Argument(help="Run this instead of a shell.")
    ] = None,
) -> None:
    """Open a shell on the job's living machine.

    With the job's own key, and the machine's host key pinned.
    """
    from orchestrator import cli_tools

    leave(cli_tools.ssh(job, command or []))


@app.command()
def cancel(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", help="Which.", autocompletion=job_words),
    ] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Every open job.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Do not wait for the proof that it is gone.")
    ] = False,
) -> None:
    """End jobs; wait until each machine is proven gone."""
    from orchestrator import cli_run

    leave(cli_run.cancel(jobs or [], all_jobs=all_jobs, detach=detach))


@app.command()
def closed(
    job: Job,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="WHEN", help="When it ended: 10m ago, 14:05; else now."),
    ] = None,
) -> None:
    """Say that you ended a machine rented by hand.

    It counts as costing until then.
    """
    from orchestrator import cli_closed

    leave(cli_closed.closed(job, at=at))


@app.command()
def push(job: Job, as_json: Json = False) -> None:
    """Send a finished job's result to where it is missing."""
    from orchestrator import cli_push

    leave(cli_push.push(job, as_json=as_json))


@app.command()
def artifacts(job: Job, as_json: Json = False) -> None:
    """List what a job left: result, pushes, checkpoints."""
    from orchestrator import cli_artifacts

    leave(cli_artifacts.artifacts(job, as_json=as_json))


@app.command()
def download(
    job: Job,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Else ./<name>-<job id>.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a job's result into a folder, checked.

    From its folder here, or from the store it was pushed to.
    """
    from orchestrator import cli_artifacts

    leave(cli_artifacts.download(job, to, as_json=as_json))


@app.command()
def forget(
    job: Job,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Leave a machine that is not proven gone to yourself.

    Says first what may go on billing, and asks.
    """
    from orchestrator import cli_forget

    leave(cli_forget.forget(job, yes=yes))


@app.command()
def cost(
    by: Annotated[Literal["job", "day", "provider"], typer.Option(help="One line for each.")] = (
        "job"
    ),
    form: Annotated[
        Literal["table", "json", "csv"], typer.Option("--format", help="What to print.")
    ] = "table",
    as_json: Json = False,
) -> None:
    """Add up what was spent.

    Failed attempts and waiting are included.
    """
    from orchestrator import cli_read

    leave(cli_read.cost(by=by, form="json" if as_json else form))


cli_more.add_to(app)
app.add_typer(data_app, name="data")
