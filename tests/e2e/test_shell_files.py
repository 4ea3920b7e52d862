"""Files through ParamikoShell, up and down, with a real OpenSSH server."""

import hashlib
import os
import random
import threading
import time
from pathlib import Path

import pytest

from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import Progress, RemoteFailed, ShellError
from tests.support.sshd import Sshd

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]

AWKWARD = "a 'quoted' \"name\"\n$(touch pwned) `id` \\ é;&|*"


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def recorder(steps: list[int]) -> Progress:
    return lambda done, _: steps.append(done)


# ---------------------------------------------------------------- up


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


# ---------------------------------------------------------------- down


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
