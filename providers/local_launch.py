"""How a `local` instance comes to be: the checks, its folder, its environment, its guard."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from providers import local_state as state
from providers.base import HostKey, LaunchRequest
from providers.errors import InvalidRequest, Unavailable

GUARD_START_TIMEOUT_S = 20.0  # it detaches in some 0.05 s

# What of the launcher's environment an instance gets. A list, never "all but": secrets have no
# common name. Values that hold a login (http://user:word@proxy) are left out all the same.
PASSED_ON = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR
    LD_LIBRARY_PATH CUDA_HOME CUDA_PATH CUDA_DEVICE_ORDER CUDA_VISIBLE_DEVICES CUDA_CACHE_PATH
    NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NCCL_P2P_DISABLE NCCL_IB_DISABLE
    OMP_NUM_THREADS HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE XDG_CACHE_HOME
    HF_HOME HF_HUB_CACHE HF_ENDPOINT HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HF_DATASETS_OFFLINE
    UV_CACHE_DIR UV_DEFAULT_INDEX UV_INDEX_URL PIP_CACHE_DIR PIP_INDEX_URL PIP_CONFIG_FILE
    """.split()  # noqa: SIM905 - forty quoted lines read worse
)
LOGIN = re.compile(r"://[^/\s]*@")
PUBLIC_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) (\S+)(?: [^\r\n]*)?"
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def checked(request: LaunchRequest, label: re.Pattern[str], now: float) -> str:
    """Return the public key without comment; raises InvalidRequest on what cannot be."""
    verb = f"launch {request.label[:64]!r}"
    if not label.fullmatch(request.label):
        raise InvalidRequest(f"{verb}: a label is 1-128 letters, digits, '.', '_' and '-'")
    if not request.deadline_at > now:  # NaN is not later either
        raise InvalidRequest(f"{verb}: its deadline is not in the future")
    key = PUBLIC_KEY.fullmatch(request.public_key.strip())
    if key is None:
        raise InvalidRequest(f"{verb}: the public key is no line as in an id_ed25519.pub")
    kind, body = key.groups()
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(body, validate=True)
        if raw.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
            return f"{kind} {body}"
    raise InvalidRequest(f"{verb}: the public key's body does not decode to {kind}")


def new_host_key() -> tuple[bytes, HostKey]:
    """Return a fresh private key (OpenSSH's file format) and its public half."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    kind, body = public.decode("ascii").split()
    return private, HostKey(kind, body)


@contextlib.contextmanager
def one_at_a_time(instances: str) -> Iterator[None]:
    """Hold the lock under which GPUs are given out."""
    import fcntl

    fd = os.open(os.path.join(instances, ".allocation"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def place(folder: str, facts: dict[str, Any], files: Mapping[str, bytes]) -> int:
    """Make the folder appear whole and locked; return the lock. InvalidRequest if it exists."""
    staged = tempfile.mkdtemp(prefix=state.STAGED, dir=os.path.dirname(folder))
    lock = state.take_lock(staged)
    try:
        os.mkdir(os.path.join(staged, state.WORK), 0o700)
        for name, content in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(os.path.join(staged, name), flags, 0o600), "wb") as file:
                file.write(content)
        state.write_json(os.path.join(staged, state.LAUNCH), facts)
        os.rename(staged, folder)
    except OSError as error:
        os.close(lock)
        shutil.rmtree(staged, ignore_errors=True)
        if os.path.isdir(folder):
            label = os.path.basename(folder)
            raise InvalidRequest(f"launch {label}: this label was used before") from error
        raise
    return lock


def environment(
    launcher: Mapping[str, str], asked: Mapping[str, str], folder: str, gpus: Sequence[str]
) -> dict[str, str]:
    """Return the instance's whole environment: what is passed on, what is asked for, its marks."""
    passed = {
        name: value
        for name, value in launcher.items()
        if (name in PASSED_ON or name.startswith("LC_")) and not LOGIN.search(value)
    }
    passed.setdefault("PATH", os.defpath)
    wanted = {k: v for k, v in asked.items() if NAME.fullmatch(k) and "\0" not in v}
    marks = {state.MARK_VARIABLE: state.mark(folder), state.FOLDER_VARIABLE: folder}
    if gpus:
        marks["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return passed | wanted | marks


def start_guard(folder: str, lock: int, variables: Mapping[str, str]) -> None:
    """Start the detached guard, which holds the lock from here on. Raises Unavailable."""
    # The packages lie where this file does, installed or not; the server takes the variable out
    # again before any program of the instance could see it.
    source = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-S", "-P", "-m", "providers.local_guard", folder, str(lock)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    label = os.path.basename(folder)
    try:
        log = os.open(os.path.join(folder, state.LOG), flags, 0o600)
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**variables, "PYTHONPATH": source},
                cwd="/",
                pass_fds=(lock,),
                start_new_session=True,  # a Ctrl-C at the launcher's terminal is not for the guard
                timeout=GUARD_START_TIMEOUT_S,
                check=True,
            )
        finally:
            os.close(log)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"launch {label}: its guard did not start: {error}") from error
