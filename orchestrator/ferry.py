"""The far end of a transfer. Runs on the instance, from a pipe: Python 3.8, standard library only.

Never imported by gpujob: `orchestrator/transfer.py` sends this source over SSH, compressed, and
then one request after another. Standard input: a JSON line, then what the request asks for.
Standard output: JSON lines (`{"busy": 1}` while a long hash runs), then raw bytes for `send` and
`tail`. A failure is `{"error", "code"}` and the end, with exit status 3; a connection that went
away is the end with status 4.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK_BYTES = 1 << 20
BEAT_S = 5  # between two signs of life; far below the near side's limit on silence
SHOWN_BYTES = 1 << 16  # of a file that a survey quotes
ANSWER_CHARS = 1 << 20  # of a spawned program's output
STDIN = sys.stdin.buffer
STDOUT = sys.stdout.buffer


class Failed(Exception):  # noqa: N818
    """A definite failure, with the one-word code that the near side passes on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def say(document: dict[str, Any]) -> None:
    """Answer one line."""
    STDOUT.write(json.dumps(document).encode() + b"\n")
    STDOUT.flush()


def read_exactly(size: int) -> bytes:
    """Return that many bytes; EOFError if the connection went away (what was written stays)."""
    data = STDIN.read(size)
    if len(data) != size:
        raise EOFError
    return data


def ordered() -> dict[str, Any]:
    """Return the near side's next line; EOFError if the connection went away."""
    line = STDIN.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)  # type: ignore[no-any-return]


def opened(path: str) -> tuple[int, int]:
    """Return a descriptor of a regular file and its size; a symlink or anything else is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Failed("absent", "no such file: " + path) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Failed("irregular", "a symlink, refused: " + path) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Failed("irregular", "not a regular file, refused: " + path)
    return descriptor, status.st_size


def digest(descriptor: int, size: int) -> hashlib._Hash:
    """Return the hasher of the first `size` bytes, showing signs of life meanwhile."""
    hasher = hashlib.sha256()
    beat = time.monotonic()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while size > 0:
        data = os.read(descriptor, min(CHUNK_BYTES, size))
        if not data:
            raise Failed("changed", "the file became shorter while it was read")
        hasher.update(data)
        size -= len(data)
        if time.monotonic() - beat > BEAT_S:
            beat = time.monotonic()
            say({"busy": 1})
    return hasher


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def settle(descriptor: int, part: str, path: str, mode: int) -> None:
    """Make the finished `part` durable under its real name."""
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)
    os.rename(part, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def make_folder(path: str) -> None:
    """Make a folder and its parents, for us alone."""
    if path:
        os.makedirs(path, mode=0o700, exist_ok=True)


def hash_of(path: str, size: int | None) -> str | None:
    """Return a file's sha256; None where there is no regular file of that size (None: any)."""
    try:
        descriptor, found = opened(path)
    except Failed:
        return None
    try:
        return digest(descriptor, found).hexdigest() if size in (None, found) else None
    finally:
        os.close(descriptor)


def survey(request: dict[str, Any]) -> None:
    """Make the folder; tell what the machine has and which of the files are there already."""
    folder = os.path.abspath(os.path.expanduser(request["folder"]))
    made = not os.path.isdir(folder)
    make_folder(folder)
    os.chmod(folder, 0o700)
    shown = {}
    for name in request["show"]:
        try:
            descriptor, size = opened(os.path.join(folder, name))
        except Failed:
            continue
        shown[name] = os.read(descriptor, min(size, SHOWN_BYTES)).decode("utf-8", "replace")
        os.close(descriptor)
    hashes = {}
    for path, size in request["files"].items():
        sha256 = hash_of(os.path.join(folder, path), size)
        if sha256 is not None:
            hashes[path] = sha256
    say(
        {
            "folder": folder,
            "made": made,
            "python": list(sys.version_info[:3]),
            "executable": sys.executable,
            "free_bytes": shutil.disk_usage(folder).free,
            "gpus": gpus(),
            "hashes": hashes,
            "shown": shown,
        }
    )


def ping(_: dict[str, Any]) -> None:
    """Answer."""
    say({"done": True})


def gpus() -> int:
    """Return how many NVIDIA GPUs the trainer would see, without asking the driver (0.5 s)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(1 for item in visible.split(",") if item.strip() not in ("", "-1"))
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return int(os.path.exists("/dev/dxg") and shutil.which("nvidia-smi") is not None)


def call(request: dict[str, Any]) -> None:
    """Run `main(argv)` of a Python file in here; it prints its answer, one JSON line."""
    path = os.path.expanduser(request["path"])
    if path not in LOADED:
        descriptor, size = opened(path)
        source = os.read(descriptor, size)
        os.close(descriptor)
        LOADED[path] = {"__name__": "gpujob_loaded", "__file__": path}
        exec(compile(source, path, "exec"), LOADED[path])  # noqa: S102 - ours, and its owner's
    LOADED[path]["main"](request["argv"])


def spawn(request: dict[str, Any]) -> None:
    """Run a Python file in a process and session of its own, to its end or its time limit."""
    import subprocess

    data: bytes | None = read_exactly(request["stdin"])
    process = subprocess.Popen(
        [sys.executable, "-I", os.path.expanduser(request["path"]), *request["argv"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + request["timeout_s"]
    while True:
        try:
            out, err = process.communicate(data, timeout=BEAT_S)
            break
        except subprocess.TimeoutExpired:
            data = None
            say({"busy": 1})
            if time.monotonic() > until:
                process.kill()
                raise Failed("late", f"it ran longer than {request['timeout_s']:g} s") from None
    texts = {"stdout": out, "stderr": err}
    answer = {name: text.decode("utf-8", "replace")[:ANSWER_CHARS] for name, text in texts.items()}
    say(dict(answer, rc=process.returncode))


def write(request: dict[str, Any]) -> None:
    """Write small files, sent as one compressed block, each atomically."""
    block = zlib.decompress(read_exactly(request["packed"]))
    folder = os.path.expanduser(request["folder"])
    for path, size, sha256, mode in request["files"]:
        data, block = block[:size], block[size:]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Failed("changed", "damaged on the way: " + path)
        place = os.path.join(folder, path)
        make_folder(os.path.dirname(place))
        part = place + ".part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(part, flags, 0o600)
        write_all(descriptor, data)
        settle(descriptor, part, place, mode)
        os.close(descriptor)
    say({"done": True})


def lock(descriptor: int) -> None:
    """Wait for an older connection's ferry to let go of the partial file."""
    import fcntl

    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.5)
            say({"busy": 1})
        else:
            return
    raise Failed("busy", "another transfer holds the partial file")


