"""Settings from environment and `.env`: every name is GPUJOB_*, and `.env.example` lists each."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_home() -> Path:
    """Return the platform's data folder for gpujob."""
    import platformdirs

    return Path(platformdirs.user_data_dir("gpujob", appauthor=False))


class Settings(BaseSettings):
    """What the environment says. Adapters own their settings classes beside this one."""

    model_config = SettingsConfigDict(
        env_prefix="GPUJOB_", env_file=".env", env_file_encoding="utf-8", extra="ignore"
    )

    home: Path = Field(default_factory=default_home, description="all state of gpujob")
    database_url: str | None = Field(None, description="SQLAlchemy URL; default SQLite in the home")
    owner: str | None = Field(None, description="stamp on machines; default made once per home")
    local_price_usd_per_hour: Decimal | None = Field(
        None, ge=0, description="a notional price for the `local` provider, labelled so"
    )
    sweep: Literal["on", "off"] = Field("on", description="the reaper after every command")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def resolved_database_url(self) -> str:
        """Return the SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.home / 'gpujob.db'}"
