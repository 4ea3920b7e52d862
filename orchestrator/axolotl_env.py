"""Axolotl's environment on an instance, as the orchestrator sees it: ask, upload locks, ask again.

Nothing else of gpujob is installed there. An environment that the user named
(GPUJOB_AXOLOTL_ENV) or that the image brings is used as it is; else one is built from the hashed
locks, once, and reused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.agent.bundle import ENVIRONMENT_FILE, environment_source
from orchestrator.remote import Parcel, Shell
from orchestrator.site import SiteRefused
from orchestrator.states import Reason

AXOLOTL_VERSION = "0.21.0"
LOCKS = ("axolotl.txt", "build.txt", "torch.txt", "torch-cpu.txt", "uv.txt")
# Measured on the CPU variant (docs/adr/0006-axolotls-environment.md); said before a build begins.
DOWNLOAD_BYTES = {"cpu": 800_000_000, "cuda": 3_500_000_000}
DISK_BYTES = {"cpu": 2_900_000_000, "cuda": 8_500_000_000}
ANSWER_TIMEOUT_S = 240.0  # asking an image's Python for its Axolotl may read from a cold disk
# What pip and uv need to know of the user's network; nothing else of the user's environment goes.
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")  # lower case counts too

# cause, as the builder names it -> what to do about it
REMEDIES: dict[str, str] = {
    "bad_given": "point GPUJOB_AXOLOTL_ENV at a virtual environment that has bin/axolotl",
    "bad_hash": "an index serves another file than the one locked: check PIP_* and the proxy",
    "bad_spec": "this is a fault of gpujob: please report it",
    "broken": "delete the folder named in the log and submit again",
    "install_failed": "read build.log beside the environment; then submit again",
    "no_disk": "free some disk, or set GPUJOB_HOME to a larger one",
    "no_network": "check the network, or set PIP_INDEX_URL to a mirror that can be reached",
    "no_python": "install Python 3.11, 3.12, 3.13 or 3.14",
    "no_triton": "run it on Linux: a machine, a container, or a rented GPU",
    "no_venv": "install the venv module of that Python",
    "no_wheel": "use Python 3.11, 3.12, 3.13 or 3.14 on x86_64 or aarch64",
    "timeout": "the network is very slow: build it on another machine, or set GPUJOB_AXOLOTL_ENV",
}


@dataclass(frozen=True, slots=True)
class EnvReady:
    """An Axolotl that can be run. Paths are on the instance."""

    axolotl: str
    python: str
    source: str  # given | image | built
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class EnvBuilding:
    """A build is under way: packages found of so many, bytes downloaded, seconds since it began."""

    step: str
    done: int
    of: int
    downloaded_bytes: int
    seconds: float


@dataclass(slots=True)
class AxolotlEnv:
    """Finds or builds the environment of one attempt, over a shell.

    folder: the attempt's folder on the instance, made already. root: where environments live and
    are reused. asked_by: the attempt's label. given: GPUJOB_AXOLOTL_ENV. network: see `network_of`,
    for an instance that is this very machine.
    """

    shell: Shell
    folder: str
    root: str
    asked_by: str
    given: str | None = None
    variant: str = "auto"
    network: Mapping[str, str] = field(default_factory=dict)
    _locks_at: str | None = None
    _shipped: bool = False

    def ensure(self) -> EnvReady | EnvBuilding:
        """Return what there is now; call it again while it builds. 1 to 7 short remote calls.

        Raises ShellError if the instance did not answer, SiteRefused if there can be none.
        """
        answer = self._ask()
        if answer.get("state") == "missing" and self._locks_at is None:
            self._upload_locks()
            answer = self._ask()
        return understand(answer)

    def _ask(self) -> dict[str, Any]:
        script = f"{self.folder}/{ENVIRONMENT_FILE}"
        spec = {
            "root": self.root,
            "asked_by": self.asked_by,
            "axolotl": AXOLOTL_VERSION,
            "locks_sha256": locks_sha256(),
            "locks": self._locks_at,
            "given": self.given,
            "variant": self.variant,
            "env": dict(self.network),
        }
        if not self._shipped:
            self.shell.put_bytes(environment_source(), script)
            self._shipped = True
        # On standard input: an index's address may hold a password.
        text = json.dumps(spec).encode()
        done = self.shell.python(script, ["ensure"], stdin=text, timeout_s=ANSWER_TIMEOUT_S)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            words = done.stderr.decode("utf-8", "replace").strip()[-300:]
            message = f"the environment's builder gave no answer (exit {done.rc}): {words}"
            raise SiteRefused(Reason.PREPARE_FAILED, message) from None
        return dict(answer)

    def _upload_locks(self) -> None:
        folder = f"{self.root}/locks-{locks_sha256()[:12]}"
        parcels = tuple(Parcel(name, data) for name, data in lock_files().items())
        self.shell.write(folder, parcels)  # makes the folder too
        self._locks_at = folder


def understand(answer: Mapping[str, Any]) -> EnvReady | EnvBuilding:
    """Return the builder's answer as what it means; raises SiteRefused. Pure."""
    state = answer.get("state")
    if state == "ready":
        versions = {str(name): str(value) for name, value in answer.get("versions", {}).items()}
        return EnvReady(
            str(answer["axolotl"]), str(answer["python"]), str(answer["source"]), versions
        )
    if state == "building":
        return EnvBuilding(
            str(answer.get("step", "begin")),
            int(answer.get("done", 0)),
            int(answer.get("of", 0)),
            int(answer.get("bytes", 0)),
            float(answer.get("seconds", 0.0)),
        )
    cause = str(answer.get("cause", "install_failed"))
    reason = Reason.DISK_FULL if cause == "no_disk" else Reason.PREPARE_FAILED
    remedy = REMEDIES.get(cause, REMEDIES["install_failed"])
    raise SiteRefused(reason, f"{answer.get('message', 'no answer')}. {remedy}")


@cache
def lock_files() -> dict[str, bytes]:
    """Return the lock files by name; they are package data."""
    folder = Path(__file__).parent / "locks"
    return {name: (folder / name).read_bytes() for name in LOCKS}


@cache
def locks_sha256() -> str:
    """Return one hash over all lock files: part of an environment's key."""
    digest = hashlib.sha256()
    for name, data in sorted(lock_files().items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def network_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what pip and uv must know to install on this very machine. Pure."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(("PIP_", "UV_")) or name.upper() in CERTIFICATES + PROXIES
    }


def trainer_env(
    *, gpu: bool, offline: bool, scratch: str, hf_home: str | None = None
) -> dict[str, str]:
    """Return the trainer's environment beside what the instance has. No secret is in it. Pure.

    offline: model and data are local folders, so the hub need not, and shall not, be asked.
    scratch: a folder of the attempt for caches that must not outlive it. hf_home: where downloaded
    models stay for the next job; None leaves the instance's own.
    """
    env = {
        "AXOLOTL_DO_NOT_TRACK": "1",  # else Axolotl waits 15 s at its start to say that it tracks
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_CACHE": f"{scratch}/hf-datasets",
        "WANDB_MODE": "disabled",
        "PYTHONUNBUFFERED": "1",  # else the log comes 8 KB at a time, and the last of it never
        "PYTHONFAULTHANDLER": "1",  # a crash in C code leaves a traceback
        "TOKENIZERS_PARALLELISM": "false",  # threads before a fork: a warning a worker, or a hang
    }
    if hf_home is not None:
        env["HF_HOME"] = hf_home
    if not gpu:
        env["ACCELERATE_USE_CPU"] = "1"
        env["CUDA_VISIBLE_DEVICES"] = ""
    if offline:
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return env
