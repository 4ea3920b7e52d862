"""One SSH session of a `local` instance: a command or shell, its bytes, its signals, its exit."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pwd
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from typing import Any

import asyncssh

CHUNK_BYTES = 1 << 16  # what a Linux pipe holds
LAST_WORDS_S = 0.3  # a terminal's output is read for so long after its program ended
CANNOT_START = 126  # as a shell says it

Process = asyncssh.SSHServerProcess[bytes]
_reaping: set[asyncio.Task[int]] = set()  # programs whose client left: still ours to collect


async def serve_session(workdir: str, process: Process) -> None:
    """Run the session's command, or a shell, until it or the client ends."""
    if process.subsystem:
        process.stderr.write(b"no such subsystem\n")
        process.exit(1)
        return
    try:
        child = _Child(process, workdir)
    except OSError as error:
        process.stderr.write(f"cannot start: {error.strerror}\n".encode())
        process.exit(CANNOT_START)
        return
    ended = asyncio.create_task(_exit_of(child.popen))
    left = asyncio.create_task(process.channel.wait_closed())
    feed = asyncio.create_task(_feed(process, child))
    output = asyncio.create_task(_forward_all(child))
    try:
        if child.on_terminal:
            # As sshd: a terminal's session ends with its program; background jobs are hung up on.
            await asyncio.wait({left, ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({left, output}, timeout=LAST_WORDS_S)
        else:
            # As sshd: the exit is told after the last byte, so that no reader loses the end.
            await asyncio.wait({left, output}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({left, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not left.done():
            _tell_exit(process, ended.result())
    finally:
        for task in (feed, output, left):
            task.cancel()
        await asyncio.gather(feed, output, left, return_exceptions=True)
        child.close()
        if not ended.done():  # the client left: the program lives on, and dies at its next write
            _reaping.add(ended)
            ended.add_done_callback(_reaping.discard)


class _Child:
    """The started program and our ends of its pipes, or of its terminal."""

    def __init__(self, process: Process, workdir: str) -> None:
        command, terminal = process.command, process.get_terminal_type()
        environment = dict(os.environ)
        options: dict[str, Any] = {"cwd": workdir, "env": environment, "start_new_session": True}
        if command is not None:
            argv = ["/bin/sh", "-c", command]
        else:
            shell = _login_shell()
            argv = [f"-{os.path.basename(shell)}"]  # the dash makes it a login shell
            options["executable"] = shell
        self.on_terminal = terminal is not None
        if terminal is not None:
            environment["TERM"] = terminal
            self._start_on_terminal(argv, options, process)
        else:
            self._start_on_pipes(argv, options, process)
        # The channel calls these by name. Its own versions would queue behind unread input.
        process.signal_received = self._signal  # type: ignore[assignment,method-assign]
        process.terminal_size_changed = self._resize  # type: ignore[method-assign]

    def _start_on_terminal(
        self, argv: list[str], options: dict[str, Any], process: Process
    ) -> None:
        ours, theirs = os.openpty()
        self.stdin, self.outputs = ours, {ours: process.stdout}
        self._resize(*process.term_size)
        self._start(
            argv,
            (theirs, theirs, theirs),
            # In the new session, so that the terminal's hang-up and Ctrl-C reach it.
            {**options, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)},
        )

    def _start_on_pipes(self, argv: list[str], options: dict[str, Any], process: Process) -> None:
        (stdin, self.stdin), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.outputs = {out: process.stdout, err: process.stderr}
        self._start(argv, (stdin, stdout, stderr), options)

    def _start(
        self, argv: list[str], theirs: tuple[int, int, int], options: dict[str, Any]
    ) -> None:
        stdin, stdout, stderr = theirs
        try:
            self.popen = subprocess.Popen(
                argv, stdin=stdin, stdout=stdout, stderr=stderr, **options
            )
        except OSError:
            self.close()
            raise
        finally:
            for fd in set(theirs):
                os.close(fd)
        for fd in {self.stdin, *self.outputs}:
            os.set_blocking(fd, False)

    def end_input(self) -> None:
        """Let the program read an end of file. A terminal has none: its user types one."""
        if not self.on_terminal and self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        """Close our ends: pipes break, a terminal hangs up. Kills nothing."""
        for fd in {self.stdin, *self.outputs} - {-1}:
            os.close(fd)
        self.stdin, self.outputs = -1, {}

    def _signal(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if number is not None and self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)

    def _resize(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self.on_terminal and self.stdin >= 0:
            size = struct.pack("HHHH", height, width, pixwidth, pixheight)
            fcntl.ioctl(self.stdin, termios.TIOCSWINSZ, size)


def _login_shell() -> str:
    """Return the account's shell; in a container the account may have no entry."""
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _tell_exit(process: Process, code: int) -> None:
    with contextlib.suppress(OSError):
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)


async def _feed(process: Process, child: _Child) -> None:
    """Carry the client's bytes to the program until either end has had enough."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await process.stdin.read(CHUNK_BYTES):
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[os.write(child.stdin, rest) :]
                except BlockingIOError:
                    await _ready(child.stdin, writing=True)
    child.end_input()


async def _forward_all(child: _Child) -> None:
    await asyncio.gather(*(_forward(fd, writer) for fd, writer in child.outputs.items()))


async def _forward(fd: int, writer: asyncssh.SSHWriter[bytes]) -> None:
    """Carry the program's bytes to the client, at the client's pace, to the last one."""
    while True:
        await _ready(fd, writing=False)
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno == errno.EIO:  # how Linux says that nobody has the terminal open
                return
            raise
        if not data:
            return
        try:
            writer.write(data)
            await writer.drain()
        except (OSError, asyncssh.Error):
            return  # the client left


async def _ready(fd: int, *, writing: bool) -> None:
    """Wait until `fd` can be read or written."""
    loop = asyncio.get_running_loop()
    add: Callable[..., None] = loop.add_writer if writing else loop.add_reader
    remove = loop.remove_writer if writing else loop.remove_reader
    ready = loop.create_future()
    add(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(fd)


async def _exit_of(popen: subprocess.Popen[bytes]) -> int:
    """Return the exit code, or the negative signal number."""
    try:
        fd = os.pidfd_open(popen.pid)
    except (AttributeError, OSError):
        return await asyncio.get_running_loop().run_in_executor(None, popen.wait)
    try:
        await _ready(fd, writing=False)
    finally:
        os.close(fd)
    return popen.wait()
