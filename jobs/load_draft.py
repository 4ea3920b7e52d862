"""A job file while it is checked: what it says, where each word stands, what is wrong so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.findings import Finding
from jobs.load_yaml import Document, KeyPath, dotted


@dataclass
class Draft:
    """The job while it is checked: plain values, where each came from, what is wrong so far."""

    document: Document
    folder: Path
    origins: dict[KeyPath, str]
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def find(self, path: KeyPath, message: str, remedy: str = "") -> None:
        """Add a finding at a key's line, or at the `--set` that gave it."""
        file, line = self.document.file, self.document.line(path)
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                file, line = self.origins[path[:end]], None
                break
        self.add(Finding(file, line, dotted(path), message, remedy))

    def add(self, finding: Finding) -> None:
        """Add a finding that is not there yet."""
        if finding not in self.document.findings:
            self.document.findings.append(finding)

    def has(self, path: KeyPath) -> bool:
        """Return whether something was found at the path or around it."""
        names = {dotted(path[:end]) for end in range(1, len(path) + 1)}
        return any(finding.field in names for finding in self.document.findings)

    def get(self, *path: str) -> Any:
        """Return the value at the path, None where there is none."""
        here: Any = self.values
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here
