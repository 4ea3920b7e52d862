"""A pod's container without a container engine: own root, own processes, own network, real PID 1.

The root is an overlay whose lower layer is this machine's own `/`, with every top folder hidden
that is not the system's. The processes live in a PID and a network namespace: killing PID 1 kills
them all, port 22 is the pod's own, and nothing of the network is reached but what is handed in.
All of it hangs on the simulator's mount namespace and on "die with your parent": when the simulator
dies, by whatever signal, no process, mount or file of a pod is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.cloud import wires

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REMOUNT, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20, 0x4000, 0x40000, 2
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x1 | 0x40
SYSTEM = {
    "bin",
    "boot",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "opt",
    "sbin",
    "usr",
    "var",
    "dev",
    "proc",
    "sys",
}
HIDDEN = ("etc/ssh", "var/tmp", "var/lib/docker", "etc/profile.d")
EMPTY = ("run", "root", "tmp", "workspace", "home", "mnt", *HIDDEN)
NEED = "pods are real: they need Linux and root with CAP_SYS_ADMIN (namespaces and overlay mounts)"
# Says its own PID as the host sees it once all stands, waits for "go", and becomes the container.
INIT = """\
set -e
folder=$1 volume=$2 mounts=$3
shift 3
read -r pid rest < /proc/self/stat
root=$folder/root
mount -t overlay pod -o "lowerdir=/,upperdir=$folder/disk/up,workdir=$folder/disk/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs shm "$root/dev/shm"
if [ -n "$volume" ]; then mkdir -p "$root$volume"; mount --bind "$folder/volume" "$root$volume"; fi
printf %s "$mounts" | while IFS='|' read -r source target; do
  mkdir -p "$root$target"
  mount --bind "$source" "$root$target"
  mount -o remount,bind,ro "$root$target"
done
echo "ready $pid"
read -r go
exec chroot "$root" "$@" < /dev/null
"""


class NoPods(RuntimeError):  # noqa: N818 - an answer to the user
    """This machine cannot hold a pod; str() says what is missing."""


def call(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def own_mounts() -> None:
    """Give this process mounts of its own, which end with it. Call before any thread starts."""
    try:
        call(LIBC.unshare(CLONE_NEWNS), "unshare")
        call(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount private")
    except OSError as error:
        raise NoPods(f"{NEED}: {error}") from error


def mount_tmpfs(folder: Path, size: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode=755".encode()
    call(LIBC.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, options), f"tmpfs {folder}")


def unmount(folder: Path) -> None:
    LIBC.umount2(str(folder).encode(), MNT_DETACH)


class Jail:
    """One pod's container. `start` and `stop` any number of times; `remove` at last."""

    def __init__(
        self, folder: Path, disk: str, volume: tuple[str, str] | None, mounts: Iterable[str]
    ) -> None:
        self.folder = folder
        self.pid: int | None = None
        self._disk = disk
        self._volume = volume
        pairs = (m.partition(":") for m in mounts)
        self._mounts = "".join(f"{src}|{dst or src}\n" for src, _, dst in pairs)
        self._ended = threading.Event()
        (folder / "root").mkdir(parents=True)
        if volume:
            mount_tmpfs(folder / "volume", volume[0])

    def wipe(self) -> None:
        """Make the container disk anew, as it comes from the image."""
        disk = self.folder / "disk"
        if disk.is_dir():
            unmount(disk)
        mount_tmpfs(disk, self._disk)
        for part in ("up", "work"):
            (disk / part).mkdir()
        up = disk / "up"
        for top in Path("/").iterdir():
            if top.name not in SYSTEM and top.name not in EMPTY and not top.is_symlink():
                os.mknod(up / top.name, stat.S_IFCHR, os.makedev(0, 0))  # overlayfs: "not here"
        for name in EMPTY:
            place = up / name
            place.mkdir(parents=True, exist_ok=True)
            os.setxattr(place, "trusted.overlay.opaque", b"y")
        (up / "run" / "sshd").mkdir()
        for name in ("tmp", "var/tmp"):
            (up / name).chmod(0o1777)
        (up / "root").chmod(0o700)

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the image; once the container runs, into it."""
        base = Path(f"/proc/{self.pid}/root") if self.pid else self.folder / "disk" / "up"
        place = base / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)

    def start(
        self,
        argv: list[str],
        env: Mapping[str, str],
        *,
        on_ready: Callable[[], None],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Start the container's first process; `on_ready` before it runs. On the clock's thread."""
        volume = self._volume[1] if self._volume else ""
        process = subprocess.Popen(
            ["/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/unshare", "--mount", "--pid",
             "--net", "--fork", "--kill-child=KILL", "--", "/bin/sh", "-c", INIT, "pod",
             str(self.folder), volume, self._mounts, *argv],
            env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        first = process.stdout.readline().decode("utf-8", "replace").strip()
        if not first.startswith("ready "):
            rest = process.stdout.read().decode("utf-8", "replace")
            process.wait()
            raise NoPods(f"{NEED}: {first} {rest}".strip())
        self._ended = threading.Event()
        self.pid = int(first.split()[1])
        self.within(lighten)
        on_ready()
        process.stdin.write(b"go\n")
        process.stdin.close()
        threading.Thread(
            target=self._read, args=(process, self._ended, on_line, on_exit), daemon=True
        ).start()

    def _read(
        self,
        process: subprocess.Popen[bytes],
        ended: threading.Event,
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            on_line(line.decode("utf-8", "replace").rstrip("\n"))
        process.stdout.close()
        code = process.wait()
        if self._ended is ended:
            self.pid = None  # the number may soon be another's
        ended.set()
        on_exit(code)

    def send(self, number: int) -> None:
        """Send a signal to PID 1 from outside, as a container engine does."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self) -> None:
        """Kill every process of the container and wait for it."""
        if self.pid is None:
            return
        self.send(signal.SIGKILL)
        self._ended.wait(20)
        self.pid = None

    def remove(self) -> None:
        self.stop()
        for name in ("disk", "volume"):
            if (self.folder / name).is_dir():
                unmount(self.folder / name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def fill(self) -> None:
        """Leave no free byte on the container disk."""
        disk = self.folder / "disk"
        usage = os.statvfs(disk)
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        call(LIBC.mount(b"", str(disk).encode(), b"", MS_REMOUNT, f"size={used}".encode()), "full")

    # ---------------------------------------------------------------- network
    def within(self, act: Callable[[], Any]) -> Any:
        """Return what `act` returns, called inside the pod's network."""
        found: list[Any] = []
        failed: list[BaseException] = []
        pid = self.pid

        def enter() -> None:
            try:
                space = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
                try:
                    call(LIBC.setns(space, CLONE_NEWNET), "setns")
                finally:
                    os.close(space)
                found.append(act())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port inside; raises OSError."""
        if self.pid is None:
            raise ConnectionRefusedError(port)
        made = self.within(lambda: socket.create_connection((wires.LOOPBACK, port), timeout=10))
        assert isinstance(made, socket.socket)
        made.settimeout(None)
        return made

    def listener(self, port: int) -> socket.socket:
        """Return a socket bound to a port inside."""
        made = self.within(lambda: wires.bound(port))
        assert isinstance(made, socket.socket)
        return made


def lighten() -> None:
    """Bring the loopback device of this network up."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP_RUNNING, b""))
