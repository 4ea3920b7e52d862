"""Text from anywhere, made fit for a terminal."""

from __future__ import annotations

import unicodedata


def harmless(text: str) -> str:
    """Return text that cannot move a cursor or ring a bell: controls become "?", tabs a blank."""
    return "".join(
        " " if char in "\t\n\r" else "?" if unicodedata.category(char) in {"Cc", "Cf"} else char
        for char in text
    )
