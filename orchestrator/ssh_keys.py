"""One ed25519 key per job: made at the first attempt, removed with the job."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.remote import Target

PRIVATE = "id_ed25519"
PUBLIC = "id_ed25519.pub"


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job's key: the private key's file (mode 0600), and the public key as one OpenSSH line."""

    file: Path
    public_line: str


def job_key(home: Path, job: str) -> JobKey:
    """Return the job's key, made at the first call. Files below `home`/keys/<job>, mode 0700.

    Idempotent, also after a crash in between: the private file appears whole, and the public line
    is derived from it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = _folder(home, job)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / PRIVATE
    if not file.exists():
        private = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        _write_once(file, private)
    key = serialization.load_ssh_private_key(file.read_bytes(), password=None)
    body = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{body.decode()} gpujob-{job}"
    public = folder / PUBLIC
    if not public.exists():
        _write_once(public, line.encode() + b"\n")
    return JobKey(file, line)


def remove_job_key(home: Path, job: str) -> None:
    """Remove the job's key; absent is success."""
    shutil.rmtree(_folder(home, job), ignore_errors=True)


def openssh_argv(target: Target, known_hosts: Path) -> list[str]:
    """Return the command line of the system's `ssh` for a shell on the host, its key pinned.

    Writes the host's key, where it is known, into `known_hosts` (a file of ours).
    """
    if target.host_key is not None:
        place = target.host if target.port == 22 else f"[{target.host}]:{target.port}"
        known_hosts.write_text(f"{place} {target.host_key.type} {target.host_key.base64}\n")
    strict = "yes" if target.host_key is not None else "accept-new"
    options = {
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": f'"{known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": strict,
        "ServerAliveInterval": "15",
    }
    flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    return [
        "ssh", "-F", "none", "-i", str(target.key_file), "-p", str(target.port), *flags,
        f"{target.user}@{target.host}",
    ]  # fmt: skip


def _folder(home: Path, job: str) -> Path:
    if not job or not job.isalnum():
        raise ValueError(f"not a job id: {job!r}")
    return home / "keys" / job


def _write_once(file: Path, data: bytes) -> None:
    """Write the file whole and for us alone; the first of two writers wins."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
    try:
        os.link(part, file)
    except FileExistsError:
        pass
    finally:
        part.unlink()
