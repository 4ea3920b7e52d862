"""GPUJOB_HOME: where it is, that it is private, and that a database can live in it."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.locate import sqlite_url

# File systems on which SQLite's locks or its WAL's shared memory do not hold between machines, and
# often not on one (https://www.sqlite.org/wal.html, https://www.sqlite.org/faq.html#q5).
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "sshfs",
    }
)


class HomeRefused(Exception):  # noqa: N818 - the noun is the condition
    """The home folder cannot be used; `str()` says why and what to do. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Home:
    """All state of gpujob on this machine."""

    root: Path
    database_url: str

    def job_folder(self, job_id: str) -> Path:
        """Return the job's own folder, 0700, made on demand."""
        folder = self.root / "jobs" / job_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def log_path(self, job_id: str, attempt: int, name: str = "train.log") -> Path:
        """Return where the local copy of a pulled file lies."""
        folder = self.job_folder(job_id) / f"attempt-{attempt}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / name

    def checkpoints(self, job_id: str) -> Path:
        """Return where the checkpoints of a job lie that were brought home; may not be there."""
        return self.job_folder(job_id) / "checkpoints"

    def key_path(self, job_id: str) -> Path:
        """Return where the job's private SSH key lies; who makes it writes it 0600."""
        return self.job_folder(job_id) / "id_ed25519"


def open_home(root: Path, *, database_url: str | None = None) -> Home:
    """Return the home, made if it was not there; raises HomeRefused."""
    root = root.expanduser().absolute()
    refuse_network_file_system(root, _mounts())
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if root.stat().st_uid == os.getuid():
            root.chmod(0o700)
        (root / "jobs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HomeRefused(
            f"{root}: {error.strerror}; set GPUJOB_HOME to a folder that you may write"
        ) from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise HomeRefused(f"{root}: not writable; set GPUJOB_HOME to a folder that you may write")
    return Home(root, database_url or sqlite_url(root / "gpujob.db"))


def owner_of(home: Home, configured: str | None) -> str:
    """Return the owner stamp: as configured, or drawn once per home and kept in it."""
    if configured:
        return configured
    path = home.root / "owner"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        kept = path.read_text(encoding="ascii").strip()
        if kept:
            return kept
        raise HomeRefused(f"{path} is empty; remove it if no job of yours runs") from None
    fresh = secrets.token_hex(16)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(fresh)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def owner8(owner: str) -> str:
    """Return the eight characters of an owner that stand in every label."""
    return hashlib.sha256(owner.encode()).hexdigest()[:8]


def refuse_network_file_system(path: Path, mounts: Iterable[tuple[str, str]]) -> None:
    """Raise HomeRefused where the longest mount point above `path` is a network's.

    mounts: (mount point, file system type), later ones over earlier ones.
    """
    real = path.resolve()
    best, kind = "", ""
    for point, fs_type in mounts:
        if (real == Path(point) or Path(point) in real.parents) and len(point) >= len(best):
            best, kind = point, fs_type
    if kind.lower() in NETWORK_FILE_SYSTEMS:
        raise HomeRefused(
            f"{path} lies on a network file system ({kind} at {best}), where a database's locks do "
            "not hold; set GPUJOB_HOME to a folder on a local disk"
        )


def _mounts() -> list[tuple[str, str]]:
    """Return the mounts in force; none where the system does not say (macOS: `mount` is asked)."""
    try:
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return _mounts_by_command() if sys.platform == "darwin" else []
    pairs = [line.split(" ")[1:3] for line in text.splitlines() if line.count(" ") >= 2]
    return [(_unescape(point), fs_type) for point, fs_type in pairs]


def _unescape(point: str) -> str:
    """Return a mount point of /proc/mounts with its octal escapes undone."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, char)
    return point


def _mounts_by_command() -> list[tuple[str, str]]:
    import subprocess

    done = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=5, check=False)
    found = []
    for line in done.stdout.splitlines():  # "//me@srv/x on /Volumes/x (smbfs, nodev)"
        before, _, rest = line.rpartition(" (")
        found.append((before.partition(" on ")[2], rest.split(",")[0].rstrip(")")))
    return found
