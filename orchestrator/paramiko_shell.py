"""`Shell` over paramiko: a deadline on every call, dead peers noticed within 10 s."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.clock import Clock, SystemClock
from orchestrator.remote import (
    Completed,
    Parcel,
    Progress,
    RemoteFailed,
    ShellError,
    Survey,
    Target,
    shifted,
)
from orchestrator.ssh_connect import Translated, Wire, dial
from orchestrator.transfer import COMMAND, Ferry
from providers.base import HostKey

if TYPE_CHECKING:
    import paramiko

OPEN_S = 30.0  # channel and exec request: the host forks a shell
STALL_S = 300.0  # a transfer without a byte although the host lives: a slow disk's fsync at most
# What the host may send ahead, and at once: paramiko's 2 MiB and 32 KiB cost a tenth to a fifth
# more CPU a byte (benches/log_pull.py). OpenSSH takes packets of up to 256 KiB.
WINDOW_BYTES = 4 << 20
PACKET_BYTES = 128 << 10
PROBE_EVERY_S = 2.5
PROBE_LIMIT_S = 6.0  # PROBE_EVERY_S + PROBE_LIMIT_S < 10 s, the promise
CHUNK_BYTES = 1 << 21  # all that its window holds: a smaller read moves the rest in memory
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
        self._lock = threading.Lock()
        self._idle: _Lane | None = None  # kept: a new one costs a shell and a Python
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
        channel = self._start(command)
        deadline = _Deadline(channel, timeout_s, f"{self._name}: did not end a command")
        with self.translated(), deadline:
            return self._talk(channel, stdin, max_output_bytes)

    def _talk(self, channel: paramiko.Channel, stdin: bytes, max_output_bytes: int) -> Completed:
        try:
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
                    message = f"more than {max_output_bytes:,} bytes printed"
                    raise RemoteFailed(message, code="noisy")
            while data := channel.recv_stderr(CHUNK_BYTES):
                err += data[: max_output_bytes - len(err)]
            return Completed(pipe.finish(), bytes(out), bytes(err))
        finally:
            hang_up(channel)

    # ------------------------------------------------------------------ files

    def read_from(self, remote: str, offset: int, *, max_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a growing file. See `Shell.read_from`."""
        with self._ferry() as ferry:
            yield from ferry.tail(remote, offset, max_bytes=max_bytes)

    def ping(self) -> None:
        """Have the host answer. See `Shell.ping`."""
        with self._ferry() as ferry:
            ferry.ask({"do": "ping"})

    def survey(
        self, folder: str, *, files: Mapping[str, int | None], show: Sequence[str]
    ) -> Survey:
        """Make the folder and return what the host has. See `Shell.survey`."""
        with self._ferry() as ferry:
            request = {"do": "survey", "folder": folder, "files": dict(files), "show": list(show)}
            answer = ferry.ask(request)
        try:
            return Survey(
                folder=str(answer["folder"]),
                made=answer["made"] is True,
                python=(int(answer["python"][0]), int(answer["python"][1])),
                executable=str(answer["executable"]),
                free_bytes=int(answer["free_bytes"]),
                gpus=int(answer["gpus"]),
                hashes={str(path): str(sha) for path, sha in answer["hashes"].items()},
                shown={str(name): str(text) for name, text in answer["shown"].items()},
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise RemoteFailed(f"a survey of the wrong shape: {error}", code="noisy") from error

    def call(self, script: str, argv: Sequence[str]) -> dict[str, Any]:
        """Run `main(argv)` of a Python file on the host. See `Shell.call`."""
        with self._ferry() as ferry:
            return ferry.ask({"do": "call", "path": script, "argv": list(argv)})

    def python(
        self, script: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        """Run a Python file on the host in a process of its own. See `Shell.python`."""
        request = {"do": "spawn", "path": script, "argv": list(argv), "timeout_s": timeout_s}
        with self._ferry() as ferry:
            end = ferry.ask({**request, "stdin": len(stdin)}, stdin)
        out, err = str(end.get("stdout", "")).encode(), str(end.get("stderr", "")).encode()
        return Completed(int(end.get("rc", -1)), out, err)

    def write(self, folder: str, parcels: tuple[Parcel, ...]) -> None:
        """Write small files below a folder. See `Shell.write`."""
        with self._ferry() as ferry:
            ferry.write(folder, parcels)

    def put_bytes(self, data: bytes, remote: str, *, mode: int = 0o600) -> None:
        """Write a small file atomically."""
        folder, slash, name = remote.rpartition("/")
        self.write(folder or slash or ".", (Parcel(name, data, mode),))

    def put(
        self,
        local: Path,
        remote: str,
        *,
        progress: Progress | None = None,
        compress: bool | None = None,
    ) -> str:
        """Upload one file. See `Shell.put`."""
        with self._ferry() as ferry:
            return ferry.put(local, remote, progress=progress, compress=compress)

    def put_dir(self, local: Path, remote: str, *, progress: Progress | None = None) -> None:
        """Upload the regular files below a folder. See `Shell.put_dir`."""
        files = sorted(path for path in local.rglob("*") if path.is_file())
        sizes = [path.stat().st_size for path in files]
        total, before = sum(sizes), 0
        for path, size in zip(files, sizes, strict=True):
            name = path.relative_to(local).as_posix()
            self.put(path, f"{remote}/{name}", progress=shifted(progress, before, total))
            before += size

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        """Download one regular file. See `Shell.get`."""
        with self._ferry() as ferry:
            return ferry.get(remote, local, max_bytes=max_bytes, progress=progress)

    # ------------------------------------------------------------------ life and death

    def close(self) -> None:
        """Close; a blocked call of another thread returns with ShellError."""
        self._end("closed by us")

    def sent_bytes(self) -> int:
        """Return what went over the wire from us, all protocol included."""
        return self._wire.sent_bytes

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

    def _start(self, command: str) -> paramiko.Channel:
        """Return the channel of a command that was started, within OPEN_S."""
        with self.translated():
            channel = self._transport.open_session(
                window_size=WINDOW_BYTES, max_packet_size=PACKET_BYTES, timeout=OPEN_S
            )
            channel.settimeout(STALL_S)
            with _Deadline(channel, OPEN_S, f"{self._name}: did not start a command"):
                channel.exec_command(f"exec sh -c {shlex.quote(_PRINT_MARK + command)}")
            return channel

    @contextlib.contextmanager
    def _ferry(self) -> Iterator[Ferry]:
        """Lend the idle far end, or start one. After an error it is out of step, and is ended."""
        with self._lock:
            lane, self._idle = self._idle, None
        if lane is None or lane.channel.eof_received:
            channel = self._start(COMMAND)
            lane = _Lane(channel, Ferry(_Pipe(self, channel)))
        try:
            yield lane.ferry
        except BaseException:
            hang_up(lane.channel)
            raise
        with self._lock:
            if self._idle is None:
                self._idle, lane = lane, None
        if lane is not None:
            hang_up(lane.channel)

    def died(self) -> bool:
        """Return whether the connection is dead, giving its thread a moment to say so."""
        self._transport.join(0.3)
        return not self._transport.is_active()

    def translated(self) -> Translated:
        """Return the guard that turns paramiko's exceptions into ShellError."""
        return Translated(self._name, self.lost)


def hang_up(channel: paramiko.Channel) -> None:
    """Close a channel; on a dead connection there is nobody to tell."""
    with contextlib.suppress(Exception):
        channel.close()


class _Lane(NamedTuple):
    """A far end that runs, and its channel."""

    channel: paramiko.Channel
    ferry: Ferry


class _Deadline:
    """Closes a channel that is still in use after so long, and says so."""

    def __init__(self, channel: paramiko.Channel, limit_s: float, what: str) -> None:
        self._channel = channel
        self._words = f"{what} within {limit_s:g} s"
        self._late = threading.Event()
        self._timer = threading.Timer(limit_s, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._late.is_set():
            raise ShellError(self._words)

    def _expire(self) -> None:
        self._late.set()
        hang_up(self._channel)


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
