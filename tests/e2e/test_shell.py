"""ParamikoShell against a real OpenSSH server: commands, life and death."""

import random
import socket
import threading
import time
from pathlib import Path

import pytest

from orchestrator.paramiko_shell import PROBE_EVERY_S, PROBE_LIMIT_S, ParamikoShell
from orchestrator.remote import RemoteFailed, ShellError
from tests.support.sshd import Sshd

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]


def test_run_returns_status_and_both_streams(shell: ParamikoShell) -> None:
    end = shell.run("cat; echo err >&2; exit 3", stdin=b"\x00\xffin", timeout_s=20)
    assert (end.rc, end.stdout, end.stderr) == (3, b"\x00\xffin", b"err\n")


def test_large_output_on_both_streams_does_not_deadlock(shell: ParamikoShell) -> None:
    size = 5_000_000  # beyond paramiko's window of 2 MiB
    end = shell.run(
        f"head -c {size} /dev/zero >&2; head -c {size} /dev/zero",
        timeout_s=30,
        max_output_bytes=2 * size,
    )
    assert (len(end.stdout), len(end.stderr)) == (size, size)


def test_input_that_the_command_leaves_unread_is_no_failure(shell: ParamikoShell) -> None:
    assert shell.run("exit 5", stdin=bytes(8_000_000), timeout_s=20).rc == 5


def test_a_signal_is_no_lost_connection(shell: ParamikoShell) -> None:
    assert shell.run("kill -9 $$", timeout_s=20).rc == -1
    assert shell.run("true", timeout_s=20).rc == 0


def test_output_without_end_is_refused(shell: ParamikoShell) -> None:
    with pytest.raises(RemoteFailed) as caught:
        shell.run("cat /dev/zero", timeout_s=20, max_output_bytes=100_000)
    assert caught.value.code == "noisy"


def test_the_deadline_holds_and_the_connection_survives(shell: ParamikoShell) -> None:
    begun = time.monotonic()
    with pytest.raises(ShellError, match="did not end a command within 1 s"):
        shell.run("echo x; sleep 100", timeout_s=1)
    assert time.monotonic() - begun < 60
    assert shell.run("echo on", timeout_s=20).stdout == b"on\n"


def test_many_threads_share_one_connection(shell: ParamikoShell) -> None:
    answers: dict[int, bytes] = {}

    def ask(number: int) -> None:
        answers[number] = shell.run(f"echo {number}", timeout_s=60).stdout

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {number: b"%d\n" % number for number in range(8)}


def test_a_login_script_that_prints_changes_nothing(tmp_path: Path) -> None:
    chatty = 'ForceCommand echo "Welcome to the pod"; echo more; eval "$SSH_ORIGINAL_COMMAND"'
    with Sshd(tmp_path / "sshd", extra=chatty) as server:
        shell = server.shell()
        assert shell.run("echo clean", timeout_s=20).stdout == b"clean\n"
        shell.put_bytes(b"data", str(tmp_path / "file"))
        assert b"".join(shell.read_from(str(tmp_path / "file"), 1, max_bytes=9)) == b"ata"
        shell.get(str(tmp_path / "file"), tmp_path / "copy", max_bytes=10)
        assert (tmp_path / "copy").read_bytes() == b"data"
        shell.close()


def test_a_host_that_only_chats_is_refused_with_its_words(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd", extra='ForceCommand echo "Please use the console"') as server:
        shell = server.shell()
        with pytest.raises(RemoteFailed, match="Please use the console"):
            shell.run("true", timeout_s=20)
        shell.close()


# ---------------------------------------------------------------- life and death


def test_a_silent_host_is_noticed_by_every_blocked_call(server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(bytes(200_000_000))
    (tmp_path / "near").write_bytes(bytes(200_000_000))
    shell = server.shell()
    moving = threading.Barrier(5, timeout=60)
    seen: dict[str, tuple[float, str]] = {}

    def once(done: int, total: int) -> None:
        if not frozen.is_set() and done > 1_000_000:
            moving.wait()
            frozen.wait(60)

    def blocked(name: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except ShellError as error:
            seen[name] = (time.monotonic(), str(error))

    def read() -> None:
        for data in shell.read_from(str(tmp_path / "far"), 0, max_bytes=1 << 40):
            once(1_000_001, len(data))

    def run() -> None:
        moving.wait()
        shell.run("sleep 100", timeout_s=100)

    frozen = threading.Event()
    calls = {
        "put": lambda: shell.put(tmp_path / "near", str(tmp_path / "up"), progress=once),
        "get": lambda: shell.get(
            str(tmp_path / "far"), tmp_path / "down", max_bytes=1 << 40, progress=once
        ),
        "read": read,
        "run": run,
    }
    threads = [threading.Thread(target=blocked, args=call) for call in calls.items()]
    for thread in threads:
        thread.start()
    moving.wait()
    time.sleep(0.5)  # `run` is on its way
    server.freeze()
    begun = time.monotonic()
    frozen.set()
    for thread in threads:
        thread.join(90)
    server.thaw()
    assert set(seen) == set(calls)
    for name, (at, words) in seen.items():
        assert at - begun <= 60, name  # the calls' own limits are 100 s and more
        assert "silent" in words, name
    assert "silent" in shell.lost()
    assert PROBE_EVERY_S + PROBE_LIMIT_S < 10, "the promise, but for a machine that is too busy"


def test_a_cut_is_a_shell_error_at_once(
    server: Sshd, shell: ParamikoShell, capfd: pytest.CaptureFixture[str]
) -> None:
    threading.Timer(0.5, server.cut).start()
    begun = time.monotonic()
    with pytest.raises(ShellError):
        shell.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 30
    with pytest.raises(ShellError):
        shell.run("true", timeout_s=60)
    assert capfd.readouterr() == ("", ""), "paramiko must stay quiet"


def test_close_frees_a_blocked_call(shell: ParamikoShell) -> None:
    threading.Timer(0.3, shell.close).start()
    begun = time.monotonic()
    with pytest.raises(ShellError, match="closed by us"):
        shell.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 30


def test_a_slow_line_is_not_a_dead_one(server: Sshd, tmp_path: Path) -> None:
    """The probe waits behind megabytes of our own data, yet the host lives: 150 kB/s each way."""
    local = tmp_path / "local"
    local.write_bytes(random.Random(1).randbytes(2_400_000))
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=throttle, args=(door, server.port, 150_000), daemon=True).start()
        shell = server.shell(port=door.getsockname()[1])
        begun = time.monotonic()
        shell.put(local, str(tmp_path / "remote"))
        assert time.monotonic() - begun > 10, "too fast to prove anything"
        shell.close()
    assert (tmp_path / "remote").read_bytes() == local.read_bytes()


def throttle(door: socket.socket, port: int, bytes_per_s: int) -> None:
    near, _ = door.accept()
    far = socket.create_connection(("127.0.0.1", port))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(bytes_per_s // 20):
                sink.sendall(data)
                time.sleep(len(data) / bytes_per_s)
        except OSError:
            pass
        finally:
            sink.close()

    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    pump(far, near)
