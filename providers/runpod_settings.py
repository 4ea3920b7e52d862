"""What the RunPod adapter takes from the environment and `.env`."""

from __future__ import annotations

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

API_BASE_URL = "https://api.runpod.io"


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
    # dstack waits as long; the pull of an image of many GB takes most of it.
    boot_timeout_s: float = Field(1200.0, gt=0, validation_alias="GPUJOB_RUNPOD_BOOT_TIMEOUT_S")


def load_runpod_settings() -> RunPodSettings:
    """Return the settings in force. Raises ValueError, which names the variable, not its value."""
    try:
        return RunPodSettings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg'].lower()}") from None
