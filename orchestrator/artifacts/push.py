"""What a push is told and what it answers, and the one error by which its ways fail. Data only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
CHUNK = 1 << 20

File = tuple[str, int, str]  # path, bytes, sha256
Tell = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Order:
    """One result and one place. do: push, or check before anything is launched."""

    target: str
    job: str
    name: str
    attempt: int
    folder: str
    files: tuple[File, ...]
    do: str = "push"

    @property
    def total_bytes(self) -> int:
        """Return the size of the result."""
        return sum(size for _, size, _ in self.files)

    @property
    def revision(self) -> str:
        """Return the name of the job's attempt at a place that has revisions."""
        return f"gpujob-{self.job}-{self.attempt}"

    @property
    def subfolder(self) -> str:
        """Return the name below a prefix: no two jobs share one, so none overwrites another."""
        return f"{self.name}-{self.job}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. where: set where everything is there, read back; notes: of a check."""

    target: str
    where: str = ""
    error: str = ""
    remedy: str = ""
    retry: bool = False  # it may pass by itself
    notes: tuple[str, ...] = ()

    @classmethod
    def failed(cls, target: str, error: str, remedy: str = "", *, retry: bool = False) -> Outcome:
        """Return a failure."""
        return cls(target, "", error, remedy, retry)


class PushFault(Exception):  # noqa: N818 - an answer to the user
    """A place that does not take the result; `str()` says why, without the place's name."""

    def __init__(self, message: str, remedy: str = "", *, retry: bool = False) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.retry = retry


def with_manifest(order: Order) -> tuple[File, ...]:
    """Return the files to push, the manifest last: where it lies, the rest lies too.

    Raises PushFault where the result at home is not what the journal says.
    """
    folder = Path(order.folder)
    for name, size, sha256 in order.files:
        path = folder / name
        whole = path.is_file() and not path.is_symlink() and path.stat().st_size == size
        if not whole or sha256_of(path) != sha256:
            raise PushFault(
                f"{name} at home is not the file that came from the machine",
                f"Put it back into {folder}, or submit again",
            )
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise PushFault(f"{folder} has no {MANIFEST}", "Put it back, or submit again")
    return (*order.files, (MANIFEST, manifest.stat().st_size, sha256_of(manifest)))


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
