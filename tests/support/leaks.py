"""Looking for secrets where they must not be: one searcher for files, databases and processes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

EVERY_S = 0.05
# Our own commands run with the user's environment: that is where he put his secrets.
OWN = (b"orchestrator", b"/crasher.py")


@dataclass(frozen=True, slots=True)
class Leak:
    """A secret that was found: whose, in which spelling, where."""

    name: str
    how: str
    where: str


def spellings(secret: bytes) -> dict[str, bytes]:
    """Return what to look for: raw, URL-quoted, and base64 at each place in a longer text."""
    found = {"raw": secret}
    quoted = quote(secret, safe="").encode()
    if quoted != secret:
        found["url"] = quoted
    for at in range(3):
        # What stands before and after shares the first and the last characters: they are left out.
        text = base64.b64encode(b"\0" * at + secret)
        start = (0, 2, 3)[at]
        core = text[start : 4 * ((at + len(secret)) // 3)]
        found[f"base64+{at}"] = core
        found[f"base64url+{at}"] = core.translate(bytes.maketrans(b"+/", b"-_"))
    return found


class Searcher:
    """Finds these secrets in bytes, and in everything that holds bytes."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self.needles = [
            (name, how, needle)
            for name, secret in secrets.items()
            for how, needle in spellings(secret).items()
        ]

    def data(self, data: bytes, where: str) -> list[Leak]:
        """Return what stands in these bytes."""
        return [Leak(name, how, where) for name, how, needle in self.needles if needle in data]

    def tree(self, folder: Path, *, but: Iterable[Path] = ()) -> list[Leak]:
        """Return what stands in the files below a folder, their names included."""
        left_out = set(but)
        found: list[Leak] = []
        for path in sorted(folder.rglob("*")):
            found += self.data(os.fsencode(path), f"name of {path}")
            if path.is_file() and not path.is_symlink() and path not in left_out:
                found += self.data(path.read_bytes(), str(path))
        return found

    def database(self, path: Path) -> list[Leak]:
        """Return what stands in the rows: a value may be cut in two by the file's pages."""
        with contextlib.closing(sqlite3.connect(path)) as base:
            tables = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return [
                leak
                for (table,) in tables
                for row in base.execute(f'SELECT * FROM "{table}"')
                for leak in self.data(repr(row).encode(), f"row of {table}")
            ]


@dataclass
class Sampler:
    """Looks every 50 ms at all processes, and at the files below some folders, while a block runs.

    A process belongs to us where `mark` stands in its argv or its environment; of those, only
    gpujob's own commands may hold secrets in their environment. argv is looked at in all.
    """

    mark: bytes
    folders: tuple[Path, ...]
    argv: set[bytes] = field(default_factory=set)
    environs: dict[bytes, bytes] = field(default_factory=dict)  # environment -> argv
    files: dict[bytes, tuple[str, bytes]] = field(default_factory=dict)  # hash -> name, content
    looks: int = 0
    _seen: set[tuple[str, int, int]] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[Sampler]:
        """Sample in a thread while the block runs."""
        self._stop.clear()
        with ThreadPoolExecutor(1) as pool:
            sampling = pool.submit(self._run)
            try:
                yield self
            finally:
                self._stop.set()
        sampling.result()  # a sampler that died has seen nothing since: that is no clean result

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self.look()
            self._stop.wait(max(0.0, EVERY_S - (time.monotonic() - begun)))

    def look(self) -> None:
        """Take one sample."""
        self.looks += 1
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                self._process(proc)
        for folder in self.folders:
            for place, _, names in os.walk(
                folder
            ):  # unlike rglob: what vanishes meanwhile is left out
                for name in names:
                    with contextlib.suppress(OSError):
                        self._file(Path(place, name))

    def _process(self, proc: Path) -> None:
        argv = (proc / "cmdline").read_bytes()
        environ = (proc / "environ").read_bytes()
        # Between fork and exec a child still shows its parent's; a change in between shows in argv.
        if argv != (proc / "cmdline").read_bytes():
            return
        if self.mark in argv or self.mark in environ:
            self.argv.add(argv)
            if not any(own in argv for own in OWN):
                self.environs.setdefault(environ, argv)

    def _file(self, path: Path) -> None:
        stat = path.stat()
        key = (str(path), stat.st_mtime_ns, stat.st_size)
        if key in self._seen or path.is_symlink() or not path.is_file():
            return
        content = path.read_bytes()
        self._seen.add(key)
        self.files.setdefault(hashlib.sha256(content).digest(), (str(path), content))

    def leaks(self, searcher: Searcher) -> list[Leak]:
        """Return what stands in all that was seen."""
        found: list[Leak] = []
        for argv in self.argv:
            found += searcher.data(argv, f"argv {argv[:120]!r}")
        for environ, argv in self.environs.items():
            found += searcher.data(environ, f"environment of {argv[:120]!r}")
        for name, content in self.files.values():
            found += searcher.data(content, f"{name} while the job ran")
        return found
