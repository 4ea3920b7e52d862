"""What works here and what does not: checks of this machine and the accounts, each with a remedy.

A green result says what it does not prove. Nothing is changed, nothing is rented.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.plain import harmless
from orchestrator.redact import told
from orchestrator.report_json import document
from orchestrator.report_text import Screen, size, wrap
from providers.base import Account
from providers.errors import AuthFailed, ProviderError
from providers.registry import KEYS

if TYPE_CHECKING:
    from orchestrator.alarm_send import Channels
    from orchestrator.home import Home
    from providers.base import Provider

INDENT = " " * 23  # below the words of a check
LOW_DISK_BYTES = 5_000_000_000  # the CPU build of Axolotl's environment takes 3.1 GB
SQLITE_OLDEST = (3, 35)  # RETURNING, which the leases use: https://sqlite.org/lang_returning.html


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """One result: what was looked at, what was found, what to do, what a green one leaves open."""

    name: str
    level: Level
    found: str
    remedy: str = ""
    unproven: str = ""


def run_checks(
    home: Home, providers: Mapping[str, Provider], channels: Channels | None = None
) -> list[Check]:
    """Return all results. n calls, one list of offers for each provider."""
    checks: list[Callable[[], Check]] = [
        _python,
        _sqlite,
        lambda: _home(home),
        lambda: _database(home.database_url),
        lambda: _disk(home.root),
        _ssh,
        _gpu,
        lambda: _daemon(home.root),
        _model_token,
    ]
    if channels is not None:
        checks += [lambda: _alarm(channels), _service]
    checks += [partial(_unset, name, key) for name, key in KEYS.items() if name not in providers]
    for name, provider in providers.items():
        checks.append(partial(_provider, name, provider))
        if isinstance(provider, Account):
            checks.append(partial(_balance, name, provider))
    return [_guarded(check) for check in checks]


def _guarded(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a broken check must not hide the others
        return Check("doctor", Level.WARN, f"a check failed: {told(error)}")


def _python() -> Check:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    return Check(
        "python", Level.OK if good else Level.FAIL, f"{version} on {platform.platform()}",
        "" if good else "Install Python 3.11 or newer.",
    )  # fmt: skip


def _sqlite() -> Check:
    import sqlite3

    good = sqlite3.sqlite_version_info[:2] >= SQLITE_OLDEST
    return Check(
        "sqlite", Level.OK if good else Level.FAIL, sqlite3.sqlite_version,
        "" if good else "Install a Python with SQLite 3.35 or newer.",
    )  # fmt: skip


def _home(home: Home) -> Check:
    shown = "SQLite" if home.database_url.startswith("sqlite") else "PostgreSQL"
    return Check("home", Level.OK, f"{home.root}, state in {shown}")


def _database(url: str) -> Check:
    from orchestrator.store import Store
    from orchestrator.store_engine import StoreError

    try:
        store = Store.open(url)
    except StoreError as error:
        found, *remedy = str(error).splitlines()
        return Check("database", Level.FAIL, found, " ".join(remedy))
    try:
        count = len(store.jobs(now=0.0))
    finally:
        store.close()
    return Check("database", Level.OK, f"readable, {count} job{'s' * (count != 1)}")


def _disk(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    enough = free >= LOW_DISK_BYTES
    return Check(
        "disk", Level.OK if enough else Level.WARN, f"{size(free)} free at {root}",
        "" if enough else "Axolotl's environment for `local` needs about 4 GB, once.",
        "that the model to be trained fits beside it",
    )  # fmt: skip


def _ssh() -> Check:
    path = shutil.which("ssh")
    return Check(
        "ssh", Level.OK if path else Level.WARN, path or "no ssh command",
        "" if path else "Only `gpujob ssh` needs it; install the OpenSSH client.",
    )  # fmt: skip


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    found = "nvidia-smi is here" if path else "no NVIDIA GPU seen: `local` trains on the CPU"
    return Check("gpu", Level.OK, found, unproven="that Axolotl can use it")


def _daemon(root: Path) -> Check:
    from orchestrator import daemon

    pid = daemon.running(root)
    found = f"gpujob supervise runs (process {pid})" if pid else "gpujob supervise does not run"
    return Check("daemon", Level.OK, f"{found}; it is started when a job needs it")


def _model_token() -> Check:
    """Say what the token for gated models may do: a rented machine gets to see it."""
    from orchestrator.hub_token import HubTokens, scope_of

    tokens = HubTokens()
    token = tokens.for_the_model
    if token is None:
        return Check("model token", Level.OK, "none set; only a gated base model needs one")
    own = tokens.gpujob_model_token is not None
    name = "GPUJOB_MODEL_TOKEN" if own else "HF_TOKEN"
    advice = "Set GPUJOB_MODEL_TOKEN to a fine-grained token that may only read that model."
    try:
        scope = scope_of(token, tokens.hf_endpoint)
    except (OSError, ValueError) as error:
        refused = getattr(error, "code", 0) in {401, 403}
        said = "the hub refuses it" if refused else "the hub could not be asked what it may do"
        remedy = "Make a new one at the hub." if refused else ""
        return Check("model token", Level.WARN, f"{name}: {said}", remedy)
    if scope == "read":
        return Check(
            "model token", Level.OK, f"{name} may only read",
            unproven="that the model's owner has let its account in",
        )  # fmt: skip
    said = "may write" if scope == "write" else "may do more than the hub says"
    return Check(
        "model token", Level.WARN,
        f"{name} {said}, and a machine that trains a gated model gets to see it", advice,
    )  # fmt: skip


def _alarm(channels: Channels) -> Check:
    """Say who would hear; nothing is sent."""
    if not channels.any:
        return Check(
            "alarm", Level.WARN, "nobody would hear an alarm: a machine that cannot be ended is "
            "shown by gpujob ps alone",
            "Set GPUJOB_ALARM_COMMAND or GPUJOB_ALARM_WEBHOOK.",
        )  # fmt: skip
    if channels.webhook and not channels.secret:
        return Check(
            "alarm", Level.WARN, "the webhook's messages are not signed",
            "Set GPUJOB_ALARM_SECRET, and check X-Gpujob-Signature where they arrive.",
        )  # fmt: skip
    ways = [name for name in ("command", "webhook") if getattr(channels, name)]
    return Check(
        "alarm", Level.OK, f"sent by {' and '.join(ways)}", unproven="that a person reads it"
    )


def _service() -> Check:
    from orchestrator.service import place

    file = place(sys.platform, Path.home(), os.environ)
    if not file.exists():
        return Check(
            "service", Level.WARN, "after a reboot nobody goes on until the next gpujob command",
            "gpujob supervise --install",
        )  # fmt: skip
    return Check("service", Level.OK, str(file), unproven="that it is running")


def _provider(name: str, provider: Provider) -> Check:
    try:
        offers = list(provider.offers())
    except AuthFailed as error:
        remedy = f"Set {KEYS[name]} to a key that may read and write." if name in KEYS else ""
        return Check(f"provider {name}", Level.FAIL, harmless(told(error, kind=False)), remedy)
    except ProviderError as error:
        remedy = "Check its key and the network." if provider.traits.remote else ""
        return Check(f"provider {name}", Level.FAIL, harmless(told(error, kind=False)), remedy)
    if not offers:
        return Check(f"provider {name}", Level.WARN, "answers, but has nothing for hire now")
    low = min(offer.price_usd_per_hour for offer in offers)
    return Check(
        f"provider {name}",
        Level.OK,
        f"{len(offers)} {'offer' if len(offers) == 1 else 'offers'}, from ${low}/h",
        unproven="that a launch would be let through" if provider.traits.remote else "",
    )


def _unset(name: str, key: str) -> Check:
    return Check(
        f"provider {name}", Level.WARN, f"{key} is not set: {name} is not asked for anything",
        f"Set {key} (environment or .env), if you want to rent there.",
    )  # fmt: skip


def _balance(name: str, provider: Account) -> Check:
    """Say what is left on the account; that it is unknown refuses nothing."""
    left = provider.balance()
    if left is None:
        return Check(
            f"balance {name}", Level.WARN, "unknown: the provider does not tell it",
            "Nothing is refused for that; look at the account yourself before a long job.",
        )  # fmt: skip
    if left <= 0:
        return Check(
            f"balance {name}", Level.FAIL, f"${left:.2f} left: nothing can be rented",
            "Put money on the account.",
        )  # fmt: skip
    return Check(f"balance {name}", Level.OK, f"${left:.2f} left", unproven="what a job costs")


def doctor_lines(checks: Iterable[Check], screen: Screen) -> list[str]:
    """Return a line for each check, its remedy below where something is wrong."""
    lines: list[str] = []
    for check in checks:
        mark = f"{check.level:<5}"
        lead = screen.accent(mark) if check.level is Level.FAIL else mark
        first, *rest = wrap(check.found, screen.width - len(INDENT)) or [""]
        lines.append(f"{lead} {check.name:<16} {first}")
        lines += [INDENT + line for line in rest]
        if check.remedy:
            lines += wrap(check.remedy, screen.width, INDENT)
        if check.level is Level.OK and check.unproven:
            lines += wrap(f"(does not prove {check.unproven})", screen.width, INDENT)
    return lines


def doctor_document(checks: Iterable[Check], now: float) -> dict[str, Any]:
    """Return the answer of `gpujob doctor --json`."""
    return document(
        "doctor",
        now,
        checks=[
            {
                "name": check.name,
                "level": str(check.level).lower(),
                "found": check.found,
                "remedy": check.remedy,
                "unproven": check.unproven,
            }
            for check in checks
        ],
    )


def failed(checks: Iterable[Check]) -> bool:
    """Return whether any check failed."""
    return any(check.level is Level.FAIL for check in checks)


def writable(folder: Path) -> bool:
    """Return whether files can be made in a folder."""
    return os.access(folder, os.W_OK | os.X_OK)
