"""The SSH server of a `local` instance, spoken to by paramiko: does it do what sshd does?"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from providers.base import Instance
from tests.support.local_machine import (
    LocalMachine,
    is_running,
    key_pair,
    pid_in,
    seen_host_key,
    wait_until,
)

pytestmark = pytest.mark.e2e
BLOCK = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    machine = LocalMachine(tmp_path_factory.mktemp("home"))
    yield machine
    machine.close()


@pytest.fixture(scope="module")
def instance(machine: LocalMachine) -> Instance:
    return machine.ready("ssh")


@pytest.fixture
def client(machine: LocalMachine, instance: Instance) -> Iterator[paramiko.SSHClient]:
    with machine.login(instance) as client:
        yield client


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", (0, b"", b"")),
        ("exit 7", (7, b"", b"")),
        ("printf out; printf err >&2; exit 255", (255, b"out", b"err")),
        ("no-such-program-here", (127, b"", None)),
        ("printf '\\377\\000\\r'", (0, b"\xff\x00\r", b"")),
        ("echo $0 $TERM", (0, b"/bin/sh\n", b"")),
        ("kill -9 $$", (-1, b"", b"")),  # paramiko's word for "ended by a signal"
    ],
)
def test_exit_and_streams(
    machine, instance, command: str, expected: tuple[int, bytes, bytes | None]
) -> None:
    rc, out, err = machine.run(instance, command)
    assert (rc, out) == expected[:2]
    assert expected[2] is None or err == expected[2]


def test_each_command_starts_in_the_workdir_in_a_session_of_its_own(machine, instance) -> None:
    _, out, _ = machine.run(instance, "pwd; echo $$; ps -o sid= -p $$; umask")
    workdir, pid, session, umask = out.decode().split()
    assert workdir == instance.workdir
    assert pid == session
    assert umask == "0077"


def test_stdin_reaches_the_command_whole(machine, instance) -> None:
    sent = BLOCK * 20
    _, out, _ = machine.run(instance, "sha256sum", stdin=sent)
    assert out.split()[0].decode() == hashlib.sha256(sent).hexdigest()


def test_a_command_may_end_without_reading_its_stdin(machine, instance) -> None:
    assert machine.run(instance, "exec true", stdin=b"x" * 100_000)[0] == 0


def test_200_mb_of_output_arrive_whole_and_quickly(client) -> None:
    began = time.monotonic()
    program = (
        "import sys; b = bytes(range(256)) * 4096\nfor _ in range(200): sys.stdout.buffer.write(b)"
    )
    _, out, _ = client.exec_command(f"python3 -c '{program}'; printf end")
    digest, size = hashlib.sha256(), 0
    while data := out.channel.recv(1 << 20):
        digest.update(data)
        size += len(data)
    expected = hashlib.sha256()
    for _ in range(200):
        expected.update(BLOCK)
    expected.update(b"end")
    assert (size, digest.digest()) == (200 * len(BLOCK) + 3, expected.digest())
    assert out.channel.recv_exit_status() == 0
    assert time.monotonic() - began < 60


def test_a_slow_reader_loses_nothing(client) -> None:
    """The commands end while their last bytes still lie in the pipe, behind a full window."""
    window = client.get_transport().default_window_size
    sizes = [window + n * 16384 for n in range(-2, 24, 2)] + [4 * window]
    outputs = [client.exec_command(f"head -c {size} /dev/zero; exit 5")[1] for size in sizes]
    time.sleep(0.7)
    for size, out in zip(sizes, outputs, strict=True):
        assert len(out.read()) == size
        assert out.channel.recv_exit_status() == 5


def test_both_streams_flow_at_once(client) -> None:
    command = "head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait"
    _, out, err = client.exec_command(command)
    errors: list[bytes] = []
    reader = threading.Thread(target=lambda: errors.append(err.read()))
    reader.start()
    assert len(out.read()) == 3_000_000
    reader.join(20)
    assert len(errors[0]) == 3_000_000


def test_many_sessions_on_one_connection(client) -> None:
    channels = [client.exec_command(f"sleep 0.2; echo {n}")[1] for n in range(20)]
    assert [c.read().strip() for c in channels] == [str(n).encode() for n in range(20)]


@pytest.mark.parametrize(
    "cipher", ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr"]
)
def test_ciphers(machine, instance, cipher: str) -> None:
    with paramiko.Transport((instance.host, instance.port)) as transport:
        transport.get_security_options().ciphers = (cipher,)
        transport.connect(username=instance.user, pkey=machine.private)
        assert transport.remote_cipher == cipher  # type: ignore[attr-defined]
        channel = transport.open_session()
        channel.exec_command("printf ok")
        assert channel.recv(100) == b"ok"


def test_keepalive_is_answered(client) -> None:
    transport = client.get_transport()
    assert transport is not None
    transport.global_request("keepalive@openssh.com", wait=True)  # returns with the answer
    assert transport.is_active()


# ---------------------------------------------------------------- files


def test_sftp_carries_files_both_ways(client, instance, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BLOCK * 8 + b"tail")
    with client.open_sftp() as sftp:
        assert sftp.normalize(".") == instance.workdir
        sftp.put(str(source), "there.part")
        sftp.chmod("there.part", 0o600)
        sftp.posix_rename("there.part", "there")
        assert sftp.stat("there").st_mode & 0o777 == 0o600
        sftp.get("there", str(tmp_path / "back"))
        with sftp.open("there", "rb") as file:  # resuming reads from an offset
            file.seek(len(BLOCK) * 8)
            assert file.read() == b"tail"
        sftp.remove("there")
        with pytest.raises(FileNotFoundError):
            sftp.stat("there")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


# ---------------------------------------------------------------- terminals


def read_until(channel: paramiko.Channel, wanted: bytes) -> bytes:
    channel.settimeout(15)
    text = b""
    while wanted not in text:
        data = channel.recv(4096)
        assert data, text
        text += data
    return text


def test_an_interactive_shell_with_a_terminal(client, instance) -> None:
    channel = client.invoke_shell(term="xterm-256color", width=90, height=33)
    channel.send(b"stty size; tty; echo T=$TERM; pwd; echo s''tart\n")
    text = read_until(channel, b"start\r\n")
    assert b"33 90" in text
    assert b"/dev/pts/" in text
    assert b"T=xterm-256color" in text
    assert str(instance.workdir).encode() in text
    channel.resize_pty(width=120, height=40)
    channel.send(b"stty size; echo re''sized\n")
    assert b"40 120" in read_until(channel, b"resized\r\n")
    channel.send(b"sleep 100\n")
    time.sleep(0.3)
    channel.send(b"\x03")  # Ctrl-C reaches the foreground job and not the shell
    channel.send(b"echo in''terrupted $?\n")
    assert b"interrupted 130" in read_until(channel, b"interrupted 130\r\n")
    channel.send(b"exit 4\n")
    assert channel.recv_exit_status() == 4


def test_a_command_on_a_terminal_shows_its_last_line(client) -> None:
    for _ in range(5):
        channel = client.get_transport().open_session()
        channel.get_pty()
        channel.exec_command("seq 1 3000; echo last; exit 9")
        text = b""
        while data := channel.recv(65536):
            text += data
        assert text.endswith(b"last\r\n")
        assert channel.recv_exit_status() == 9


# ---------------------------------------------------------------- signals and broken connections


def send_signal(channel: paramiko.Channel, name: str) -> None:
    message = paramiko.Message()
    message.add_byte(bytes([98]))  # SSH_MSG_CHANNEL_REQUEST, RFC 4254 section 6.9
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(False)
    message.add_string(name)
    channel.transport._send_user_message(message)  # type: ignore[union-attr]


def test_signals_reach_the_whole_group(client) -> None:
    _, out, _ = client.exec_command("trap 'echo got; exit 3' TERM; echo up; sleep 60 & wait")
    assert out.readline() == "up\n"
    send_signal(out.channel, "TERM")
    assert out.read() == b"got\n"
    assert out.channel.recv_exit_status() == 3


def drop(client: paramiko.SSHClient) -> None:
    """Cut the connection as a killed client does: without a word."""
    transport = client.get_transport()
    assert transport is not None
    transport.sock.close()
    client.close()


def test_what_survives_a_lost_connection_is_what_sshd_lets_survive(
    machine, instance, tmp_path: Path
) -> None:
    with machine.login(instance) as client:
        started = []
        for name, command in {
            "quiet": "echo $$ > {0}; sleep 30 > {0}.out",
            "loud": "echo $$ > {0}; while :; do echo x; sleep 0.05; done",
            "detached": "setsid sh -c 'echo $$ > {0}; sleep 30' > {0}.out 2>&1 < /dev/null &",
        }.items():
            client.exec_command(command.format(tmp_path / name))
            started.append(pid_in(tmp_path / name))
        channel = client.get_transport().open_session()
        channel.get_pty()
        channel.exec_command(f"echo $$ > {tmp_path}/terminal; sleep 30")
        terminal = pid_in(tmp_path / "terminal")
        quiet, loud, detached = started
        drop(client)
        wait_until(lambda: not is_running(loud), 10)
        wait_until(lambda: not is_running(terminal), 10)
        assert is_running(quiet)
        assert is_running(detached)
        for pid in (quiet, detached):
            os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- who may come in


def test_only_the_requests_key_may_log_in(machine, instance) -> None:
    _, stranger = key_pair()
    with paramiko.Transport((instance.host, instance.port)) as transport:
        transport.start_client(timeout=20)
        with pytest.raises(paramiko.AuthenticationException):
            transport.auth_publickey(instance.user, stranger)
    with paramiko.Transport((instance.host, instance.port)) as transport:
        transport.start_client(timeout=20)
        with pytest.raises(paramiko.BadAuthenticationType) as refused:
            transport.auth_password(instance.user, "password")
    assert refused.value.allowed_types == ["publickey"]


def test_no_forwarding(client) -> None:
    transport = client.get_transport()
    with pytest.raises(paramiko.ChannelException):
        transport.open_channel("direct-tcpip", ("127.0.0.1", 22), ("127.0.0.1", 1))
    with pytest.raises(paramiko.SSHException):
        transport.request_port_forward("127.0.0.1", 0)
    assert client.exec_command("echo alive")[1].read() == b"alive\n"


def test_it_listens_on_loopback_with_the_pinned_key(instance) -> None:
    assert instance.host == "127.0.0.1"
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if " 0A " in line
    }
    assert f"0100007F:{instance.port:04X}" in listening  # little-endian 127.0.0.1
    assert f"00000000:{instance.port:04X}" not in listening
    assert seen_host_key(instance) == instance.host_key