def receive(request: dict[str, Any]) -> None:
    """Take one file: tell what is here, be told where to go on, append, check, rename."""
    path, total = os.path.expanduser(request["path"]), request["bytes"]
    make_folder(os.path.dirname(path))
    whole = None
    if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) == total:
        descriptor, size = opened(path)
        whole = digest(descriptor, size).hexdigest()
        os.close(descriptor)
    part = path + ".part"
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    lock(descriptor)
    have = min(os.fstat(descriptor).st_size, total)
    hasher = digest(descriptor, have)
    say({"whole": whole, "have": have, "sha256": hasher.hexdigest()})
    order = ordered()
    if order["from"] < 0:  # `path` is already what the near side has
        os.unlink(part)
        os.close(descriptor)
        say({"done": True})
        return
    if order["from"] != have:
        have, hasher = 0, hashlib.sha256()
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    if total - have > free:
        raise Failed("no_space", f"needs {total - have:,} bytes, the disk has {free:,} free")
    os.ftruncate(descriptor, have)
    os.lseek(descriptor, have, os.SEEK_SET)
    pour(descriptor, hasher, total - have, packed=order["packed"])
    if ordered()["sha256"] != hasher.hexdigest():
        os.ftruncate(descriptor, 0)
        raise Failed("changed", "what arrived has another sha256: " + path)
    settle(descriptor, part, path, request["mode"])
    os.close(descriptor)
    say({"done": True})


def pour(descriptor: int, hasher: hashlib._Hash, size: int, *, packed: bool) -> None:
    """Append length-prefixed blocks until the empty one; a zlib stream runs through all of them."""
    inflate = zlib.decompressobj()
    while True:
        (length,) = struct.unpack(">I", read_exactly(4))
        if not length:
            return
        data = read_exactly(length)
        if packed:
            data = inflate.decompress(data)
        size -= len(data)
        if size < 0:
            raise Failed("changed", "more bytes than announced")
        hasher.update(data)
        write_all(descriptor, data)


def send(request: dict[str, Any]) -> None:
    """Give one file from where the near side wants it, never more than it said it has."""
    descriptor, size = opened(os.path.expanduser(request["path"]))
    if size > request["max_bytes"]:
        raise Failed("too_big", f"{size:,} bytes, at most {request['max_bytes']:,} wanted")
    have = request["have"] if request["have"] <= size else 0
    say({"bytes": size, "have": have, "sha256": digest(descriptor, have).hexdigest()})
    start = ordered()["from"]
    pass_on(descriptor, start, size - start)
    os.close(descriptor)


def tail(request: dict[str, Any]) -> None:
    """Give what a growing file has from an offset on, as far as it goes now."""
    path, offset = os.path.expanduser(request["path"]), request["offset"]
    try:
        descriptor, size = opened(path)
    except Failed as failure:
        if failure.code != "absent":
            raise
        descriptor, size = -1, 0
    if size < offset:
        raise Failed("changed", f"{path} has {size:,} bytes, but {offset:,} were read before")
    left = min(size - offset, request["max_bytes"])
    say({"bytes": left})
    if descriptor >= 0:
        pass_on(descriptor, offset, left)
        os.close(descriptor)


def pass_on(descriptor: int, start: int, left: int) -> None:
    """Write that many bytes of a file to standard output; a file that shrank ends us."""
    os.lseek(descriptor, start, os.SEEK_SET)
    while left > 0:
        data = os.read(descriptor, min(CHUNK_BYTES, left))
        if not data:
            sys.exit(3)  # the near side counts, and is not fooled
        STDOUT.write(data)
        left -= len(data)
    STDOUT.flush()


REQUESTS = {
    "ping": ping,
    "survey": survey,
    "write": write,
    "receive": receive,
    "send": send,
    "tail": tail,
    "call": call,
    "spawn": spawn,
}
LOADED: dict[str, dict[str, Any]] = {}


def main() -> None:
    """Serve requests until the connection goes away."""
    request: dict[str, Any] = {}
    try:
        while True:
            request = ordered()
            REQUESTS[request["do"]](request)
    except Failed as failure:
        say({"error": str(failure), "code": failure.code})
        sys.exit(3)
    except EOFError:
        sys.exit(4)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"{error.strerror}: {error.filename or request.get('path', '')}"
        say({"error": message, "code": "no_space" if full else "os"})
        sys.exit(3)


main()
