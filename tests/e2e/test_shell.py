"""ParamikoShell against a real OpenSSH server."""

import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import ssh_connect
from orchestrator.clock import SystemClock
from orchestrator.host_pin import connect_pinned
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import (
    AuthRefused,
    HostKeyMismatch,
    HostKeyUnknown,
    Progress,
    RemoteFailed,
    ShellError,
)
from orchestrator.ssh_keys import job_key
from providers.base import HostKey
from tests.support.sshd import SSHD, Sshd, new_host_key

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]
if not Path(SSHD).exists():
    pytest.skip("needs the Debian package openssh-server", allow_module_level=True)

AWKWARD = "a 'quoted' \"name\"\n$(touch pwned) `id` \\ é;&|*"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def shell(server: Sshd) -> Iterator[ParamikoShell]:
    shell = server.shell()
    yield shell
    shell.close()


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def recorder(steps: list[int]) -> Progress:
    return lambda done, _: steps.append(done)


# ---------------------------------------------------------------- commands


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
        shell.run("echo x; sleep 30", timeout_s=1)
    assert time.monotonic() - begun < 4
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


# ---------------------------------------------------------------- files up


def test_awkward_names_pass_through(shell: ParamikoShell, tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    local = tmp_path / "local"
    local.write_bytes(b"content")
    for remote in (folder / "sub" / AWKWARD, folder / "-n", folder / "~"):
        shell.put(local, str(remote))
        assert remote.read_bytes() == b"content"
        assert b"".join(shell.read_from(str(remote), 3, max_bytes=99)) == b"tent"
        shell.get(str(remote), tmp_path / "back", max_bytes=7)
        assert (tmp_path / "back").read_bytes() == b"content"
    shell.put_bytes(b"small", str(folder / "small"), mode=0o640)
    assert (folder / "small").stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_put_is_exact(shell: ParamikoShell, tmp_path: Path, size: int, compress: bool) -> None:
    local = tmp_path / "local"
    local.write_bytes(noise(size))
    steps: list[tuple[int, int]] = []
    sha256 = shell.put(
        local,
        str(tmp_path / "remote"),
        compress=compress,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert (tmp_path / "remote").read_bytes() == local.read_bytes()
    assert sha256 == hashlib.sha256(local.read_bytes()).hexdigest()
    assert not (tmp_path / "remote.part").exists()
    assert steps == sorted(steps)
    assert not size or steps[-1] == (size, size)


def test_put_continues_a_prefix_and_drops_anything_else(
    shell: ParamikoShell, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(data := noise(2_000_000))
    for left, first_step in ((data[:1_500_000], 1_500_000), (b"other" * 1000, 0)):
        remote = tmp_path / f"remote-{first_step}"
        Path(f"{remote}.part").write_bytes(left)
        steps: list[int] = []
        shell.put(local, str(remote), progress=recorder(steps))
        assert remote.read_bytes() == data
        assert steps[0] - first_step <= 1 << 18
        assert steps[0] > first_step


def test_put_skips_what_is_there(shell: ParamikoShell, tmp_path: Path) -> None:
    local, remote = tmp_path / "local", tmp_path / "remote"
    local.write_bytes(b"the same")
    shell.put(local, str(remote))
    before = remote.stat().st_ino
    shell.put(local, str(remote))
    assert remote.stat().st_ino == before
    local.write_bytes(b"changed!")  # the same size
    shell.put(local, str(remote))
    assert remote.read_bytes() == b"changed!"


def test_put_survives_cuts(server: Sshd, tmp_path: Path) -> None:
    local, remote = tmp_path / "local", tmp_path / "remote"
    local.write_bytes(noise(60_000_000))
    starts: list[int] = []
    for _ in range(20):
        shell = server.shell()
        first = len(starts)

        def step(done: int, _: int, first: int = first) -> None:
            if len(starts) == first:
                starts.append(done)
            if done - starts[-1] > 15_000_000:
                server.cut()

        try:
            shell.put(local, str(remote), progress=step, compress=False)
        except ShellError:
            assert not remote.exists()
            continue
        finally:
            shell.close()
        break
    assert remote.read_bytes() == local.read_bytes()
    assert len(starts) >= 3
    assert starts[1] > 1_000_000, "it began anew instead of going on"


def test_put_dir_sends_all_files(shell: ParamikoShell, tmp_path: Path) -> None:
    local = tmp_path / "model"
    (local / "sub").mkdir(parents=True)
    (local / "weights").write_bytes(noise(1000))
    (local / "sub" / "config").write_bytes(b"{}")
    (local / "link").symlink_to(local / "weights")  # as a hub cache has them
    seen: list[tuple[int, int]] = []
    shell.put_dir(local, str(tmp_path / "far"), progress=lambda *step: seen.append(step))
    assert (tmp_path / "far" / "link").read_bytes() == noise(1000)
    assert not (tmp_path / "far" / "link").is_symlink()
    assert (tmp_path / "far" / "sub" / "config").read_bytes() == b"{}"
    assert seen[-1] == (2002, 2002)


def test_put_without_room_says_so(shell: ParamikoShell, tmp_path: Path) -> None:
    local = tmp_path / "local"
    with local.open("wb") as file:
        file.truncate(1 << 43)  # sparse: larger than any disk
    with pytest.raises(RemoteFailed) as caught:
        shell.put(local, str(tmp_path / "remote"), compress=False)
    assert caught.value.code == "no_space"


# ---------------------------------------------------------------- files down


def test_get_is_bounded_before_a_byte_moves(shell: ParamikoShell, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(RemoteFailed) as caught:
        shell.get(str(tmp_path / "huge"), tmp_path / "local", max_bytes=1 << 20)
    assert caught.value.code == "too_big"
    assert (tmp_path / "local.part").stat().st_size == 0
    assert not (tmp_path / "local").exists()


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder", "absent"])
def test_get_takes_regular_files_only(shell: ParamikoShell, tmp_path: Path, kind: str) -> None:
    remote = tmp_path / "remote"
    {
        "symlink": lambda: remote.symlink_to("/etc/passwd"),
        "fifo": lambda: os.mkfifo(remote),
        "folder": remote.mkdir,
        "absent": lambda: None,
    }[kind]()
    with pytest.raises(RemoteFailed) as caught:
        shell.get(str(remote), tmp_path / "local", max_bytes=1 << 20)
    assert caught.value.code == ("absent" if kind == "absent" else "irregular")


def test_get_continues_a_prefix_and_drops_anything_else(
    shell: ParamikoShell, tmp_path: Path
) -> None:
    data = noise(2_000_000)
    remote = tmp_path / "remote"
    remote.write_bytes(data)
    for left, first_step in ((data[:1_500_000], 1_500_000), (b"other" * 1000, 0), (data * 2, 0)):
        (tmp_path / "local.part").write_bytes(left)
        steps: list[int] = []
        sha256 = shell.get(
            str(remote),
            tmp_path / "local",
            max_bytes=len(data),
            progress=recorder(steps),
        )
        assert (tmp_path / "local").read_bytes() == data
        assert sha256 == hashlib.sha256(data).hexdigest()
        assert first_step < steps[0]


def test_get_survives_cuts(server: Sshd, tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    remote.write_bytes(noise(60_000_000))
    starts: list[int] = []
    for _ in range(20):
        shell = server.shell()
        first = len(starts)

        def step(done: int, _: int, first: int = first) -> None:
            if len(starts) == first:
                starts.append(done)
            if done - starts[-1] > 15_000_000:
                server.cut()

        try:
            shell.get(str(remote), local, max_bytes=1 << 30, progress=step)
        except ShellError:
            continue
        finally:
            shell.close()
        break
    assert local.read_bytes() == remote.read_bytes()
    assert len(starts) >= 3
    assert starts[1] > 1_000_000, "it began anew instead of going on"


def test_a_file_swapped_for_a_symlink_never_leaks(shell: ParamikoShell, tmp_path: Path) -> None:
    secret, good = tmp_path / "secret", tmp_path / "good"
    secret.write_bytes(b"S" * 1000)
    good.write_bytes(b"G" * 1000)
    remote, stop = tmp_path / "remote", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for make in (lambda at: at.symlink_to(secret), lambda at: os.link(good, at)):
                make(tmp_path / "next")
                (tmp_path / "next").rename(remote)
                (tmp_path / "next").unlink(missing_ok=True)  # rename of two links is a no-op
                time.sleep(0.001)

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes: set[bytes | str] = set()
    try:
        for _ in range(25):
            try:
                shell.get(str(remote), tmp_path / "local", max_bytes=5000)
                outcomes.add((tmp_path / "local").read_bytes()[:1])
            except RemoteFailed as refused:
                outcomes.add(refused.code)
    finally:
        stop.set()
        thread.join()
    assert b"S" not in outcomes
    assert outcomes <= {b"G", "irregular", "absent"}


def test_read_from_gives_what_there_is(shell: ParamikoShell, tmp_path: Path) -> None:
    remote = tmp_path / "log"
    assert list(shell.read_from(str(remote), 0, max_bytes=100)) == []
    remote.write_bytes(data := noise(3_000_000))
    for offset, limit in ((0, 1 << 30), (5, 100), (2_999_999, 100), (3_000_000, 100), (7, 1)):
        got = b"".join(shell.read_from(str(remote), offset, max_bytes=limit))
        assert got == data[offset : offset + limit]
    remote.write_bytes(b"\n")  # a body that looks like the end of the header
    assert b"".join(shell.read_from(str(remote), 0, max_bytes=9)) == b"\n"


@pytest.mark.parametrize("offset", [1, 10**15])
def test_a_log_that_became_shorter_is_never_silent(
    shell: ParamikoShell, tmp_path: Path, offset: int
) -> None:
    for make in (lambda _: None, Path.touch):
        make(tmp_path / "log")
        with pytest.raises(RemoteFailed, match="were read before") as caught:
            list(shell.read_from(str(tmp_path / "log"), offset, max_bytes=9))
        assert caught.value.code == "changed"


def test_a_log_that_became_a_symlink_is_refused(shell: ParamikoShell, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/etc/passwd")
    with pytest.raises(RemoteFailed) as caught:
        list(shell.read_from(str(tmp_path / "log"), 0, max_bytes=9))
    assert caught.value.code == "irregular"


# ---------------------------------------------------------------- who is there


def test_another_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    wrong = new_host_key(tmp_path / "other")
    with pytest.raises(HostKeyMismatch, match="SHA256:") as caught:
        server.shell(host_key=wrong)
    assert not isinstance(caught.value, HostKeyUnknown)


def test_a_host_key_of_another_type_is_refused(server: Sshd, tmp_path: Path) -> None:
    with pytest.raises(HostKeyMismatch, match="ecdsa"):
        server.shell(host_key=new_host_key(tmp_path / "other", "ecdsa"))


def test_rsa_and_ecdsa_hosts_are_pinned_too(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd") as server:
        for kind in ("rsa", "ecdsa"):
            server.stop()
            server.host_key = new_host_key(tmp_path / "sshd" / "hostkey", kind)
            server.start()
            shell = server.shell()
            assert shell.run("echo in", timeout_s=20).stdout == b"in\n"
            shell.close()


def test_an_unknown_host_needs_leave(server: Sshd) -> None:
    with pytest.raises(HostKeyUnknown, match="SHA256:"):
        server.shell(host_key=None)
    told: list[HostKey] = []
    shell = ParamikoShell.connect(server.target(host_key=None), on_first_use=told.append)
    assert told == [server.host_key]
    shell.close()


def test_first_use_never_overrides_a_known_key(server: Sshd, tmp_path: Path) -> None:
    told: list[HostKey] = []
    wrong = new_host_key(tmp_path / "other")
    with pytest.raises(HostKeyMismatch):
        ParamikoShell.connect(server.target(host_key=wrong), on_first_use=told.append)
    assert told == []


def test_a_first_use_is_kept_and_held_to(server: Sshd, tmp_path: Path) -> None:
    pin, told = tmp_path / "pin", list[str]()
    unknown = server.target(host_key=None)
    for _ in range(2):
        connect_pinned(unknown, pin, clock=SystemClock(), tell=told.append).close()
    assert len(told) == 1
    assert "first use" in told[0]
    assert pin.stat().st_mode & 0o777 == 0o600
    other = new_host_key(tmp_path / "other")
    pin.write_text(f"{other.type} {other.base64}\n")
    with pytest.raises(HostKeyMismatch):
        connect_pinned(unknown, pin, clock=SystemClock(), tell=told.append)
    connect_pinned(server.target(), pin, clock=SystemClock(), tell=told.append).close()


def test_a_refused_key_is_said_so(server: Sshd, tmp_path: Path) -> None:
    stranger = job_key(tmp_path, "beef02")
    with pytest.raises(AuthRefused, match="user root"):
        server.shell(key_file=stranger.file)


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sshd = Sshd.__new__(Sshd)
    sshd.port, sshd.host_key, sshd.key = port, None, job_key(Path("/tmp"), "x")  # type: ignore[assignment]
    with pytest.raises(ShellError, match="refused"):
        sshd.shell()


def test_a_port_that_never_speaks_is_given_up(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connect, "HANDSHAKE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begun = time.monotonic()
        with pytest.raises(ShellError):
            server.shell(port=mute.getsockname()[1])
        assert time.monotonic() - begun < 5


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
        thread.join(30)
    server.thaw()
    assert set(seen) == set(calls)
    for name, (at, words) in seen.items():
        assert at - begun <= 10, name
        assert "silent" in words, name
    assert "silent" in shell.lost()


def test_a_cut_is_a_shell_error_at_once(
    server: Sshd, shell: ParamikoShell, capfd: pytest.CaptureFixture[str]
) -> None:
    threading.Timer(0.5, server.cut).start()
    begun = time.monotonic()
    with pytest.raises(ShellError):
        shell.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 5
    with pytest.raises(ShellError):
        shell.run("true", timeout_s=60)
    assert capfd.readouterr() == ("", ""), "paramiko must stay quiet"


def test_close_frees_a_blocked_call(shell: ParamikoShell) -> None:
    threading.Timer(0.3, shell.close).start()
    begun = time.monotonic()
    with pytest.raises(ShellError, match="closed by us"):
        shell.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 3


def test_a_slow_line_is_not_a_dead_one(server: Sshd, tmp_path: Path) -> None:
    """The probe waits behind megabytes of our own data, yet the host lives: 150 kB/s each way."""
    local = tmp_path / "local"
    local.write_bytes(noise(2_400_000))
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
