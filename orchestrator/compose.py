"""Where the parts are put together: providers, the way to a machine, the runner.

Only this file knows concrete classes; everything else takes protocols.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.locate import environment
from orchestrator.settings import Settings, SettingsRefused, load_settings

if TYPE_CHECKING:
    from orchestrator.alarm import Alarmer
    from orchestrator.alarm_send import Channels
    from orchestrator.compose_site import Tell
    from orchestrator.opened import Opened
    from orchestrator.runner import Happening, Listener, Runner
    from orchestrator.telemetry import Calls
    from providers.base import Provider


# They live in memory only: a job of theirs would not survive its process.
REHEARSALS = frozenset({"fake"})


@dataclass(frozen=True, slots=True)
class Parts:
    """What drives jobs."""

    settings: Settings
    owner: str
    providers: Mapping[str, Provider]
    runner: Runner
    alarms: Alarmer


def _tell_nobody(_job: str, _name: str, _done: int, _total: int) -> None:
    pass


def make_providers(settings: Settings, home: Path) -> dict[str, Provider]:
    """Return the providers that are set up, by name. From here on their keys are masked.

    Raises SettingsRefused for a provider's own setting that cannot be used.
    """
    from orchestrator.clock import SystemClock
    from orchestrator.redact import remember_environment
    from providers.registry import KEYS, PROVIDERS, create

    remember_environment()
    clock = SystemClock()
    settings = settings.model_copy(update={"home": home})
    variables = environment(os.environ, Path.cwd())
    wanted = [
        name
        for name in PROVIDERS
        if name not in REHEARSALS and (name not in KEYS or variables.get(KEYS[name]))
    ]
    try:
        return {name: create(name, settings, clock) for name in wanted}
    except ValueError as error:
        raise SettingsRefused(str(error)) from None


def compose(
    state: Opened,
    *,
    listeners: Sequence[Listener] = (),
    tell: Tell = _tell_nobody,
    calls: Calls | None = None,
) -> Parts:
    """Return the parts for this home; sets up logging. Raises SettingsRefused, LimitRefused."""
    from orchestrator.alarm import Alarmer
    from orchestrator.compose_site import SiteMaker
    from orchestrator.home import owner_of
    from orchestrator.logging import setup
    from orchestrator.policy import limits_from
    from orchestrator.redact import remember_environment
    from orchestrator.runner import Runner
    from orchestrator.team_budget import TeamBudget

    settings = load_settings()
    variables = environment(os.environ, Path.cwd())
    remember_environment()
    setup(state.home.root, level=settings.log_level)
    owner = owner_of(state.home, settings.owner)
    providers = make_providers(settings, state.home.root)
    if calls is not None:
        from orchestrator.telemetry import Counted

        providers = {name: Counted(one, calls) for name, one in providers.items()}
    limits = limits_from(variables)
    alarms = Alarmer(state.store, state.clock, channels_of(settings), limits=limits)
    environments = settings.axolotl_env
    runner = Runner(
        state.store,
        providers,
        SiteMaker(
            state.store,
            state.home,
            state.clock,
            environments,
            tell,
            torch_check=settings.torch_check == "on",
            watch_speed=limits.watch_speed,
            rescue_after_s=limits.rescue_after_s,
        ),
        state.home,
        state.clock,
        owner,
        limits=limits,
        team=TeamBudget(settings.budget_usd_per_day, settings.owner_budget_usd_per_day),
        listeners=[JobLog(), LogTimes(state), alarms, *listeners],
    )
    return Parts(settings, owner, providers, runner, alarms)


def channels_of(settings: Settings) -> Channels:
    """Return where alarms go; from here on the address and the secret are masked."""
    from orchestrator.alarm_send import Channels
    from orchestrator.redact import remember_secrets

    webhook, secret = settings.alarm_webhook, settings.alarm_secret
    address = webhook.get_secret_value() if webhook is not None else None
    remember_secrets([address] if address else [])
    return Channels(
        settings.alarm_command, address, secret.get_secret_value() if secret is not None else None
    )


class JobLog:
    """Writes every event of the journal to the log of gpujob itself, secrets masked."""

    def __init__(self) -> None:
        import structlog

        self._log = structlog.get_logger("gpujob.journal")

    def __call__(self, happening: Happening) -> None:
        """Take what the runner tells."""
        if happening.event is None:
            return
        from orchestrator import codec

        fields = codec.encode(happening.event)
        names = {"job": happening.job_id, "attempt": happening.attempt}
        said = {
            name: value
            for name, value in fields.items()
            if name not in {"at", "job_id", "event"} and value is not None
        }
        self._log.info(type(happening.event).__name__, **{**said, **names})


class LogTimes:
    """Notes when each part of a log came, for `gpujob logs --since`."""

    def __init__(self, state: Opened) -> None:
        self._state = state
        self._last: dict[tuple[str, int], float] = {}

    def __call__(self, happening: Happening) -> None:
        """Take what the runner tells."""
        if not happening.log_grew:
            return
        from orchestrator.log_index import note

        key = (happening.job_id, happening.attempt)
        log = self._state.home.log_path(*key)
        size = log.stat().st_size if log.exists() else 0
        last = self._last.get(key, 0.0)
        self._last[key] = note(log, at=self._state.now(), size_bytes=size, last_at=last)
