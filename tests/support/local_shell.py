"""A Shell without a network: commands run here, files are copied here. For fast tests."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.remote import Completed, Parcel, Progress, ShellError


class LocalShell:
    """Implements orchestrator.remote.Shell on this machine."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self.env = env
        self.commands: list[str] = []

    def run(
        self, command: str, *, timeout_s: float, stdin: bytes = b"", max_output_bytes: int = 1 << 20
    ) -> Completed:
        self.commands.append(command)
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                env=self.env,
            )
        except subprocess.TimeoutExpired as error:
            raise ShellError(str(error)) from error
        return Completed(
            done.returncode, done.stdout[:max_output_bytes], done.stderr[:max_output_bytes]
        )

    def python(
        self, script: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        line = " ".join(map(shlex.quote, ["python3", "-I", script, *argv]))
        return self.run(line, timeout_s=timeout_s, stdin=stdin)

    def write(self, folder: str, parcels: tuple[Parcel, ...]) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for parcel in parcels:
            self.put_bytes(parcel.data, f"{folder}/{parcel.path}", mode=parcel.mode)

    def put(self, local: Path, remote: str, *, progress: Progress | None = None) -> None:
        shutil.copyfile(local, remote)

    def put_bytes(self, data: bytes, remote: str, *, mode: int = 0o600) -> None:
        part = Path(remote + ".part")
        part.write_bytes(data)
        part.chmod(mode)
        part.replace(remote)

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        size = Path(remote).stat().st_size
        if size > max_bytes:
            raise ShellError("too large")
        if progress is not None:
            progress(size // 2, size)
        shutil.copyfile(remote, local, follow_symlinks=False)
        return hashlib.sha256(local.read_bytes()).hexdigest()

    def read_from(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        fd = os.open(remote, os.O_RDONLY)
        try:
            os.lseek(fd, offset, os.SEEK_SET)
            yield os.read(fd, max_bytes)
        finally:
            os.close(fd)

    def close(self) -> None:
        pass
