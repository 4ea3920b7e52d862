"""The token for a gated base model: where it is read, whom it may reach, how much it may do.

It goes to the trainer alone, over the standard input of the agent's start: into no file, no
argument and no environment but the trainer's. A token that may only read is asked for: whoever
runs the rented machine could take it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.redact import remember_secrets

HUB = "https://huggingface.co"
TIMEOUT_S = 15
ANSWER_BYTES = 1 << 20
READING = frozenset({"read"})
# Of a fine-grained token: what lets it change something.
WRITES = ("write", "post", "admin", "endpoints", "delete", "inference")


class HubTokens(BaseSettings):
    """Tokens of the hub. model_token goes to the machine; hf_token does where it is not given."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore"
    )

    gpujob_model_token: SecretStr | None = None
    hf_token: SecretStr | None = None
    hf_endpoint: str | None = None

    @property
    def for_the_model(self) -> str | None:
        """Return the token that may be shown to a machine; None where there is none."""
        found = self.gpujob_model_token or self.hf_token
        return None if found is None else found.get_secret_value()


def trainer_secrets() -> dict[str, str]:
    """Return what the trainer gets beside its environment; {} where no token is set."""
    token = HubTokens().for_the_model
    if token is None:
        return {}
    remember_secrets([token])
    return {"HF_TOKEN": token}


def scope_of(token: str, endpoint: str | None = None) -> str:
    """Return "read", "write", or "unknown" for what a token may do. Raises OSError, ValueError."""
    hub = (endpoint or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    if not hub.startswith(("https://", "http://")):
        raise ValueError("HF_ENDPOINT is no http address")
    request = urllib.request.Request(f"{hub}/api/whoami-v2")  # noqa: S310 - checked above
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return scope_in(json.loads(answer.read(ANSWER_BYTES)))


def scope_in(who: Any) -> str:
    """Return the scope that the hub's own answer tells of. Pure."""
    try:
        access = who["auth"]["accessToken"]
        role = access["role"]
    except (KeyError, TypeError):
        return "unknown"
    if role in READING:
        return "read"
    if role != "fineGrained":
        return "write" if role in {"write", "admin"} else "unknown"
    fine = access.get("fineGrained")
    if not isinstance(fine, Mapping):
        return "unknown"
    allowed = list(fine.get("global") or [])
    for scope in fine.get("scoped") or []:
        allowed += scope.get("permissions") or [] if isinstance(scope, Mapping) else []
    changes = any(word in str(permission) for permission in allowed for word in WRITES)
    return "write" if changes else "read"
