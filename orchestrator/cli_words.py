"""What the commands share: how a job is named, --json, --set, and leaving with a code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer


def job_words(incomplete: str) -> list[tuple[str, str]]:
    """Return the ids and names of jobs for the shell's completion; empty when anything is wrong."""
    from orchestrator.cli_complete import complete_jobs

    return complete_jobs(incomplete)


Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id, the start of one, or a name (the newest of it).",
        autocompletion=job_words,
    ),
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the job file."),
]


def leave(code: int) -> NoReturn:
    """End the command with this exit code."""
    raise typer.Exit(int(code))
