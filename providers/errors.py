"""The closed tree of provider errors, and the two facts that each carries.

    ProviderError
    ├── NoCapacity        try the next quote
    ├── QuotaExceeded     limits or funds: drop this provider for the job
    ├── AuthFailed        the key is wrong, expired or lacks scope
    ├── InvalidRequest    our request is wrong; the vendor's text says how
    ├── RateLimited       wait `retry_after_s`; the runner's bucket waits, never the adapter
    ├── Unavailable       5xx, timeout, reset, garbage: the call may have taken effect
    └── NotFound          the vendor knows no such id

`retryable`: the same call may succeed later. `outcome_unknown`: the call may have taken effect
although it failed. What is done about each class stands in one table, `orchestrator/policy.py`.
Messages keep the verb, the id and the HTTP status, never a key.
"""

from __future__ import annotations

from typing import ClassVar


class ProviderError(Exception):
    """Base of all that an adapter may raise; `str()` is fit to show a person."""

    retryable: ClassVar[bool] = False
    outcome_unknown: ClassVar[bool] = False


class NoCapacity(ProviderError):  # noqa: N818 - the noun is the name of the condition, as vendors say it
    """Nothing was created: the offer is sold out."""


class QuotaExceeded(ProviderError):  # noqa: N818
    """Nothing was created: a limit or the balance forbids it."""


class AuthFailed(ProviderError):  # noqa: N818
    """The credentials were refused; nothing was done."""


class InvalidRequest(ProviderError):  # noqa: N818
    """The provider refused the request as malformed; nothing was done. Keeps the vendor's text."""


class RateLimited(ProviderError):  # noqa: N818
    """Nothing was done; ask again after `retry_after_s` seconds."""

    retryable = True

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(ProviderError):  # noqa: N818
    """No usable answer (5xx, timeout, reset, garbage): the call may have taken effect."""

    retryable = True
    outcome_unknown = True


class NotFound(ProviderError):  # noqa: N818
    """The provider knows no such instance."""
