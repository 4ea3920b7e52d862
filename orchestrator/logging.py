"""Logs of gpujob itself: one JSON file a job, warnings on stderr, and no secret in either.

The training's log is another thing (`gpujob logs`). Everything, structlog or the standard
library's, goes through `redact`; call `setup` once a process, before the first thread starts.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TextIO

import structlog

from orchestrator.redact import redact

QUIET = ("paramiko", "asyncssh", "sqlalchemy", "urllib3", "alembic")  # their INFO is our DEBUG


def redact_event(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Return the event with all its strings redacted, however deep they lie."""
    for key in list(event):
        if not key.startswith("_"):
            event[key] = _clean(event[key])
    return event


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


class JobFiles(logging.Handler):
    """Writes each record to the file of its job (`job` in the event), else to the home's.

    The one subclass of the house beside protocols and errors: the standard library asks for it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Append one line; a full disk must not end a job, so that is said once on stderr."""
        job = record.msg.get("job") if isinstance(record.msg, dict) else None
        path = self._folder / "gpujob.log"
        if isinstance(job, str) and (self._folder / "jobs" / job).is_dir():
            path = self._folder / "jobs" / job / "gpujob.log"
        try:
            line = self.format(record) + "\n"
            with self._lock, path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            self.handleError(record)


def _thread_died(died: threading.ExceptHookArgs) -> None:
    name = died.thread.name if died.thread is not None else "?"
    error = died.exc_value
    logging.getLogger("gpujob").error("thread %s died: %r", name, error, exc_info=error)


Shared = Callable[[Any, str, MutableMapping[str, Any]], Any]


def setup(
    folder: Path,
    *,
    level: str = "info",
    console: TextIO | None = None,
    console_level: str = "warning",
) -> None:
    """Send JSON to the files below `folder` and words to the console. Replaces earlier settings."""
    shared: list[Shared] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    files = JobFiles(folder)
    files.setFormatter(_formatter(shared, structlog.processors.JSONRenderer(default=str)))
    files.setLevel(level.upper())
    stream = logging.StreamHandler(console or sys.stderr)
    stream.setFormatter(_formatter(shared, _words))
    stream.setLevel(console_level.upper())
    root = logging.getLogger()
    root.handlers[:] = [files, stream]
    root.setLevel(min(files.level, stream.level))
    threading.excepthook = _thread_died  # Python's own would print it as it is
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def _formatter(shared: list[Shared], renderer: Shared) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            redact_event,
            renderer,
        ],
    )


def _words(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Return "warning: the event  key=value ..." in one line."""
    level = event.pop("level", "info")
    text = event.pop("event", "")
    for noise in ("timestamp", "logger", "exception"):
        event.pop(noise, None)
    rest = "  ".join(f"{key}={value}" for key, value in event.items())
    return f"{level}: {text}  {rest}".rstrip()
