"""`gpujob data`: check | prepare | stats. Parse, one call into jobs.data, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.data import exits

if TYPE_CHECKING:
    from jobs.data.options import Options

data_app = typer.Typer(no_args_is_help=True, help="Check, clean and measure training data.")

_Files = Annotated[
    list[Path], typer.Argument(help="Data files or folders, a job file, or hf://datasets/...")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Length = Annotated[int, typer.Option("--sequence-len", min=0, help="Tokens; 0 = not chosen yet.")]
_Long = Annotated[
    str, typer.Option("--long", help="What happens to longer records: drop or truncate.")
]
_Tokenizer = Annotated[
    str,
    typer.Option(
        "--tokenizer", help="Folder with tokenizer.json, or an id of the hub: exact lengths."
    ),
]
_Template = Annotated[
    str, typer.Option("--chat-template", help="chatml, a file, or a name known to Axolotl.")
]
_Map = Annotated[
    list[str] | None, typer.Option("--map", help="Column as OURS=THEIRS, e.g. instruction=soru.")
]
_Role = Annotated[
    list[str] | None, typer.Option("--role", help="Speaker as THEIRS=OURS, e.g. agent=assistant.")
]
_To = Annotated[
    str,
    typer.Option(
        "--to", help="chat: mixed kinds become messages; chosen: keep the chosen answers."
    ),
]
_Fix = Annotated[
    bool, typer.Option("--fix", help="Repair what is safe: join turns, move system turns.")
]
_Skip = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Leave out lines that cannot be used.")
]
_Encoding = Annotated[
    str, typer.Option("--encoding", help="Of the input: utf-8, cp1254, cp1256, utf-16 ...")
]
_Regions = Annotated[
    str, typer.Option("--pii-regions", help="Countries whose national phone numbers count.")
]
_Terms = Annotated[
    Path | None, typer.Option("--pii-terms", help="Your own list of names and terms, one a line.")
]
_Pii = Annotated[bool, typer.Option("--pii/--no-pii", help="Scan for personal data and secrets.")]
_Validation = Annotated[
    list[Path] | None, typer.Option("--validation", help="A validation file of your own.")
]
_Processes = Annotated[
    int, typer.Option("--processes", min=0, help="0 = as many as there are free cores.")
]


def _options(**given: Any) -> Options:
    """Return the options of a command line. Exits 2 for a value that cannot be."""
    from jobs.data.options import Options

    terms = given.pop("terms")
    try:
        lines = tuple(terms.read_text(encoding="utf-8-sig").splitlines()) if terms else ()
    except (OSError, UnicodeError) as error:
        _usage(f"--pii-terms {terms}: {error}")
    if given["long"] not in ("drop", "truncate"):
        _usage(f"--long {given['long']}: say drop or truncate")
    if given["to"] not in ("", "chat", "chosen"):
        _usage(f"--to {given['to']}: say chat or chosen")
    given["tokenizer"] = _folder(given["tokenizer"])
    regions = tuple(r.strip().upper() for r in given.pop("regions").split(",") if r.strip())
    return Options(
        columns=_pairs("--map", given.pop("columns")),
        roles=_pairs("--role", given.pop("roles")),
        pii_regions=regions,
        pii_terms=lines,
        **given,
    )


def _folder(word: str) -> str:
    """Return the tokenizer's folder, fetched for an id of the hub. Exits 2 where there is none."""
    if not word:
        return ""
    from orchestrator.data_hub import HubError
    from orchestrator.data_run import tokenizer_folder

    try:
        return tokenizer_folder(word)
    except HubError as error:
        _usage(f"--tokenizer {word}: {error}")
    return ""


def _pairs(flag: str, values: list[str] | None) -> tuple[tuple[str, str], ...]:
    out = []
    for value in values or []:
        left, sign, right = value.partition("=")
        if not (left and sign and right):
            _usage(f"{flag} {value}: write it as LEFT=RIGHT")
        out.append((left, right))
    roles = ("user", "assistant", "system", "tool")
    if flag == "--role" and any(right not in roles for _, right in out):
        _usage(f"--role: the right side is one of {', '.join(roles)}")
    return tuple(out)


def _usage(message: str) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(exits.USAGE)


