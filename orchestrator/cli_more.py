"""The commands about this machine and the accounts rather than about one job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli_words import Json, Set, job_words, leave


def add_to(app: typer.Typer) -> None:
    """Add them, in the order of the help."""
    for command in (rehearse, supervise, sweep, doctor, providers, init, schema, rm):
        app.command()(command)


def rehearse(
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.YAML", help="The job file.")
    ] = None,
    fault: Annotated[str, typer.Option(help="What goes wrong; --list names them.")] = "none",
    list_them: Annotated[bool, typer.Option("--list", help="Name what can go wrong.")] = False,
    change: Set = None,
) -> None:
    """See how a failure is met, on a made-up cloud.

    Nothing is rented. The exit code is the one that the real job would have.
    """
    from orchestrator import cli_rehearse

    if list_them:
        leave(cli_rehearse.scenes())
    if job_file is None:
        raise typer.BadParameter("give a job file, or --list")
    leave(cli_rehearse.rehearse(job_file, fault=fault, changes=change or []))


def supervise(
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Leave once no job is open.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve figures for Prometheus there."),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Make it a service of yours, for after a reboot.")
    ] = False,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="Take that service away; jobs go on.")
    ] = False,
) -> None:
    """Drive all open jobs: the daemon.

    One for each GPUJOB_HOME; it is started by itself when a job needs it.
    """
    from orchestrator import cli_supervise

    if install and uninstall:
        raise typer.BadParameter("--install and --uninstall: give one of the two")
    if install:
        leave(cli_supervise.install())
    if uninstall:
        leave(cli_supervise.uninstall())
    leave(cli_supervise.supervise(until_idle=until_idle, metrics=metrics))


def sweep(
    unknown: Annotated[
        Literal["report", "end", "adopt"],
        typer.Option(help="What to do with a machine of yours that no job here knows."),
    ] = "report",
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Put them on record again: as --unknown adopt.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find and end machines that should not be there."""
    from orchestrator import cli_tools

    leave(cli_tools.sweep(unknown="adopt" if adopt else unknown, as_json=as_json))


def doctor(as_json: Json = False) -> None:
    """Check this machine and the accounts."""
    from orchestrator import cli_tools

    leave(cli_tools.doctor(as_json=as_json))


def providers(as_json: Json = False) -> None:
    """List the providers and what they offer now."""
    from orchestrator import cli_tools

    leave(cli_tools.providers(as_json=as_json))


def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Where.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
) -> None:
    """Write a commented job file to start from."""
    from orchestrator import cli_tools

    leave(cli_tools.init(path, force=force))


def schema() -> None:
    """Print the job file's JSON schema, for editors."""
    from orchestrator import cli_tools

    leave(cli_tools.schema())


def rm(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Which.", autocompletion=job_words)
    ],
) -> None:
    """Take closed jobs off the list.

    Their logs and keys go too; costs and results stay.
    """
    from orchestrator import cli_tools

    leave(cli_tools.rm(jobs))
