"""What a face answers, and RunPod's errors in its own words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. "
    "Please refresh and try again."
)
NO_DISK = "There are no longer any instances available with enough disk space."
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
DETAILS = {
    400: "bad request",
    401: "missing bearer token",
    402: "insufficient balance",
    403: "access denied",
    404: "resource not found",
    409: "the action is not valid in this status",
    422: "Request validation failed.",
    429: "rate limit exceeded for the minute window",
    500: "Something went wrong. Please try again later or contact support.",
    502: "bad gateway",
    503: "service unavailable",
}
RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body: None for none, bytes as they are, else JSON. `stream` yields pieces."""

    status: int
    body: Any = None
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Any = None

    def content(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Refused(Exception):  # noqa: N818 - an answer, carried up
    def __init__(self, status: int, detail: str | None = None, errors: list[str] | None = None):
        super().__init__(detail)
        self.answer = problem(status, detail, errors)


def problem(status: int, detail: str | None = None, errors: list[str] | None = None) -> Answer:
    """Return an error as application/problem+json."""
    body = {"title": TITLES[status], "status": status, "detail": detail or DETAILS[status]}
    more = {"errors": errors} if errors else {}
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else {}
    return Answer(status, body | more, "application/problem+json", headers)
