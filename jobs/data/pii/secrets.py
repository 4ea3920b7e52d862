"""Keys and passwords: adapters memorise them, and a public adapter then tells them to anyone.

Prefixes are those the issuers document for secret scanning.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator

from .spans import Span

_KEY = re.compile(
    r"hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-(?:proj-|ant-|or-|svcacct-)?[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic, OpenRouter
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|A(?:KIA|SIA)[A-Z2-7]{16}(?![A-Za-z0-9])"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,}"
    r"|glpat-[A-Za-z0-9_-]{18,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|AIza[A-Za-z0-9_-]{35}"
    r"|rpa_[A-Z0-9]{30,}"  # RunPod
    r"|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{60,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # a signed JWT
)
_PEM = re.compile(
    (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r"|\Z)"
    ),
    re.DOTALL,
)
_ASSIGNED = re.compile(
    r"(?:api[_ -]?key|secret(?:[_ -]?(?:access[_ -]?)?key)?|access[_ -]?token|auth[_ -]?token"
    r"|bearer|"
    r"password|passwd|parola\w*|şifre\w*|كلمة (?:ال)?(?:مرور|سر))"
    r"[\"']?\s*(?:[:=]|\bis\b|is:)?\s*[\"']?(?P<value>[^\s\"',;<>(){}]{8,})",
    re.IGNORECASE,
)
_KEY_GATE = (
    "hf_",
    "sk-",
    "k_live_",
    "k_test_",
    "akia",
    "asia",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "aiza",
    "rpa_",
    "npm_",
    "pypi-",
    "sg.",
    "eyj",
)
_GATE = ("key", "secret", "token", "bearer", "passw", "parola", "şifre", "كلمة")
_URL_LOGIN = re.compile(
    r"[a-z][a-z0-9+.-]{2,12}://[^\s:/@]{1,64}:(?P<value>[^\s/@]{3,})@", re.IGNORECASE
)
_EXAMPLES = frozenset(
    [
        "password",
        "pass",
        "passwd",
        "pwd",
        "guest",
        "redacted",
        "secret",
        "changeme",
        "xxx",
        "mypassword",
        "your-password",
    ]
)
_CODE = re.compile(r"[\[\]/|`]|^[A-Za-z_]+(?:[._-][A-Za-z_0-9]+)+$|->|::")
_MIN_BITS = 3.0  # Shannon bits a character; English words lie near 2.5, random base64 above 4


def find(text: str, low: str) -> Iterator[Span]:
    """Yield keys, private keys, passwords in addresses and assignments; `low`: in lower case."""
    marked = (
        "_" in low or "-" in low or "eyj" in low or "sg." in low or "akia" in low or "asia" in low
    )
    if (marked or "aiza" in low) and any(word in low for word in _KEY_GATE):
        for found in _KEY.finditer(text):
            left = text[found.start() - 1 : found.start()]
            if not (left.isalnum() and left.isascii()) and _varied(found[0]):
                yield Span(found.start(), found.end(), "SECRET", "key")
    if "-----BEGIN" in text:
        for found in _PEM.finditer(text):
            yield Span(found.start(), found.end(), "SECRET", "private_key")
    if "://" in text and "@" in text:
        for found in _URL_LOGIN.finditer(text):
            if found["value"].lower() not in _EXAMPLES and not set(found["value"]) & set(
                "<>*{}$[]"
            ):
                yield Span(found.start("value"), found.end("value"), "SECRET", "url_login")
    if any(word in low for word in _GATE):
        for found in _ASSIGNED.finditer(text):
            if _looks_random(found["value"].rstrip(".")):
                end = found.start("value") + len(found["value"].rstrip("."))
                yield Span(found.start("value"), end, "SECRET", "assigned", weak=True)


def _varied(token: str) -> bool:
    return len(set(token[-16:])) >= 5  # hf_xxxxxxxxxxxx in documentation is no key


def _looks_random(value: str) -> bool:
    """Return whether a value mixes letters with digits or signs and is not a plain word or call."""
    kinds = sum(
        (
            any(c.islower() for c in value),
            any(c.isupper() for c in value),
            any(c.isdigit() for c in value),
            any(not c.isalnum() for c in value),
        )
    )
    if (
        _CODE.search(value)
        or kinds < 3
        or not any(c.isdigit() for c in value)
        or value.startswith(("http", "os.", "$", "{"))
    ):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= _MIN_BITS or (len(value) < 12 and bits >= 2.6)
