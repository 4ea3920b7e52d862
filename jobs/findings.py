"""What is wrong with a job file: where, what, and how to put it right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.plain import harmless


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `str()` gives `job.yaml line 7: gpu.max_price: unknown key. Did you mean ...?`.

    file: as the person named it, or `--set key=value` where the fault came from there.
    line: counted from 1; None where the fault has no line (a missing file, a missing key).
    field: dotted name of the key, or "" for the file itself.
    """

    file: str
    line: int | None
    field: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file} line {self.line}"
        parts = [part for part in (where, self.field) if part]
        text = f"{': '.join(parts)}: {self.message}"
        return harmless(f"{text}. {self.remedy}" if self.remedy else text)


class JobFileError(Exception):
    """The job file can't be used. Holds every finding, in the order of the file; exit code 2."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda f: (f.line is None, f.line or 0)))
        super().__init__("\n".join(str(finding) for finding in self.findings))
