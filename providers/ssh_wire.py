"""One question to a machine rented by hand, over SSH with paramiko; its host key must be known.

Apart from `orchestrator/ssh_connect.py`, which serves long sessions: providers know nothing of the
orchestrator. A question is a program and its arguments on standard input, an answer is JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import socket
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers.base import HostKey
from providers.errors import AuthFailed, Unavailable

if TYPE_CHECKING:
    import paramiko

CONNECT_S = 8.0  # TCP; then as long again for key exchange and login
ASK_S = 25.0  # one question in all: below one HTTP timeout
MAX_ANSWER_BYTES = 1 << 20
LOG_CHANNEL = "gpujob.ssh"
REMEDY = (
    "Nothing was sent to it. If you set the machine up anew, mend host_key in machines.yaml; "
    "else somebody may be in between."
)
MARK = "\x1egpujob\x1e"  # before the answer: a login script may print what it likes
RUN = (
    "import json,sys;q=json.loads(sys.stdin.buffer.read());d={};"
    "exec(compile(q.pop('source'),'gpujob','exec'),d);"
    "print(chr(30)+'gpujob'+chr(30)+json.dumps(d['main'](q)))"
)


class Unreached(Unavailable):
    """The machine could not be logged into: certainly nothing was done there."""

    outcome_unknown = False


class OtherKey(AuthFailed):
    """The machine shows another host key than the one that is trusted. Never overridden."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the machine is, our private key's path, and the host key that it must show."""

    host: str
    port: int
    user: str
    key_file: Path
    host_key: HostKey | None

    @property
    def name(self) -> str:
        """Return "user@host:port"."""
        return f"{self.user}@{self.host}:{self.port}"


class Lines:
    """Open connections, one a machine, kept for the next question. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Target, paramiko.Transport] = {}

    def ask(
        self, target: Target, question: dict[str, Any], *, limit_s: float = ASK_S
    ) -> dict[str, Any]:
        """Return the helper's answer. Raises Unreached, OtherKey, AuthFailed, Unavailable."""
        with self._lock:
            line = self._open.pop(target, None)
        if line is not None and not line.is_active():
            line.close()
            line = None
        line = line or _logged_in(target)
        body = json.dumps({**question, "source": helper_source()}).encode()
        timer = threading.Timer(limit_s, line.close)
        timer.daemon = True
        timer.start()
        try:
            answer = _run(line, body)
        except _errors() as error:
            line.close()
            why = str(error) or "the connection was lost"
            raise Unavailable(f"{target.name}: {why}") from error
        finally:
            timer.cancel()
        self._keep(target, line)
        if "error" in answer:
            raise Unavailable(f"{target.name}: {answer['error']}")
        return answer

    def _keep(self, target: Target, line: paramiko.Transport) -> None:
        with self._lock:
            other = self._open.get(target)
            self._open[target] = line
        if other is not None:
            other.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            lines, self._open = list(self._open.values()), {}
        for line in lines:
            line.close()


def _logged_in(target: Target) -> paramiko.Transport:
    transport = _connect(target)
    try:
        _log_in(transport, target)
    except BaseException:
        transport.close()
        raise
    return transport


def shown_key(target: Target) -> HostKey:
    """Return the host key that the machine shows, trusted or not. Logs in nowhere."""
    transport = _connect(target)
    try:
        return _key_of(transport)
    finally:
        transport.close()


def fingerprint(key: HostKey) -> str:
    """Return the SHA256 fingerprint as `ssh-keygen -l` prints it."""
    body = hashlib.sha256(base64.b64decode(key.base64)).digest()
    return f"SHA256:{base64.b64encode(body).decode().rstrip('=')}"


@cache
def helper_source() -> str:
    """Return the program that is sent along."""
    return (Path(__file__).parent / "ssh_helper.py").read_text(encoding="utf-8")


