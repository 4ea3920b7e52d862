"""The build of Axolotl's environment itself: a venv, torch, the lock, a check; all or nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Callable, NamedTuple, NoReturn

from orchestrator.agent.files import Document, write_durably
from orchestrator.agent.procs import PR_SET_PDEATHSIG, prctl, steady_s

PYTHONS = ((3, 11), (3, 14))  # what the locks were resolved for, and wheels exist for
# Measured: 2.8 GB for the CPU build (docs/adr/0006-axolotls-environment.md); the CUDA stack,
# unpacked, adds about 5 GB.
NEED_BYTES = {"cpu": 4 << 30, "cuda": 11 << 30}
BUILD_TIMEOUT_S = 3600
QUIET_S = 0.5
VERSIONS = ("axolotl", "torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes")
VERIFY = (
    "import json; from importlib.metadata import version; import torch, transformers, peft;"
    " import axolotl.train; print(json.dumps({n: version(n) for n in %r}))" % (VERSIONS,)
)
NO_NETWORK = (
    r"NewConnectionError|ConnectTimeout|ReadTimeout|Name or service not known|ProxyError"
    r"|Temporary failure in name resolution|failed to lookup address|Network is unreachable"
    r"|SSLError|Connection reset"
)
CAUSES = (
    ("no_disk", r"No space left on device|\[Errno 28\]|Disk quota exceeded"),
    ("bad_hash", r"DO NOT MATCH THE HASHES"),
    ("no_network", NO_NETWORK),
    ("no_wheel", r"No matching distribution found|Could not find a version that satisfies"),
)


class Spec(NamedTuple):
    """What is asked for."""

    root: str
    asked_by: str  # an attempt's label: a failure is told to the one who met it, others try anew
    axolotl: str  # the version, e.g. 0.21.0
    locks_sha256: str
    locks: str | None  # the folder with the lock files, once they were uploaded
    given: str | None  # an environment that the user named
    variant: str  # auto | cpu | cuda
    env: dict[str, str]  # for pip alone: indexes, proxies, certificates


class BuildFailed(Exception):  # noqa: N818 - as the house names its errors
    """The environment can't be built; cause is one word for the table of the orchestrator."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def find_python() -> tuple[str, str]:
    """Return (path, "3.12") of a Python that can make the environment; raises BuildFailed."""
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1] and importlib.util.find_spec("venv"):
        return sys.executable, "%d.%d" % sys.version_info[:2]
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for name in ["python3.%d" % minor for minor in (12, 13, 11, 14)]:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            asked = subprocess.run(
                [path, "-c", code], stdout=subprocess.PIPE, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        version = asked.stdout.decode().strip()
        if PYTHONS[0] <= tuple(int(part) for part in version.split(".")) <= PYTHONS[1]:
            return path, version
    raise BuildFailed(
        "no_python", "no Python from 3.11 to 3.14 with the venv module on this machine"
    )


def build_detached(spec: Spec, folder: str, python: str, variant: str) -> NoReturn:
    """Run a build in a process of its own; never returns."""
    status = 1
    with contextlib.suppress(BaseException):
        os.setsid()
        os.umask(0o077)
        null = os.open(os.devnull, os.O_RDONLY)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        log = os.open(os.path.join(folder, "build.log"), flags, 0o600)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(BUILD_TIMEOUT_S)
        try:
            Build(spec, folder, python, variant).run()
            status = 0
        except BuildFailed as error:
            failure = {"cause": error.cause, "message": str(error)}
            _tell_failure(spec, folder, failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker must hear of it
            full = isinstance(error, OSError) and error.errno == 28
            cause = "no_disk" if full else "install_failed"
            _tell_failure(spec, folder, {"cause": cause, "message": str(error)})
    os._exit(status)


def _too_long(*_: Any) -> NoReturn:
    raise BuildFailed("timeout", "the build took more than %d s" % BUILD_TIMEOUT_S)


def _tell_failure(spec: Spec, folder: str, failure: Document) -> None:
    document = dict(failure, asked_by=spec.asked_by)
    write_durably(os.path.join(folder, "failed.json"), json.dumps(document).encode())


class Build:
    """One build, alone in its folder."""

    def __init__(self, spec: Spec, folder: str, python: str, variant: str) -> None:
        self.spec = spec
        self.folder = folder
        self.python = python
        self.variant = variant
        self.began = steady_s()
        self.told_at = 0.0
        self.bytes = 0
        self.seen = 0
        self.unpacking = False
        self.venv = os.path.join(folder, "venv-%d-%d" % (os.getpid(), int(time.time())))
        self.inner = os.path.join(self.venv, "bin", "python")
        self.pip: list[str] = []
        self.env = dict(os.environ, **spec.env)
        self.env.update(PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV"):
            self.env.pop(name, None)

    def run(self) -> None:
        """Build, check, and say READY; raises BuildFailed and leaves nothing of it."""
        for name in os.listdir(self.folder):
            if name.startswith("venv-"):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
            elif name in ("failed.json", "progress.json", "READY.json"):
                os.unlink(os.path.join(self.folder, name))
        try:
            self.need_disk(self.variant)
            self.make_venv()
            self.install_torch()
            # Without isolation: pip would fetch what builds the two source archives unhashed.
            self.install("build", ["--no-deps"], "build.txt")
            alone = ["--no-deps", "--ignore-requires-python", "--no-build-isolation"]
            self.install("axolotl", alone, "axolotl.txt")
            versions = self.verify()
        except BaseException:
            shutil.rmtree(self.venv, ignore_errors=True)
            raise
        ready = {
            "axolotl": os.path.join(self.venv, "bin", "axolotl"),
            "python": self.inner,
            "versions": versions,
            "variant": self.variant,
            "seconds": round(steady_s() - self.began, 1),
        }
        write_durably(os.path.join(self.folder, "READY.json"), json.dumps(ready).encode())

    def need_disk(self, variant: str) -> None:
        """Refuse early rather than fail late."""
        free = shutil.disk_usage(self.folder).free
        if free < NEED_BYTES[variant]:
            words = "%.1f GB free in %s, Axolotl's environment needs %.1f"
            sizes = (free / 1e9, self.folder, NEED_BYTES[variant] / 1e9)
            raise BuildFailed("no_disk", words % sizes)

    def make_venv(self) -> None:
        """Make the empty environment. pip is borrowed where there is a good one: 5 s less."""
        self.tell("venv", 0, 1)
        bare = [self.python, "-m", "venv", "--without-pip", self.venv]
        made = subprocess.call(bare, env=self.env) == 0
        if made and self.can_lend_pip():
            self.pip = [self.python, "-m", "pip", "--python", self.inner]
        elif made and subprocess.call([self.inner, "-m", "ensurepip"], env=self.env) == 0:
            self.pip = [self.inner, "-m", "pip"]
        else:
            words = "%s can't make a virtual environment; on Debian and Ubuntu: apt install %s-venv"
            version = "python%s" % find_python()[1]
            raise BuildFailed("no_venv", words % (self.python, version))

    def can_lend_pip(self) -> bool:
        """Return whether Python's own pip can install into another environment (22.3 and newer)."""
        asked = subprocess.run(
            [self.python, "-m", "pip", "--version"],
            env=self.env,
            stdout=subprocess.PIPE,
            check=False,
        )
        version = re.match(rb"pip (\d+)\.(\d+)", asked.stdout)
        return version is not None and (int(version.group(1)), int(version.group(2))) >= (22, 3)

    def install_torch(self) -> None:
        """Install torch in the first way that works; the CPU build has three.

        PyPI has none for Linux. pip gets it from wherever it is configured to look, by its hash; uv
        knows PyTorch's own index; and at last PyPI's CUDA build runs on a CPU too, at eight times
        the size.
        """
        if self.variant == "cpu":
            if self.works(self.cpu_torch_by_pip) or self.works(self.cpu_torch_by_uv):
                return
            self.need_disk("cuda")
        self.install("torch", [], "torch.txt")

    def works(self, way: Callable[[], None]) -> bool:
        """Return whether one way led to torch; why not stands in the log."""
        try:
            way()
        except BuildFailed as error:
            print("gpujob: torch's CPU build:", error, flush=True)
            return False
        return True

    def cpu_torch_by_pip(self) -> None:
        """Take it from the indexes and folders that pip is configured for."""
        self.install("torch", ["--no-deps"], "torch-cpu.txt")

    def cpu_torch_by_uv(self) -> None:
        """Take it from PyTorch's index: checked by that index's hashes, not by ours."""
        with open(os.path.join(str(self.spec.locks), "torch-cpu.txt"), encoding="utf-8") as file:
            pin = file.read().split("+")[0]
        uv = shutil.which("uv")
        if uv is None:
            self.install("uv", ["--no-deps"], "uv.txt")
            uv = os.path.join(self.venv, "bin", "uv")
        command = [uv, "pip", "install", "--python", self.inner, "--torch-backend", "cpu"]
        self.watch("torch", [*command, "--no-deps", pin], 1)

    def install(self, step: str, options: list[str], lock: str) -> None:
        """Install one lock file with pip, by hash."""
        path = os.path.join(str(self.spec.locks), lock)
        with open(path, encoding="utf-8") as file:
            pins = len(re.findall(r"^[A-Za-z0-9]", file.read(), re.MULTILINE))
        command = [*self.pip, "install", "--require-hashes", "--progress-bar", "off", *options]
        # What a training imports is compiled by importing it, in verify: a tenth of it all.
        self.watch(step, [*command, "--no-compile", "-r", path], pins)

    def watch(self, step: str, command: list[str], pins: int) -> None:
        """Run an installer, turn its lines into progress; raises BuildFailed."""
        self.tell(step, 0, pins)
        tail: list[str] = []
        self.seen = 0
        self.unpacking = False
        process = subprocess.Popen(
            command,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        try:
            for raw in process.stdout or ():
                tail = [*tail[-200:], self.hear(raw, step, pins)]
            status = process.wait()
        finally:
            process.kill()
        if status != 0:
            raise explain(tail)

    def hear(self, raw: bytes, step: str, pins: int) -> str:
        """Return a line of an installer, after it was logged and counted."""
        line = raw.decode("utf-8", "replace").rstrip()
        print(line, flush=True)
        self.seen += line.startswith(("Collecting ", "Processing "))
        size = re.match(r"\s*Downloading .*\((\d+(?:\.\d+)?) (k|M|G)B\)", line)
        if size:
            self.bytes += int(float(size.group(1)) * {"k": 1e3, "M": 1e6, "G": 1e9}[size.group(2)])
        self.unpacking |= line.startswith("Installing collected packages")
        self.tell("unpack " + step if self.unpacking else step, min(self.seen, pins), pins)
        return line

    def verify(self) -> dict[str, Any]:
        """Import what a training imports (it also compiles it); return the versions."""
        self.tell("verify", 0, 1)
        env = dict(self.env, AXOLOTL_DO_NOT_TRACK="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
        done = subprocess.run(
            [self.inner, "-c", VERIFY],
            env=env,
            cwd=self.folder,
            capture_output=True,
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise BuildFailed("broken", "the environment does not import Axolotl: %s" % last)
        return dict(json.loads(done.stdout.decode().strip().splitlines()[-1]))

    def tell(self, step: str, done: int, of: int) -> None:
        """Write the progress, at most twice a second."""
        now = steady_s()
        if now - self.told_at < QUIET_S and done:
            return
        self.told_at = now
        progress = {"step": step, "done": done, "of": of, "bytes": self.bytes}
        progress.update(began=self.began, venv=self.venv)
        path = os.path.join(self.folder, "progress.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(progress, file)
        os.replace(path + ".part", path)


def explain(tail: list[str]) -> BuildFailed:
    """Return the failure of an installer, by its last lines."""
    text = "\n".join(tail)
    errors = [line for line in tail if line.startswith(("ERROR", "error", "  cause"))]
    last = re.sub(r"://[^/@\s]*@", "://", (errors or tail or ["no output"])[-1])[:500]
    for cause, words in CAUSES:
        if re.search(words, text):
            return BuildFailed(cause, last)
    return BuildFailed("install_failed", last)
