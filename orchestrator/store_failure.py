"""How a database's failure is told: its own words, and for a broken file the way out."""

from __future__ import annotations

BROKEN = ("file is not a database", "disk image is malformed")  # SQLite's words


def failure_words(error: Exception, place: str) -> str:
    """Return what happened at `place`, the database's file or address without its password."""
    words = (str(getattr(error, "orig", None) or error).splitlines() or ["no message"])[0]
    if any(sign in words for sign in BROKEN):
        return (
            f"the database {place} is broken: {words}\n"
            "Move it aside; gpujob sweep --adopt then finds the machines that still run."
        )
    return f"the database failed: {words}"
