"""The words of `gpujob supervise`: parse, call, leave. Beside cli.py, which is long enough."""

from __future__ import annotations

from typing import Annotated

import typer


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
        code = cli_supervise.install()
    elif uninstall:
        code = cli_supervise.uninstall()
    else:
        code = cli_supervise.supervise(until_idle=until_idle, metrics=metrics)
    raise typer.Exit(int(code))
