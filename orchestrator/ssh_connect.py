"""Connecting over SSH with paramiko: TCP, key exchange, the host's key checked, login."""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator.clock import Clock
from orchestrator.remote import (
    AuthRefused,
    HostKeyMismatch,
    HostKeyUnknown,
    ShellError,
    Target,
)
from providers.base import HostKey

if TYPE_CHECKING:
    import paramiko

CONNECT_S = 15.0  # TCP; a listening host answers in one round trip
HANDSHAKE_S = 30.0  # banner, key exchange and login together
# paramiko lists gcm last; first it costs 20-35 % less CPU (measured). No cbc, no 3des.
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
LOG_CHANNEL = "gpujob.ssh"


def dial(
    target: Target, clock: Clock, on_first_use: Callable[[HostKey], None] | None
) -> tuple[paramiko.Transport, Wire]:
    """Return a logged-in transport and its wire. See `ParamikoShell.connect`."""
    name = f"{target.host}:{target.port}"
    try:
        sock = socket.create_connection((target.host, target.port), timeout=CONNECT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ShellError(f"{name}: {error.strerror or error}") from error
    wire = Wire(sock, clock)
    with Translated(name, str):
        return handshake(wire, target, name, on_first_use), wire


class Wire:
    """A socket that remembers when it last heard from the other side, and counts what it sent."""

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._sock = sock
        self._now = clock.monotonic
        self.heard_at = self._now()
        self.sent_bytes = 0

    def send(self, data: bytes) -> int:
        """Send, and count."""
        size = self._sock.send(data)
        self.sent_bytes += size
        return size

    def recv(self, size: int) -> bytes:
        """Receive, and note the time."""
        data = self._sock.recv(size)
        self.heard_at = self._now()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Translated:
    """Turns what paramiko and its socket raise into ShellError. Not for code with local files."""

    def __init__(self, what: str, lost: Callable[[], str]) -> None:
        self._what = what
        self._lost = lost

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        import paramiko

        if isinstance(error, (paramiko.SSHException, EOFError, OSError)):
            why = self._lost() or str(error) or type(error).__name__
            raise ShellError(f"{self._what}: {why}") from error


def handshake(
    wire: Wire, target: Target, name: str, on_first_use: Callable[[HostKey], None] | None
) -> paramiko.Transport:
    """Return a logged-in transport, or close the socket and raise."""
    transport = _negotiator(wire, target.host_key)
    timer = threading.Timer(HANDSHAKE_S, transport.close)
    timer.daemon = True
    timer.start()
    try:
        _negotiate(transport, name, target.host_key, on_first_use)
        _log_in(transport, name, target)
    except BaseException:
        transport.close()
        wire.close()
        raise
    finally:
        timer.cancel()
    return transport


def _negotiator(wire: Wire, known: HostKey | None) -> paramiko.Transport:
    import paramiko

    logger = logging.getLogger(LOG_CHANNEL)
    logger.propagate = False  # paramiko logs tracebacks of what we report in one line
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    transport = paramiko.Transport(wire)  # type: ignore[arg-type]
    transport.set_log_channel(LOG_CHANNEL)
    options = transport.get_security_options()
    options.ciphers = CIPHERS
    if known is not None:  # ask for the key we know, or a host with several might show another
        options.key_types = RSA_SIGNATURES if known.type == "ssh-rsa" else (known.type,)
    return transport


def _negotiate(
    transport: paramiko.Transport,
    name: str,
    known: HostKey | None,
    on_first_use: Callable[[HostKey], None] | None,
) -> None:
    """Exchange keys and check the host's."""
    import paramiko

    try:
        transport.start_client(timeout=HANDSHAKE_S)
    except paramiko.SSHException as error:
        if known is not None and "host key" in str(error):
            raise HostKeyMismatch(f"{name} has no {known.type} host key, but had one") from error
        raise
    if not transport.initial_kex_done:
        raise ShellError(f"{name}: no key exchange within {HANDSHAKE_S:g} s")
    shown = transport.get_remote_server_key()
    key = HostKey(shown.get_name(), shown.get_base64())
    if known is None:
        if on_first_use is None:
            raise HostKeyUnknown(f"{name}: its host key is not known ({fingerprint(key)})")
        on_first_use(key)
    elif key != known:
        message = f"{name} shows the host key {fingerprint(key)}, expected {fingerprint(known)}"
        raise HostKeyMismatch(message)


def _log_in(transport: paramiko.Transport, name: str, target: Target) -> None:
    import paramiko

    try:
        left = transport.auth_publickey(target.user, paramiko.PKey.from_path(target.key_file))
    except paramiko.AuthenticationException as error:
        if not transport.is_active():  # the line broke, or the host was too slow: no verdict
            raise ShellError(f"{name}: the login was cut off") from error
        raise AuthRefused(f"{name} refused our key for user {target.user}") from error
    if left:
        raise AuthRefused(f"{name} wants more than our key: {', '.join(left)}")


def fingerprint(key: HostKey) -> str:
    """Return a host key's SHA256 fingerprint as `ssh-keygen -l` prints it."""
    body = hashlib.sha256(base64.b64decode(key.base64)).digest()
    return f"{key.type} SHA256:{base64.b64encode(body).decode().rstrip('=')}"
