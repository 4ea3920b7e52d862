"""Keeping secrets out of whatever gpujob writes: logs, crash files, messages. Text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Shapes of credentials, so that one we never heard of is still not written down. Sources: the
# vendors' documented prefixes (Hugging Face hf_, RunPod rpa_, AWS AKIA/ASIA, GitHub gh?_), and
# HTTP's Bearer.
SHAPES = (
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\brpa_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bgh[opsu]_[A-Za-z0-9]{20,}"),
    re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s:@]+(?=@)"),  # user:password in a URL
)
MASK = "***"
SHORTEST_SECRET = 6  # masking shorter values would garble ordinary words

_known: set[str] = set()


def remember_secrets(values: Iterable[str]) -> None:
    """Mask these values wherever they appear from now on, also base64- and URL-quoted."""
    import base64
    from urllib.parse import quote

    for value in values:
        if len(value) >= SHORTEST_SECRET:
            encoded = base64.b64encode(value.encode()).decode()
            _known.update({value, quote(value, safe=""), encoded, encoded.rstrip("=")})


def redact(text: str) -> str:
    """Return `text` with every known secret and everything shaped like one replaced by ***."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    for shape in SHAPES:
        text = shape.sub(MASK, text)
    return text
