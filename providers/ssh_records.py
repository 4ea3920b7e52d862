"""What this computer remembers of machines rented by hand: whom it launched where, and what ended.

One JSON file an attempt below `<home>/rented/`, written whole. No key's content is in it, only the
paths of key files. `machines.yaml` may change or go; a launched machine is found by its record.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from providers.base import HANDED_ON, Ended, HostKey

FOLDER = "rented"
TRUSTED = "host-keys"
PLACE = ("host", "port")  # what makes two attempts' machine one and the same


def is_ending(facts: dict[str, Any]) -> bool:
    """Return whether the owner's own commands have not yet done, or not seen, the machine's end."""
    if not facts.get("wiped") or facts.get("ended"):
        return False
    undone = facts.get("teardown_command") and not facts.get("torn_down")
    return bool(facts.get("check_command") or undone)


class Records:
    """The records of one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def read(self, label: str) -> dict[str, Any] | None:
        """Return the record of an attempt; None where there is none that can be read."""
        try:
            found = json.loads((self._folder / f"{label}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, label: str, facts: dict[str, Any]) -> None:
        """Write the record whole. Raises OSError."""
        self._put(self._folder / f"{label}.json", json.dumps(facts, indent=1))

    def remove(self, label: str) -> None:
        """Forget an attempt that came to nothing."""
        with contextlib.suppress(OSError):
            (self._folder / f"{label}.json").unlink()

    def open(self) -> dict[str, dict[str, Any]]:
        """Return the records of attempts that may still hold their machine, by label."""
        return {
            name: facts
            for name, facts in self._all().items()
            if not facts.get("wiped") and not facts.get("ended")
        }

    def ending(self) -> dict[str, dict[str, Any]]:
        """Return the records of wiped machines that their owner's commands have not ended yet."""
        return {name: facts for name, facts in self._all().items() if is_ending(facts)}

    def _all(self) -> dict[str, dict[str, Any]]:
        try:
            names = sorted(path.stem for path in self._folder.glob("*.json"))
        except OSError:
            return {}
        found = {name: self.read(name) for name in names}
        return {name: facts for name, facts in found.items() if facts is not None}

    def hand_on(self, label: str, at: float) -> None:
        """Say of all earlier attempts on this one's machine that it has it now. Raises OSError."""
        mine = self.read(label) or {}
        place = [mine.get(key) for key in PLACE]
        for other, facts in self._all().items():
            same = [facts.get(key) for key in PLACE] == place
            over = facts.get("wiped") and not facts.get("ended") and not is_ending(facts)
            if other != label and same and over:
                self.write(other, {**facts, "ended": {"at": at, "by": HANDED_ON}})

    def handed_on(self) -> list[str]:
        """Return the attempts whose machine a later one has, and of which nobody wrote that yet."""
        return [
            label
            for label, facts in self._all().items()
            if (facts.get("ended") or {}).get("by") == HANDED_ON and not facts.get("noted")
        ]

    def ended(self, label: str) -> Ended | None:
        """Return the word that the machine is gone."""
        said = (self.read(label) or {}).get("ended")
        return Ended(float(said["at"]), str(said["by"])) if said else None

    def trusted(self, name: str, place: str) -> HostKey | None:
        """Return the host key that was trusted for this machine at this place."""
        try:
            words = (self._folder / TRUSTED / name).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return None
        if len(words) != 3 or words[0] != place:
            return None
        return HostKey(words[1], words[2])

    def trust(self, name: str, place: str, key: HostKey) -> None:
        """Remember a host key. Raises OSError."""
        self._put(self._folder / TRUSTED / name, f"{place} {key.type} {key.base64}\n")

    @staticmethod
    def _put(path: Path, text: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
