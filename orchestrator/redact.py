"""Keeping secrets out of whatever gpujob writes: logs, crash files, messages. Text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user:password in a URL
)
# Names of variables that hold a secret, by their last word or two.
NAMES = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASS(?:WORD|WD|PHRASE)?|PWD|CREDENTIALS?|AUTH|KEY|KEY_ID)$"
)
NO_SECRET_NAMES = frozenset({"PWD", "OLDPWD"})
# Logins in addresses. The first reads as SQLAlchemy does: a password may hold any sign.
LOGINS = (
    re.compile(r"^[A-Za-z0-9+.-]*:?/{0,2}[^:/@\s]*:(\S+)@"),
    re.compile(r"://[^/\s:@]*:([^/\s@]+)@"),
)
MASK = "***"
SAID_CHARS = 500  # of an error in the journal; a vendor may answer with a whole page
SHORTEST_SECRET = 6  # masking shorter values would garble ordinary words

_known: set[str] = set()


def remember_secrets(values: Iterable[str]) -> None:
    """Mask these values wherever they appear from now on, also base64- and URL-quoted."""
    from urllib.parse import quote, unquote

    for value in values:
        for plain in {value, unquote(value)}:
            if len(plain) >= SHORTEST_SECRET:
                _known.update({plain, quote(plain, safe=""), *_base64_of(plain.encode())})


def _base64_of(secret: bytes) -> set[str]:
    """Return its base64, alone and at each place in a longer text ("user:secret" in a header)."""
    import base64

    whole = base64.b64encode(secret).decode()
    found = {whole, whole.rstrip("=")}
    for before in range(3):
        # Characters that also hold bits of what stands before or after are left out.
        text = base64.b64encode(b"\0" * before + secret).decode()
        found.add(text[(0, 2, 3)[before] : 4 * ((before + len(secret)) // 3)])
    found |= {text.translate(str.maketrans("+/", "-_")) for text in found}
    return {text for text in found if len(text) >= SHORTEST_SECRET}


def secrets_in(environ: Mapping[str, str]) -> set[str]:
    """Return the values whose names say secret, and the passwords in addresses. Pure."""
    found = set()
    for name, value in environ.items():
        is_path = value.startswith(("/", "~", "./"))  # of a file that holds it
        if NAMES.search(name.upper()) and name not in NO_SECRET_NAMES and not is_path:
            found.add(value)
        if "@" in value and not is_path:
            found.update(match[1] for login in LOGINS for match in login.finditer(value))
    return found


def remember_environment() -> None:
    """Mask the secrets of this process's environment, and of the `.env` where it was started."""
    import os
    from pathlib import Path

    from orchestrator.locate import environment

    try:
        known = environment(os.environ, Path.cwd())
    except (OSError, ValueError):  # no folder any more, a `.env` that is not text
        known = dict(os.environ)
    remember_secrets(secrets_in(known))


def redact(text: str) -> str:
    """Return `text` with every known secret and everything shaped like one replaced by ***."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    for shape in SHAPES:
        text = shape.sub(MASK, text)
    return text


def told(error: BaseException, *, kind: bool = True) -> str:
    """Return an error's words for the journal, secrets masked before anything is cut off."""
    text = f"{type(error).__name__}: {error}" if kind else str(error)
    return redact(text)[:SAID_CHARS]
