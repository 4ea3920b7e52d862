"""A `local` provider for tests: a key pair, a paramiko login, and a proof that nothing was left."""

from __future__ import annotations

import base64
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.clock import SystemClock
from providers import local_tree
from providers.base import HostKey, Instance, InstanceState, LaunchRequest
from providers.local import LocalProvider


def key_pair() -> tuple[str, paramiko.PKey]:
    """Return a public key line and the private key."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    return public.decode(), paramiko.Ed25519Key.from_private_key(io.StringIO(private.decode()))


class LocalMachine:
    """One home, one key, one provider."""

    def __init__(self, home: Path, **options: object) -> None:
        self.home = home
        self.instances = home.resolve() / "instances"
        self.clock = SystemClock()
        self.public, self.private = key_pair()
        self._options = options
        self.provider = self.another()

    def another(self) -> LocalProvider:
        """Return a provider with no memory of ours."""
        return LocalProvider(self.home, self.clock, **self._options)  # type: ignore[arg-type]

    def request(self, label: str, lifetime_s: float = 600.0, **more: object) -> LaunchRequest:
        offer = min(self.provider.offers(), key=lambda o: o.price_usd_per_hour)
        deadline_at = self.clock.now() + lifetime_s
        return LaunchRequest(label, "me", offer, self.public, deadline_at, **more)  # type: ignore[arg-type]

    def ready(self, label: str = "job-1", lifetime_s: float = 600.0, **more: object) -> Instance:
        instance = self.provider.launch(self.request(label, lifetime_s, **more))
        wait_until(lambda: self.state(label) is InstanceState.READY, 30)
        return self.provider.describe(instance.id)

    def state(self, label: str) -> InstanceState | None:
        """Return what find says, None if nothing."""
        return next((i.state for i in self.provider.find(label) if i.label == label), None)

    def living(self) -> dict[str, list[int]]:
        """Return label -> living processes of this home, by their marks."""
        return local_tree.marked(str(self.instances))

    @contextmanager
    def login(self, instance: Instance) -> Iterator[paramiko.SSHClient]:
        with paramiko.SSHClient() as client:
            assert instance.host is not None
            assert instance.host_key is not None
            key = paramiko.Ed25519Key(data=base64.b64decode(instance.host_key.base64))
            client.get_host_keys().add(
                f"[{instance.host}]:{instance.port}", instance.host_key.type, key
            )
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                instance.host,
                port=instance.port or 0,
                username=instance.user,
                pkey=self.private,
                allow_agent=False,
                look_for_keys=False,
                timeout=20,
            )
            yield client

    def run(self, instance: Instance, command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Return exit status, stdout, stderr of one command."""
        with self.login(instance) as client:
            to, out, err = client.exec_command(command, timeout=60)
            to.write(stdin)
            to.channel.shutdown_write()
            output, errors = out.read(), err.read()
            return out.channel.recv_exit_status(), output, errors

    def close(self) -> None:
        """End every instance, and prove that nothing is left of any."""
        for instance in self.provider.find(""):
            self.provider.terminate(instance.id)
        wait_until(lambda: not self.living(), 10)
        assert self.provider.find("") == ()


def seen_host_key(instance: Instance) -> HostKey:
    """Return the key that the server at the instance's address shows."""
    with paramiko.Transport((instance.host or "", instance.port or 0)) as transport:
        transport.start_client(timeout=20)
        key = transport.get_remote_server_key()
        return HostKey(key.get_name(), key.get_base64())


def wait_until(done: object, limit_s: float, step_s: float = 0.02) -> None:
    """Wait for a callable to come true; fail when it does not."""
    assert callable(done)
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, f"not within {limit_s} s"
        time.sleep(step_s)


def is_running(pid: int) -> bool:
    """Return whether that process runs (a zombie does not)."""
    proc = local_tree.look(pid)
    return proc is not None and proc.state not in local_tree.DEAD


def pid_in(path: Path, limit_s: float = 15) -> int:
    """Return the process id that a program writes into a file, once it is there."""
    wait_until(lambda: path.is_file() and path.read_text().strip().isdigit(), limit_s)
    return int(path.read_text())


def kill(pid: int, number: int) -> None:
    os.kill(pid, number)
