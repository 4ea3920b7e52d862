"""What the RunPod adapter takes from the environment and `.env`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

API_BASE_URL = "https://api.runpod.io"


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the adapter waits for what, in seconds; each is a setting of its own."""

    # A 404 within two minutes of the create call is no proof (horizon PR 372).
    fresh_s: float = 120.0
    # Beyond the orchestrator's own patience: whoever is alive ends the pod first, and says why.
    contact_margin_s: float = 600.0
    host_key_s: float = 60.0  # a reachable machine is held back so long for its key's voucher
    cool_s: float = 300.0  # the catalogue's stock lags by minutes
    step_s: float = 5.0  # how often the pod's own switch looks


DEFAULT_WAITS = Waits()


class RunPodSettings(BaseSettings):
    """The account, and what is known of the service's pace.

    api_base_url serves both of its faces, `/v2` and `/graphql`, here and inside the pod; it is the
    name that RunPod's own SDK reads too.
    """

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore"
    )

    api_key: SecretStr | None = Field(None, validation_alias="RUNPOD_API_KEY")
    api_base_url: str = Field(
        API_BASE_URL, pattern=r"^https?://[^\s?#]+$", validation_alias="RUNPOD_API_BASE_URL"
    )
    # Nobody has published it; horizon's and transformerlab's reports speak of "seconds".
    list_lag_s: float = Field(10.0, ge=0, validation_alias="GPUJOB_RUNPOD_LIST_LAG_S")
    fresh_s: float = Field(DEFAULT_WAITS.fresh_s, gt=0, validation_alias="GPUJOB_RUNPOD_FRESH_S")
    contact_margin_s: float = Field(
        DEFAULT_WAITS.contact_margin_s, gt=0, validation_alias="GPUJOB_RUNPOD_CONTACT_MARGIN_S"
    )
    host_key_s: float = Field(
        DEFAULT_WAITS.host_key_s, gt=0, validation_alias="GPUJOB_RUNPOD_HOST_KEY_S"
    )
    cool_s: float = Field(DEFAULT_WAITS.cool_s, gt=0, validation_alias="GPUJOB_RUNPOD_COOL_S")
    step_s: float = Field(DEFAULT_WAITS.step_s, ge=1, validation_alias="GPUJOB_RUNPOD_STEP_S")
    # dstack waits as long; the pull of an image of many GB takes most of it.
    boot_timeout_s: float = Field(1200.0, gt=0, validation_alias="GPUJOB_RUNPOD_BOOT_TIMEOUT_S")

    @property
    def waits(self) -> Waits:
        """Return the waits in force."""
        return Waits(self.fresh_s, self.contact_margin_s, self.host_key_s, self.cool_s, self.step_s)


def load_runpod_settings() -> RunPodSettings:
    """Return the settings in force. Raises ValueError, which names the variable, not its value."""
    try:
        return RunPodSettings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg'].lower()}") from None
