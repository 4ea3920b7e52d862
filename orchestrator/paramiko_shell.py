"""`Shell` over paramiko: a deadline on every call, dead peers noticed within 10 s."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import transfer
from orchestrator.clock import Clock, SystemClock
from orchestrator.remote import Completed, Progress, RemoteFailed, ShellError, Target
from orchestrator.ssh_connect import Translated, Wire, dial
from providers.base import HostKey

if TYPE_CHECKING:
    import paramiko

OPEN_S = 30.0  # channel and exec request: the host forks a shell
STALL_S = 300.0  # a transfer without a byte although the host lives: a slow disk's fsync at most
PROBE_EVERY_S = 2.5
PROBE_LIMIT_S = 6.0  # PROBE_EVERY_S + PROBE_LIMIT_S < 10 s, the promise
CHUNK_BYTES = 1 << 15  # paramiko's packet: larger reads gain nothing with its default window
MAX_NOISE_BYTES = 1 << 16  # what a login script may print before our command starts

# Printed before a command's own output: what a .bashrc prints (RunPod's images) comes before it.
MARK = b"\x1egpujob\x1e"
_PRINT_MARK = r"printf '\036gpujob\036'; "


class ParamikoShell:
    """One connection. When it has died it stays dead: make a new one. Safe for several threads."""

    def __init__(self, transport: paramiko.Transport, wire: Wire, name: str, clock: Clock) -> None:
        self._transport = transport
        self._wire = wire
        self._name = name
        self._clock = clock
        self._closed = threading.Event()
        self._why = ""
        threading.Thread(target=self._probe, name=f"ssh-probe-{name}", daemon=True).start()

    @classmethod
    def connect(
        cls,
        target: Target,
        *,
        clock: Clock | None = None,
        on_first_use: Callable[[HostKey], None] | None = None,
    ) -> ParamikoShell:
        """Return a logged-in shell. No agent, no other keys, no password, no known_hosts file.

        on_first_use: allows a host whose key was not learnt beforehand, and is told that key;
        without it such a host is HostKeyUnknown. Raises HostKeyMismatch, AuthRefused, ShellError.
        """
        clock = clock or SystemClock()
        transport, wire = dial(target, clock, on_first_use)
        return cls(transport, wire, f"{target.host}:{target.port}", clock)

    # ------------------------------------------------------------------ commands

    def run(
        self, command: str, *, timeout_s: float, stdin: bytes = b"", max_output_bytes: int = 1 << 20
    ) -> Completed:
        """Run a POSIX shell line to its end. See `Shell.run`."""
        with self._channel(command, timeout_s) as channel:
            if stdin:
                # A command that ends without reading all of its input is no failure of ours.
                with contextlib.suppress(OSError):
                    channel.sendall(stdin)
            channel.shutdown_write()
            pipe = _Pipe(self, channel)
            out, err = bytearray(), bytearray()
            while data := pipe.read(CHUNK_BYTES, err):
                out += data
                if max(len(out), len(err)) > max_output_bytes:
                    raise RemoteFailed(
                        f"more than {max_output_bytes:,} bytes printed", code="noisy"
                    )
            while data := channel.recv_stderr(CHUNK_BYTES):
                err += data[: max_output_bytes - len(err)]
            return Completed(pipe.finish(), bytes(out), bytes(err))

    def read_from(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a growing file. See `Shell.read_from`."""
        path = shlex.quote(_rooted(remote))
        command = (
            f"[ -e {path} ] || {{ echo absent; exit 0; }}; "
            f"[ -f {path} ] && [ ! -L {path} ] || {{ echo irregular; exit 0; }}; "
            f"wc -c <{path} && tail -c +{offset + 1} {path} | head -c {max_bytes}"
        )
        with self._channel(command) as channel:
            pipe = _Pipe(self, channel)
            head = b""
            while b"\n" not in head:
                data = pipe.read(CHUNK_BYTES)
                if not data or len(head) > 100:
                    raise ShellError(f"{self._name}: no answer about {remote}")
                head += data
            size, _, data = head.partition(b"\n")
            _check_growth(remote, size.strip(), offset)
            left = max_bytes
            while left > 0 and (data := data or pipe.read(CHUNK_BYTES)):
                yield data[:left]
                left -= len(data)
                data = b""
            if left > 0:
                pipe.finish()

    # ------------------------------------------------------------------ files

    def put(
        self,
        local: Path,
        remote: str,
        *,
        progress: Progress | None = None,
        compress: bool | None = None,
    ) -> str:
        """Upload one file. See `Shell.put`."""
        with self._pipe() as pipe:
            return transfer.send_file(pipe, local, remote, progress=progress, compress=compress)

    def put_bytes(self, data: bytes, remote: str, *, mode: int = 0o600) -> None:
        """Write a small file atomically."""
        folder, _, name = remote.rpartition("/")
        folder = folder or ("/" if remote.startswith("/") else ".")
        transfer.write_files(self, folder, [transfer.Parcel(name, data, mode)], timeout_s=STALL_S)

    def put_dir(self, local: Path, remote: str, *, progress: Progress | None = None) -> None:
        """Upload the regular files below a folder. See `Shell.put_dir`."""
        files = sorted(path for path in local.rglob("*") if path.is_file())
        sizes = [path.stat().st_size for path in files]
        total, before = sum(sizes), 0
        for path, size in zip(files, sizes, strict=True):
            name = path.relative_to(local).as_posix()
            self.put(path, f"{remote}/{name}", progress=_shifted(progress, before, total))
            before += size

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        """Download one regular file. See `Shell.get`."""
        with self._pipe() as pipe:
            return transfer.fetch_file(pipe, remote, local, max_bytes=max_bytes, progress=progress)

    # ------------------------------------------------------------------ life and death

    def close(self) -> None:
        """Close; a blocked call of another thread returns with ShellError."""
        self._end("closed by us")

    def lost(self) -> str:
        """Return why the connection is dead, or nothing while it lives."""
        if self._transport.is_active():
            return ""
        return self._why or "the connection was lost"

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._closed.set()
        self._transport.close()

    def _probe(self) -> None:
        """Ask for a sign of life now and then; paramiko's own keepalive never notices silence."""
        while not self._closed.wait(PROBE_EVERY_S) and self._transport.is_active():
            answered = threading.Event()
            asked_at = self._clock.monotonic()
            threading.Thread(target=self._watch, args=(answered, asked_at), daemon=True).start()
            with contextlib.suppress(Exception):  # a dead transport, said by is_active()
                self._transport.global_request("keepalive@openssh.com", wait=True)
            answered.set()
        self._closed.set()

    def _watch(self, answered: threading.Event, asked_at: float) -> None:
        """End the connection unless the probe is answered, or anything else arrives meanwhile."""
        wait_s = PROBE_LIMIT_S
        while not answered.wait(wait_s):
            silent_s = self._clock.monotonic() - max(asked_at, self._wire.heard_at)
            if silent_s >= PROBE_LIMIT_S:
                self._end(f"the host has been silent for {silent_s:.0f} s")
                return
            wait_s = PROBE_LIMIT_S - silent_s

    # ------------------------------------------------------------------ channels

    @contextlib.contextmanager
    def _channel(self, command: str, run_s: float | None = None) -> Iterator[paramiko.Channel]:
        """Run a command's channel. `run_s` bounds it as a whole, else only its start is bounded."""
        line = f"exec sh -c {shlex.quote(_PRINT_MARK + command)}"
        late = threading.Event()
        with Translated(self._name, self.lost):
            channel = self._transport.open_session(timeout=OPEN_S)
            channel.settimeout(STALL_S)

            def expire() -> None:
                late.set()
                channel.close()

            timer = threading.Timer(OPEN_S if run_s is None else run_s, expire)
            timer.daemon = True
            timer.start()
            try:
                channel.exec_command(line)
                if run_s is None:
                    timer.cancel()
                yield channel
            except Exception as error:
                if late.is_set():
                    raise self._late(run_s) from error
                raise
            finally:
                timer.cancel()
                channel.close()
            if late.is_set():
                raise self._late(run_s)

    def _late(self, run_s: float | None) -> ShellError:
        what = "did not start a command" if run_s is None else "did not end a command"
        return ShellError(f"{self._name}: {what} within {run_s or OPEN_S:g} s")

    @contextlib.contextmanager
    def _pipe(self) -> Iterator[_Pipe]:
        with self._channel(transfer.COMMAND) as channel:
            yield _Pipe(self, channel)

    def died(self) -> bool:
        """Return whether the connection is dead, giving its thread a moment to say so."""
        self._transport.join(0.3)
        return not self._transport.is_active()

    def translated(self) -> Translated:
        """Return the guard that turns paramiko's exceptions into ShellError."""
        return Translated(self._name, self.lost)


