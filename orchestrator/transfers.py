"""The upload or download that runs now, for the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report_live import Transfer


class Transfers:
    """The upload or download that runs now, as the site tells of it from its thread."""

    def __init__(self) -> None:
        self._newest: Transfer | None = None

    def tell(self, _job: str, name: str, done: int, total: int) -> None:
        """Take one piece of news; a whole file is no transfer any more."""
        from orchestrator.report_live import Transfer

        self._newest = Transfer(name, done, total) if done < total else None

    def newest(self) -> Transfer | None:
        """Return the transfer that runs now, None where none does."""
        return self._newest
