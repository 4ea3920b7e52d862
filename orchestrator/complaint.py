"""How gpujob says that it cannot: one message, what to do, the exit code. Never a traceback.

    job.yaml line 7: gpu.max_price: unknown key. Did you mean gpu.max_price_usd_per_hour?
    nothing was launched.   (exit 2)

A fault of gpujob itself becomes one line and the path of a crash file, its secrets masked.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.exits import Exit, Refused

# Errors of other rooms whose text is fit to show, by module and name: they are looked up among the
# modules already loaded, so that none is imported to explain another's failure.
WORDS_FIT_TO_SHOW: dict[tuple[str, str], Exit] = {
    ("orchestrator.settings", "SettingsRefused"): Exit.USAGE,
    ("orchestrator.home", "HomeRefused"): Exit.USAGE,
    ("orchestrator.policy", "LimitRefusedError"): Exit.USAGE,
    ("orchestrator.store", "StoreError"): Exit.USAGE,
    ("jobs.findings", "JobFileError"): Exit.USAGE,
    ("providers.errors", "NoCapacity"): Exit.NO_OFFER,
    ("providers.errors", "QuotaExceeded"): Exit.NO_OFFER,
    ("providers.errors", "AuthFailed"): Exit.USAGE,
    ("providers.errors", "ProviderError"): Exit.NO_OFFER,
}
LAUNCHING = frozenset({"submit"})  # commands of which "nothing was launched" is worth saying


def complain(error: BaseException, argv: Sequence[str]) -> int:
    """Say what went wrong and return the exit code."""
    from orchestrator.redact import remember_environment

    remember_environment()
    if type(error).__name__ == "Abort":  # typer's word for Ctrl-C at a question
        return _say("interrupted.", "", Exit.INTERRUPTED, argv, launched=True)
    if isinstance(error, Refused):
        return _say(str(error), error.remedy, error.code, argv, launched=error.launched)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return _usage(error, argv)
    for (module, name), code in WORDS_FIT_TO_SHOW.items():
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type) and isinstance(error, cls):
            return _say(str(error), "", code, argv, launched=False)
    return _fault(error, argv)


def _say(message: str, remedy: str, code: Exit, argv: Sequence[str], *, launched: bool) -> int:
    from jobs.plain import harmless
    from orchestrator.redact import redact

    message, remedy = (  # a name in it may come from a stranger's file
        "\n".join(map(harmless, text.splitlines())) for text in (message, remedy)
    )
    lines = [*_fitted(message), *_fitted(remedy)]
    nothing = bool(argv) and argv[0] in LAUNCHING and not launched
    lines.append(f"nothing was launched.   (exit {code})" if nothing else f"(exit {code})")
    _err(redact("\n".join(lines)) + "\n")
    if "--json" in argv and not _answered():
        _document(redact(message), code, redact(remedy))
    return int(code)


def _fitted(text: str) -> list[str]:
    """Return the lines of a text, broken between words where stderr is a terminal."""
    from orchestrator.report_text import screen_of, wrap

    lines = text.splitlines()
    if not sys.stderr.isatty():
        return lines
    width = screen_of(sys.stderr, os.environ).width
    return [part for line in lines for part in _hanging(line, width, wrap)]


def _hanging(line: str, width: int, wrap: Callable[[str, int], list[str]]) -> list[str]:
    first, *rest = wrap(line, width) or [""]
    return [first, *(f"  {part}" for text in rest for part in wrap(text, width - 2))]


def _answered() -> bool:
    """Return whether the command printed its one document before it failed."""
    module = sys.modules.get("orchestrator.opened")
    return module is not None and module.printed[0] > 0


def _document(message: str, code: Exit, remedy: str) -> None:
    from orchestrator.clock import SystemClock
    from orchestrator.report_json import dumps, refusal_document

    body = refusal_document(message, code, SystemClock().now(), remedy=remedy)
    try:
        sys.stdout.write(dumps(body) + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def _usage(error: BaseException, argv: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        _err(context.get_help() + "\n")
        return int(Exit.USAGE)
    path = context.command_path if context is not None else "gpujob"
    message = str(error.format_message())  # type: ignore[attr-defined]
    return _say(
        f"{path}: {message}",
        f"{path} --help lists what it takes.",
        Exit.USAGE,
        argv,
        launched=False,
    )


def _fault(error: BaseException, argv: Sequence[str]) -> int:
    from orchestrator.redact import redact

    kind = type(error).__name__
    what = redact(str(error)).splitlines()[0][:200] if str(error) else "no message"
    path = _crash_file(error, argv)
    where = f"  Details, secrets masked: {path}" if path else ""
    _err(
        f"gpujob failed: {kind}: {what}\n{where}\n" if where else f"gpujob failed: {kind}: {what}\n"
    )
    _err(f"running jobs are not touched by this; gpujob ps shows them.   (exit {Exit.FAULT})\n")
    if "--json" in argv and not _answered():
        _document(f"gpujob failed: {kind}: {what}", Exit.FAULT, f"{path or ''}")
    return int(Exit.FAULT)


def _crash_file(error: BaseException, argv: Sequence[str]) -> Path | None:
    """Write the traceback where a person can find it; None where nothing can be written."""
    import platform
    import tempfile

    from orchestrator import __version__
    from orchestrator.clock import SystemClock
    from orchestrator.locate import locate
    from orchestrator.redact import redact

    body = "".join(traceback.format_exception(error))
    head = f"gpujob {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
    text = redact(head + f"gpujob {' '.join(argv)}\n\n{body}")
    name = f"{int(SystemClock().now())}-{os.getpid()}.txt"
    try:
        home = locate(os.environ, Path.cwd()).home
    except OSError:
        home = Path(tempfile.gettempdir())
    for folder in (home / "crashes", Path(tempfile.gettempdir()) / "gpujob-crashes"):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = folder / name
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return path
    return None


def _err(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
