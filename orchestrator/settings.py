"""Settings from environment and `.env`: every name is GPUJOB_*, and `.env.example` lists each.

Beside these there are the limits of `orchestrator/policy.py` (`GPUJOB_<NAME>_S`) and each
adapter's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.locate import default_home, sqlite_url

PREFIX = "GPUJOB_"


class SettingsRefused(Exception):  # noqa: N818 - an answer to the user
    """A setting that cannot be used; `str()` names it, its value aside, and what it may be."""


class Settings(BaseSettings):
    """What the environment says. Adapters own their settings classes beside this one."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
    )

    home: Path = Field(default_factory=default_home, description="all state of gpujob")
    database_url: str | None = Field(None, description="SQLAlchemy URL; default SQLite in the home")
    owner: str | None = Field(None, description="stamp on machines; default made once per home")
    local_price_usd_per_hour: Decimal | None = Field(
        None, ge=0, description="a notional price for the `local` provider, labelled so"
    )
    budget_usd_per_day: Decimal | None = Field(
        None, gt=0, description="most money in a UTC day, over all jobs of the database"
    )
    owner_budget_usd_per_day: Decimal | None = Field(
        None, gt=0, description="the same for the machines of one owner stamp"
    )
    axolotl_env: Path | None = Field(
        None, description="a ready Axolotl environment on this machine, for the `local` provider"
    )
    machines: Path | None = Field(
        None, description="machines rented by hand; default machines.yaml in the home"
    )
    machine_lease_s: float | None = Field(
        None,
        gt=0,
        description="a rented machine ends itself when gpujob was not heard for so long; "
        "limits.lease_minutes of a job file wins",
    )
    sweep: Literal["on", "off"] = Field("on", description="the reaper after every command")
    torch_check: Literal["on", "off"] = Field(
        "on", description="off: a rented machine's GPUs are made up, as a simulated cloud's are"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="how much goes to the log file of a job"
    )
    alarm_command: str | None = Field(
        None, description="a shell command that is run with each alarm on its stdin"
    )
    alarm_webhook: SecretStr | None = Field(
        None, description="an http or https address that each alarm is posted to"
    )
    alarm_secret: SecretStr | None = Field(
        None, description="signs what is posted there (HMAC-SHA256)"
    )

    @field_validator("alarm_webhook")
    @classmethod
    def _an_address(cls, value: SecretStr | None) -> SecretStr | None:
        from urllib.parse import urlsplit

        parts = urlsplit("" if value is None else value.get_secret_value())
        if value is not None and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ValueError("give an http or https address")
        return value

    def resolved_database_url(self) -> str:
        """Return the SQLAlchemy URL in force."""
        return self.database_url or sqlite_url(self.home / "gpujob.db")


def load_settings(**given: Any) -> Settings:
    """Return the settings in force; `given` wins over the environment. Raises SettingsRefused."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsRefused(f"{name}: {first['msg'].lower()}") from None


def described() -> Mapping[str, str]:
    """Return every setting's environment name with what it is for."""
    return {
        PREFIX + name.upper(): field.description or ""
        for name, field in Settings.model_fields.items()
    }