class _Pipe:
    """A channel as `transfer.Pipe`; drops what a login script printed before our mark."""

    def __init__(self, shell: ParamikoShell, channel: paramiko.Channel) -> None:
        self._shell = shell
        self._channel = channel
        self._guard = shell.translated()
        self._head: bytes | None = b""  # None once the mark was seen

    def write(self, data: bytes) -> None:
        with self._guard:
            self._channel.sendall(data)

    def read(self, size: int, stderr: bytearray | None = None) -> bytes:
        while self._head is not None:
            data = self._receive(size, stderr)
            noise, mark, rest = (self._head + data).partition(MARK)
            self._head = None if mark else noise
            if rest:
                return rest
            if not mark and (not data or len(noise) > MAX_NOISE_BYTES):
                if not data:
                    self.finish()  # says so if it was the connection that ended
                raise RemoteFailed(f"the login shell printed {noise[:80]!r}", code="noisy")
        return self._receive(size, stderr)

    def _receive(self, size: int, stderr: bytearray | None) -> bytes:
        """Read standard output, and meanwhile the other stream, lest it blocks the command."""
        with self._guard:
            data = self._channel.recv(size) if stderr is None else self._both(size, stderr)
        if not data and not self._channel.eof_received and self._shell.died():
            raise ShellError(self._shell.lost())
        return data

    def _both(self, size: int, stderr: bytearray) -> bytes:
        self._channel.settimeout(0.5)
        while True:
            while self._channel.recv_stderr_ready():
                stderr += self._channel.recv_stderr(size)
            with contextlib.suppress(TimeoutError):
                return self._channel.recv(size)

    def finish(self) -> int:
        with self._guard:
            self._channel.shutdown_write()
            if not self._channel.status_event.wait(STALL_S):
                raise ShellError("no exit status came")
            status = self._channel.recv_exit_status()
        if status == -1 and self._shell.died():
            raise ShellError(self._shell.lost())
        return status


def _rooted(path: str) -> str:
    """Return the path so that no command takes it for an option."""
    return path if path.startswith("/") else f"./{path}"


def _check_growth(remote: str, said: bytes, offset: int) -> None:
    """Raise unless the file has at least the bytes that were read before."""
    if said == b"irregular":
        raise RemoteFailed(f"not a regular file, refused: {remote}", code="irregular")
    if said != b"absent" and not said.isdigit():
        raise RemoteFailed(f"no size of {remote}: {said[:80]!r}", code="noisy")
    have = 0 if said == b"absent" else int(said)
    if have < offset:
        message = f"{remote} has {have:,} bytes, but {offset:,} were read before"
        raise RemoteFailed(message, code="changed")


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