@data_app.command()
def check(
    files: _Files,
    as_json: _Json = False,
    sequence_len: _Length = 0,
    long: _Long = "drop",
    tokenizer: _Tokenizer = "",
    chat_template: _Template = "",
    columns: _Map = None,
    roles: _Role = None,
    to: _To = "",
    fix: _Fix = False,
    skip_bad_lines: _Skip = False,
    encoding: _Encoding = "utf-8",
    regions: _Regions = "TR,SA,AE,EG,US,GB",
    terms: _Terms = None,
    pii: _Pii = True,
    validation: _Validation = None,
    processes: _Processes = 0,
) -> None:
    """Say what is wrong with the data; exit 6 when it is refused, 0 otherwise."""
    from orchestrator.data_run import run_check

    options = _options(
        sequence_len=sequence_len,
        long=long,
        tokenizer=tokenizer,
        chat_template=chat_template,
        columns=columns,
        roles=roles,
        to=to,
        fix=fix,
        skip_bad_lines=skip_bad_lines,
        encoding=encoding,
        regions=regions,
        terms=terms,
        with_pii=pii,
    )
    refused = run_check(files, options, validation or [], as_json=as_json, processes=processes)
    raise typer.Exit(exits.REFUSED if refused else exits.OK)


@data_app.command()
def stats(
    files: _Files,
    as_json: _Json = False,
    sequence_len: _Length = 0,
    tokenizer: _Tokenizer = "",
    chat_template: _Template = "",
    columns: _Map = None,
    roles: _Role = None,
    encoding: _Encoding = "utf-8",
    processes: _Processes = 0,
) -> None:
    """Show lengths with the advice table, languages, turns, copies; exit 0 if it could read."""
    from orchestrator.data_run import run_stats

    options = _options(
        sequence_len=sequence_len,
        long="drop",
        tokenizer=tokenizer,
        chat_template=chat_template,
        columns=columns,
        roles=roles,
        to="chat",
        encoding=encoding,
        regions="",
        terms=None,
        with_pii=False,
        skip_bad_lines=True,
    )
    unreadable = run_stats(files, options, as_json=as_json, processes=processes)
    raise typer.Exit(exits.REFUSED if unreadable else exits.OK)


@data_app.command()
def prepare(
    files: _Files,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the cleaned set and its manifest.")
    ],
    as_json: _Json = False,
    mask: Annotated[
        bool, typer.Option("--mask", help="Replace personal data by placeholders.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact/--no-exact", help="Leave out exact copies.")
    ] = True,
    near: Annotated[bool, typer.Option("--near/--no-near", help="Leave out near copies.")] = True,
    near_threshold: Annotated[
        float, typer.Option(min=0.3, max=1.0, help="Share of word 3-grams in common.")
    ] = 0.6,
    min_response_chars: Annotated[int, typer.Option(min=0, help="Leave out shorter answers.")] = 0,
    val_share: Annotated[
        float | None,
        typer.Option(min=0, max=0.5, help="Share to hold out; else the job's; else 0.05."),
    ] = None,
    group: Annotated[
        str, typer.Option(help="Column whose equal values stay on one side of the split.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Draws the held-out clusters.")] = 42,
    sequence_len: _Length = 0,
    long: _Long = "drop",
    tokenizer: _Tokenizer = "",
    chat_template: _Template = "",
    columns: _Map = None,
    roles: _Role = None,
    to: _To = "",
    fix: _Fix = False,
    skip_bad_lines: _Skip = False,
    encoding: _Encoding = "utf-8",
    regions: _Regions = "TR,SA,AE,EG,US,GB",
    terms: _Terms = None,
    pii: _Pii = True,
    validation: _Validation = None,
    processes: _Processes = 0,
) -> None:
    """Clean, mask, split, write; nothing is changed in place; exit 6 when refused."""
    from orchestrator.data_run import run_prepare

    options = _options(
        mask=mask,
        exact=exact,
        near=near,
        near_threshold=near_threshold,
        min_response_chars=min_response_chars,
        validation=val_share,
        group=group,
        seed=seed,
        sequence_len=sequence_len,
        long=long,
        tokenizer=tokenizer,
        chat_template=chat_template,
        columns=columns,
        roles=roles,
        to=to,
        fix=fix,
        skip_bad_lines=skip_bad_lines,
        encoding=encoding,
        regions=regions,
        terms=terms,
        with_pii=pii,
    )
    code = run_prepare(files, out, options, validation or [], as_json=as_json, processes=processes)
    raise typer.Exit(code)
