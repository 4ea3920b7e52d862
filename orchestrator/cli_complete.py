"""What the shell offers for JOB: ids and names, in a fraction of a second, and never an error."""

from __future__ import annotations

import os
from pathlib import Path


def complete_jobs(incomplete: str) -> list[tuple[str, str]]:
    """Return (word, help) of the jobs that begin so, newest first; empty when anything is wrong."""
    try:
        from orchestrator.locate import locate, sqlite_url
        from orchestrator.store_quick import open_quick

        located = locate(os.environ, Path.cwd())
        quick = open_quick(located.database_url or sqlite_url(located.home / "gpujob.db"))
        if quick is None:
            return []
        try:
            pairs = [(str(row.id), str(row.name)) for row in quick.names()]
        finally:
            quick.close()
    except Exception:  # noqa: BLE001 - a completion that fails must not garble the command line
        return []
    words = [(job_id, name) for job_id, name in pairs if job_id.startswith(incomplete)]
    names = dict.fromkeys(name for _, name in pairs if name.startswith(incomplete))
    return [*words, *((name, "newest of this name") for name in names)]
