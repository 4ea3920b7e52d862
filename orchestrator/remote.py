"""The remote shell: a small protocol, its errors, and what a caller must know to reach a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from providers.base import HostKey


class ShellError(Exception):
    """The connection failed, died or a call passed its deadline. Always safe to reconnect."""


class HostKeyMismatch(ShellError):  # noqa: N818
    """The host showed another key than the one learnt beforehand. Never retried nor overridden."""


class HostKeyUnknown(HostKeyMismatch):
    """No key was learnt beforehand, and the caller did not allow trust on first use."""


class AuthRefused(ShellError):  # noqa: N818
    """The host refused our key."""


class RemoteFailed(ShellError):  # noqa: N818
    """The host answered, and its answer is a failure: the same call would fail again.

    `code` is one word: absent, irregular, too_big, no_space, changed, busy, late, no_python, noisy,
    os; "None" for an answer of a called program.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Target:
    """Where a host is, our private key file, and its key where that was learnt beforehand."""

    host: str
    port: int
    user: str
    key_file: Path
    host_key: HostKey | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of one remote command: exit status (-1: ended by a signal), bounded output."""

    rc: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    """A small file to write: path relative to a folder, content, mode."""

    path: str
    data: bytes
    mode: int = 0o600


Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Survey:
    """What a host has. hashes: sha256 of those files that are there in the expected size."""

    folder: str  # absolute
    made: bool  # the folder was not there
    python: tuple[int, int]
    executable: str  # of that Python
    free_bytes: int
    gpus: int
    hashes: Mapping[str, str]
    shown: Mapping[str, str]


class Shell(Protocol):
    """What the house needs of a machine. Every call has a deadline and raises only ShellError."""

    def run(
        self, command: str, *, timeout_s: float, stdin: bytes = b"", max_output_bytes: int = 1 << 20
    ) -> Completed:
        """Run a POSIX shell line to its end; gives it up at the deadline (ShellError).

        More output than `max_output_bytes` on either stream is a RemoteFailed.
        """
        ...

    def call(self, script: str, argv: Sequence[str]) -> dict[str, Any]:
        """Run `main(argv)` of a Python file on the host, and return the JSON object it prints.

        For questions that are asked every second: it starts no process. RemoteFailed("absent")
        where there is no such file; an answer that has "error" is a RemoteFailed too.
        """
        ...

    def python(
        self, script: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        """Run a Python file on the host in a process of its own; no login shell is started for it.

        What it leaves behind in sessions of their own lives on. RemoteFailed("late") at the limit.
        """
        ...

    def put(
        self,
        local: Path,
        remote: str,
        *,
        progress: Progress | None = None,
        compress: bool | None = None,
    ) -> str:
        """Upload one file and return its sha256 in hex; progress counts the file's own bytes.

        Resumable (a partial `remote.part` is continued if it is a prefix of the file), atomic,
        checked by sha256 on the far side, skipped where the host already has it. Compressed on the
        way where a sample of the file shrinks, or as `compress` says.
        """
        ...

    def put_bytes(self, data: bytes, remote: str, *, mode: int = 0o600) -> None:
        """Write a small file atomically."""
        ...

    def ping(self) -> None:
        """Have the host answer, and start what serves files there: what follows is quick."""
        ...

    def write(self, folder: str, parcels: tuple[Parcel, ...]) -> None:
        """Write small files below a folder in one round trip, each atomically and checked."""
        ...

    def survey(
        self, folder: str, *, files: Mapping[str, int | None], show: Sequence[str]
    ) -> Survey:
        """Make the folder (0700) and return what the host has; one round trip.

        files: relative paths with their expected sizes (None: any size); show: small text files.
        """
        ...

    def put_dir(self, local: Path, remote: str, *, progress: Progress | None = None) -> None:
        """Upload the regular files below a folder, each as `put` does; symlinks are followed."""
        ...

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        """Download one regular file (symlinks refused) to `local`; returns its sha256 in hex.

        Resumes a partial `local.part` if that is a prefix of the remote file.
        """
        ...

    def read_from(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a growing file from `offset` to its present end, at most `max_bytes`.

        An absent file has no bytes; a file shorter than `offset` is RemoteFailed("changed").
        """
        ...

    def close(self) -> None:
        """Close; a blocked call of another thread returns with ShellError."""
        ...


def shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Return the progress of one part as progress of the whole."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
