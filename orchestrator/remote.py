"""The remote shell: a small protocol, and its paramiko implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class ShellError(Exception):
    """The connection failed, died or a call passed its deadline. Always safe to reconnect."""


class HostKeyMismatch(ShellError):
    """The host showed another key than the one learnt beforehand. Never retried, never overridden."""


class AuthRefused(ShellError):
    """The host refused our key."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of one remote command: exit status (negative: signal), bounded output."""

    rc: int
    stdout: bytes
    stderr: bytes


Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Shell(Protocol):
    """What the house needs of a machine. Every call has a deadline and raises only ShellError."""

    def run(
        self, command: str, *, timeout_s: float, stdin: bytes = b"", max_output_bytes: int = 1 << 20
    ) -> Completed:
        """Run a POSIX shell line to its end; kills the channel at the deadline (ShellError)."""
        ...

    def put(self, local: Path, remote: str, *, progress: Progress | None = None) -> None:
        """Upload one file: resumable (a partial `remote.part` is continued), atomic, checked by sha256."""
        ...

    def put_bytes(self, data: bytes, remote: str, *, mode: int = 0o600) -> None:
        """Write a small file atomically."""
        ...

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> None:
        """Download one regular file (symlinks refused) to `local`, resuming a partial `local.part`."""
        ...

    def read_from(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a growing file from `offset` to its present end, at most `max_bytes`."""
        ...

    def close(self) -> None:
        """Close; a blocked call of another thread returns with ShellError."""
        ...
