"""Name -> provider: the only place that names concrete adapters, each imported when it is made."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from providers.base import Provider
from providers.clock import Clock


class ProviderSettings(Protocol):
    """What adapters take from the user's settings; `orchestrator.settings.Settings` fits."""

    @property
    def home(self) -> Path:
        """Return the folder of all state."""
        ...

    @property
    def local_price_usd_per_hour(self) -> Decimal | None:
        """Return the notional price of this machine."""
        ...

    @property
    def machines(self) -> Path | None:
        """Return the file of machines rented by hand; None: machines.yaml in the home."""
        ...


def _local(settings: ProviderSettings, clock: Clock) -> Provider:
    from providers.local import LocalProvider

    return LocalProvider(settings.home, clock, price_usd_per_hour=settings.local_price_usd_per_hour)


def _ssh(settings: ProviderSettings, clock: Clock) -> Provider:
    from providers.ssh import SshProvider

    file = settings.machines or settings.home / "machines.yaml"
    return SshProvider(settings.home, file.expanduser().absolute(), clock)


def _fake(_: ProviderSettings, clock: Clock) -> Provider:
    from providers.fake import rehearsal

    return rehearsal(clock)


def _runpod(settings: ProviderSettings, clock: Clock) -> Provider:
    from providers.runpod import RunPodProvider
    from providers.runpod_settings import load_runpod_settings

    own = load_runpod_settings()
    if own.api_key is None:
        raise ValueError("runpod: RUNPOD_API_KEY is not set")
    return RunPodProvider(
        own.api_key.get_secret_value(),
        own.api_base_url,
        clock,
        list_lag_s=own.list_lag_s,
        boot_timeout_s=own.boot_timeout_s,
        refused=settings.home / "runpod-refused.json",
        waits=own.waits,
    )


PROVIDERS = MappingProxyType[str, Callable[[ProviderSettings, Clock], Provider]](
    {
        "local": _local,  # this machine
        "ssh": _ssh,  # machines that the user rented by hand
        "fake": _fake,  # a cloud in memory, for rehearsals: nothing real is rented
        "runpod": _runpod,  # RunPod's pods, over its REST API v2
    }
)


# What has to be set before a provider can be made; the others need nothing.
KEYS = MappingProxyType({"runpod": "RUNPOD_API_KEY"})


def create(name: str, settings: ProviderSettings, clock: Clock) -> Provider:
    """Return the provider of that name. Raises ValueError: no such name, or what is not set."""
    try:
        factory = PROVIDERS[name]
    except KeyError:
        known = ", ".join(PROVIDERS)
        raise ValueError(f"no provider {name!r}; there are: {known}") from None
    return factory(settings, clock)
