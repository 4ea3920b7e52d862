"""From RunPod's answers to our errors: one function, tables on top. Pure.

Sources: REST v2 answers RFC 9457 problems without a machine code, so words decide where a status
says two things; they are those of RunPod's own clients and of reports by their users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)

LAUNCH, TERMINATE = "launch", "terminate"

SOLD_OUT = re.compile(
    r"no longer any instances|no instances? (?:currently )?available|no gpus? available|"
    r"does not have the resources|try a different machine|insufficient capacity|out of stock|"
    r"not enough free gpus|enough disk space",
    re.IGNORECASE,
)
NO_FUNDS = re.compile(
    r"balance|not enough (?:funds|credit)|insufficient (?:funds|credit)|spend(?:ing)? limit|quota",
    re.IGNORECASE,
)
# A 400 to a create is a broken rule or a candidate that cannot be placed; these words mean a rule.
BROKEN_RULE = re.compile(
    r"must |require|mutually exclusive|not allowed|invalid|unknown|malformed|not found|exceed",
    re.IGNORECASE,
)
NOT_FOR_US = re.compile(r"\b(?:pool|data ?cent(?:er|re)|gpu type|region)\b", re.IGNORECASE)

DEFAULT_WAIT_S = 15.0  # a 429 without a word of when
LONGEST_WAIT_S = 300.0  # an hourly or daily window: asking again meanwhile costs one more 429
# A machine may be living: its end is asked for again soon, whatever the limit says.
LONGEST_TERMINATE_WAIT_S = 60.0
SAID_CHARS = 300


def error_of(
    verb: str, what: str, status: int, document: object, *, headers: Mapping[str, str], now: float
) -> ProviderError:
    """Return the error that an answer other than success means.

    verb: one of the five, or the name of another read. what: the path or id, for the message.
    document: the answer's JSON, None where it has none: such an answer is not the service's own, so
    it says nothing about machines. now: UNIX seconds, for a Retry-After that is a date.
    """
    words = said(document)
    head = f"{verb} {what}: HTTP {status}" if what else f"{verb}: HTTP {status}"
    message = f"{head}, {words}" if words else head
    if status == 429:
        longest_s = LONGEST_TERMINATE_WAIT_S if verb == TERMINATE else LONGEST_WAIT_S
        wait_s = min(retry_after_s(headers, now), longest_s)
        return RateLimited(message, retry_after_s=wait_s)
    if not words and status not in {401, 402}:
        return Unavailable(f"{message}, not a problem document")
    if status == 404 and verb != LAUNCH:
        return NotFound(message)
    kind = _STATUS.get(status)
    if kind is not None:
        return kind(message)
    if status == 403:
        skip = verb == LAUNCH and NOT_FOR_US.search(words)
        return NoCapacity(message) if skip else AuthFailed(message)
    if status == 400 and verb == LAUNCH:
        return _refused_launch(words)(message)
    if status in {408, 425} or (status == 409 and verb == LAUNCH):
        return Unavailable(message)
    return InvalidRequest(message) if 400 <= status < 500 else Unavailable(message)


_STATUS: dict[int, type[ProviderError]] = {401: AuthFailed, 402: QuotaExceeded}


def _refused_launch(words: str) -> type[ProviderError]:
    if SOLD_OUT.search(words):
        return NoCapacity
    if NO_FUNDS.search(words):
        return QuotaExceeded
    return InvalidRequest if BROKEN_RULE.search(words) else NoCapacity


def said(document: object) -> str:
    """Return a problem's own words, cut; "" where the document is no problem."""
    if not isinstance(document, dict):
        return ""
    parts: list[Any] = [document.get(name) for name in ("title", "detail", "message", "error")]
    listed = document.get("errors")
    parts += listed[:3] if isinstance(listed, list) else []
    words = ": ".join(dict.fromkeys(str(part) for part in parts if isinstance(part, str) and part))
    return words[:SAID_CHARS]


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds to wait that an answer names: Retry-After, else an exhausted window."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return max(1.0, float(text))
    if text:
        try:
            return max(1.0, parsedate_to_datetime(text).timestamp() - now)
        except (TypeError, ValueError, OverflowError):
            return DEFAULT_WAIT_S
    spent = [window_s for left, window_s in windows(headers) if left <= 0]
    return max([1.0, *spent]) if spent else DEFAULT_WAIT_S


def windows(headers: Mapping[str, str]) -> list[tuple[int, float]]:
    """Return (requests left, seconds until more) for each window of a RateLimit header."""
    found = re.findall(r";\s*r=(\d{1,9});\s*t=(\d{1,9})", headers.get("ratelimit", ""))
    return [(int(left), float(seconds)) for left, seconds in found]
