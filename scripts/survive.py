"""All that shows that nothing is lost, one part after another, and a line of totals at the end.

    python scripts/survive.py             all parts
    python scripts/survive.py bucket      only those whose file has this word in its name

Ends with status 1 if anything failed, or if a part could not be run here (it is named then).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is shown, and by which tests: pytest's path and its -k.
PARTS: tuple[tuple[str, str, str], ...] = (
    ("a lost machine is gone on from its newest whole checkpoint", "tests/e2e/test_resume.py", ""),
    ("a resumed real training is the undisturbed one", "tests/e2e/test_resume_real.py", ""),
    ("checkpoints in a real S3 server, killed and corrupted", "tests/e2e/test_bucket.py", ""),
    ("a machine that nobody comes back to", "tests/e2e/test_rescue.py", ""),
    ("a hostile machine", "tests/e2e/test_hostile.py", ""),
    ("a token that the trainer alone gets to see", "tests/unit/test_hub_token.py", ""),
    ("the batch of another machine", "tests/unit/test_effective_batch.py", ""),
    (
        "a checkpoint before the call back",
        "tests/e2e/test_agent_deaths.py",
        "called_back",
    ),
    ("no secret anywhere", "tests/e2e/test_secrets.py", ""),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What pytest counted in one part."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counted) -> Counted:
        """Return the sum."""
        sums = (self.passed + other.passed, self.failed + other.failed)
        return Counted(*sums, self.skipped + other.skipped)


def counted(output: str) -> Counted:
    """Return the figures of pytest's last line; one that is not there is a failure."""
    words = {"passed": 0, "failed": 0, "error": 0, "skipped": 0}
    last = output.strip().splitlines()[-1:] or [""]
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last[0]):
        words[word] += int(number)
    if not any(words.values()):
        return Counted(failed=1)
    return Counted(words["passed"], words["failed"] + words["error"], words["skipped"])


def run(path: str, only: str) -> Counted:
    """Run one part, those that the gate leaves out too, and return what came out."""
    argv = [sys.executable, "-m", "pytest", path, "-q", "-m", "", "-p", "no:randomly", "-rs"]
    done = subprocess.run(
        [*argv, *(["-k", only] if only else [])],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = counted(done.stdout)
    if found.failed or found.skipped:
        print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    return found


def main(words: Sequence[str]) -> int:
    """Run the parts that are asked for."""
    began, total, parts = time.monotonic(), Counted(), 0
    for what, path, only in PARTS:
        if words and not any(word in path for word in words):
            continue
        found = run(path, only)
        total, parts = total + found, parts + 1
        bad = f", {found.failed} FAILED" if found.failed else ""
        left = f", {found.skipped} could not run here" if found.skipped else ""
        print(f"{what}: {found.passed} passed{bad}{left}", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(
        f"survive: {parts} parts, {total.passed} passed, {total.failed} failed, "
        f"{total.skipped} left out, {minutes:.1f} min"
    )
    return int(bool(total.failed or total.skipped or not parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