def _connect(target: Target) -> paramiko.Transport:
    """Return a transport whose host key was checked, not logged in."""
    import paramiko

    logger = logging.getLogger(LOG_CHANNEL)
    logger.propagate = False  # paramiko logs tracebacks of what we report in one line
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    try:
        sock = socket.create_connection((target.host, target.port), timeout=CONNECT_S)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreached(f"{target.name}: {why}") from error
    transport = paramiko.Transport(sock)
    transport.set_log_channel(LOG_CHANNEL)
    transport.auth_timeout = CONNECT_S
    try:
        _exchange(transport, target)
    except BaseException:
        transport.close()
        sock.close()
        raise
    return transport


def _exchange(transport: paramiko.Transport, target: Target) -> None:
    """Exchange keys, and check the host's."""
    known = target.host_key
    if known is not None:  # ask for the key we know: a host with several might show another
        rsa = ("rsa-sha2-512", "rsa-sha2-256")
        kinds = rsa if known.type == "ssh-rsa" else (known.type,)
        transport.get_security_options().key_types = kinds
    try:
        transport.start_client(timeout=CONNECT_S)
    except _errors() as error:
        if known is not None and "host key" in str(error):
            raise OtherKey(f"{target.name} has no {known.type} host key. {REMEDY}") from error
        why = str(error) or "cut off"
        raise Unreached(f"{target.name}: no key exchange: {why}") from error
    shown = _key_of(transport)
    if known is not None and shown != known:
        raise OtherKey(
            f"{target.name} shows the host key {fingerprint(shown)}, but {fingerprint(known)} is "
            f"trusted. {REMEDY}"
        )


def _key_of(transport: paramiko.Transport) -> HostKey:
    try:
        key = transport.get_remote_server_key()
    except _errors() as error:
        raise Unreached(f"no key exchange: {error}") from error
    return HostKey(key.get_name(), key.get_base64())


def _log_in(transport: paramiko.Transport, target: Target) -> None:
    import paramiko

    try:
        key = paramiko.PKey.from_path(target.key_file)
    except paramiko.PasswordRequiredException as error:
        message = f"{target.key_file} is locked by a passphrase: give a key without one"
        raise AuthFailed(message) from error
    except Exception as error:
        raise AuthFailed(f"{target.key_file} is no private key that can be read") from error
    try:
        left = transport.auth_publickey(target.user, key)
    except paramiko.AuthenticationException as error:
        if not transport.is_active():
            raise Unreached(f"{target.name}: the login was cut off") from error
        raise AuthFailed(f"{target.name} refused the key {target.key_file}") from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise Unreached(f"{target.name}: {error or 'the login was cut off'}") from error
    if left:
        raise AuthFailed(f"{target.name} wants more than a key: {', '.join(left)}")


def _run(transport: paramiko.Transport, body: bytes) -> dict[str, Any]:
    channel = transport.open_session(timeout=CONNECT_S)
    try:
        return _talk(channel, body)
    finally:
        channel.close()


def _talk(channel: paramiko.Channel, body: bytes) -> dict[str, Any]:
    channel.exec_command(f'python3 -I -c "{RUN}"')
    channel.sendall(body)
    channel.shutdown_write()
    out = bytearray()
    while data := channel.recv(1 << 16):
        out += data
        if len(out) > MAX_ANSWER_BYTES:
            raise OSError("its answer is too long")
    text = out.decode("utf-8", "replace")
    _, mark, told = text.rpartition(MARK)
    if not mark:
        said = channel.recv_stderr(4096).decode("utf-8", "replace").strip()[-300:]
        raise OSError(f"no answer of python3 there (exit {channel.recv_exit_status()}): {said}")
    try:
        answer = json.loads(told)
    except ValueError as error:
        raise OSError(f"an answer that is no JSON: {told[:100]!r}") from error
    return dict(answer)


def _errors() -> tuple[type[Exception], ...]:
    import paramiko

    return (paramiko.SSHException, OSError, EOFError)
