"""From a fresh machine to one that can train: ordered steps, each idempotent, in few round trips.

Every step is decided by what the machine has, compared by content, never by what we remember: a run
after a crash does only what is missing. On a machine that has Axolotl three or four round trips do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from orchestrator.agent.bundle import AGENT_FILE, PLUGIN_FILE, agent_source, plugin_source
from orchestrator.agent.rescue import RESCUE
from orchestrator.axolotl_env import EnvBuilding, EnvReady
from orchestrator.clock import Clock
from orchestrator.machine_check import (
    LOCKED_CUDA,
    LOOK,
    LOOK_TIMEOUT_S,
    NOT_RENTED,
    NOTHING_KNOWN,
    TORCH_TIMEOUT_S,
    Found,
    Rented,
    judge,
    judge_torch,
    refuse_old_driver,
    torch_line,
)
from orchestrator.remote import Parcel, Progress, Shell, Survey
from orchestrator.site import SiteRefused
from orchestrator.states import Reason

ORDER, CONFIG, CLAIM = "order.json", "config.yml", "claim"
OLDEST_PYTHON = (3, 8)  # the agent's
SPARE_BYTES = 2 << 30  # beside what is uploaded: log, prepared data, adapter, checkpoints
SMALL_BYTES = 1 << 18  # a file up to this goes along with the order instead of by itself
BUILD_LOOK_S = 2.0
LATER_LOOK_S = 0.2
BUILD_STEP_S = 10.0  # a step that builds returns after so long, to be called again


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file or folder, and its place below the attempt's folder."""

    local: Path
    path: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What the configuration depends on: known once the machine was looked at."""

    folder: str  # absolute, on the instance
    gpus: int
    axolotl: EnvReady


@dataclass(frozen=True, slots=True)
class Composed:
    """What is to be run, for one machine. No secret is in it."""

    config: bytes
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Payload:
    """All that an attempt needs on its machine."""

    job: str
    attempt: int
    label: str
    token: str
    deadline_at: float
    compose: Callable[[Machine], Composed]
    uploads: tuple[Upload, ...] = ()
    expect_adapter: bool = True
    may_stop_early: bool = False
    stop_grace_s: float = 10.0
    self_destruct: str | None = None
    watch: Mapping[str, float | None] | None = None  # the watchdog's limits, seconds; None: none
    progress: Callable[[str, int, int], None] | None = None  # file name, bytes done, bytes in all
    rented: Rented = NOT_RENTED
    rescue: Callable[[], bytes] | None = None  # content of rescue.json
    secrets: Callable[[], Mapping[str, str]] | None = None  # for the trainer's environment alone
    later: Callable[[], tuple[Upload, ...] | None] | None = None  # None: not yet; called again


class Environment(Protocol):
    """Finds or builds Axolotl. `shell` is set anew after a lost connection."""

    shell: Shell

    def ensure(self) -> EnvReady | EnvBuilding:
        """Return what there is now; starts a build where nothing is."""
        ...


class Did(NamedTuple):
    """What a step came to: words if anything had to be done; `again`: it is not over."""

    words: str = ""
    again: bool = False


NOTHING = Did()


@dataclass(slots=True)
class Bootstrap:
    """The steps of one attempt, as far as this process has seen them done."""

    payload: Payload
    folder: str  # as given; may be relative to the login's home
    environment: Callable[[Shell, str], Environment]  # shell, absolute folder
    clock: Clock
    survey: Survey | None = None
    machine: Machine | None = None
    found: Found = NOTHING_KNOWN
    _environment: Environment | None = None
    _done: set[str] = field(default_factory=set)
    _later: tuple[Upload, ...] = ()

    def next(self, shell: Shell) -> str | None:
        """Perform the next missing step and return its name; None when nothing is missing.

        A step that takes long returns now and then, and is to be called again. Raises ShellError,
        SiteError, SiteRefused.
        """
        for name, step in STEPS:
            if name in self._done:
                continue
            did = step(self, shell)
            if not did.again:
                self._done.add(name)
            if did.words:
                return f"{name} ({did.words})" if did.again else name
        return None

    def look(self, shell: Shell) -> Did:
        """Make the folder and see what is there: done where a trainer was started before."""
        uploads = {upload.path: upload.local.stat().st_size for upload in self._files()}
        small = dict.fromkeys((AGENT_FILE, PLUGIN_FILE, CONFIG))
        self.survey = survey = shell.survey(
            self.folder, files={**small, **uploads}, show=(ORDER, CLAIM)
        )
        claim = _object(survey.shown.get(CLAIM))
        if CLAIM in survey.shown:
            if claim.get("token") != self.payload.token:
                message = f"{survey.folder} is claimed by another attempt"
                raise SiteRefused(Reason.INTERNAL, message)
            self._done = {name for name, _ in STEPS}
            return NOTHING
        return Did("made") if survey.made else NOTHING

    def check_tools(self, _: Shell) -> Did:
        """Refuse a machine that cannot do the job."""
        survey = self._surveyed()
        if survey.python < OLDEST_PYTHON:
            found = ".".join(map(str, survey.python))
            message = f"the instance's python3 is {found}; the agent needs 3.8 or newer"
            raise SiteRefused(Reason.PREPARE_FAILED, message)
        sizes = {upload.path: upload.local.stat().st_size for upload in self._files()}
        missing = sum(size for path, size in sizes.items() if path not in survey.hashes)
        if missing + SPARE_BYTES > survey.free_bytes:
            need, free = (missing + SPARE_BYTES) / 1e9, survey.free_bytes / 1e9
            message = f"{survey.folder} has {free:.1f} GB free; the job needs at least {need:.1f}"
            raise SiteRefused(Reason.DISK_FULL, message)
        return NOTHING

    def check_machine(self, shell: Shell) -> Did:
        """Refuse a machine that is not what was rented: before anything is built or sent."""
        if not self.payload.rented.gpus:
            return NOTHING
        done = shell.run(LOOK, timeout_s=LOOK_TIMEOUT_S)
        text = done.stdout.decode("utf-8", "replace")
        self.found = judge(text, self.payload.rented, self.clock.now())
        return Did(self.found.words)

    def check_torch(self, shell: Shell) -> Did:
        """Refuse a machine whose GPUs PyTorch cannot use."""
        rented, machine = self.payload.rented, self.machine
        if not rented.gpus or not rented.torch or machine is None:
            return NOTHING
        done = shell.run(torch_line(machine.axolotl.python), timeout_s=TORCH_TIMEOUT_S)
        answer = (done.stdout or done.stderr).decode("utf-8", "replace")
        judge_torch(answer, rented, self.found)
        return NOTHING

    def make_environment(self, shell: Shell) -> Did:
        """Find Axolotl, or have it built."""
        survey = self._surveyed()
        waited = self._environment is not None
        environment = self._environment or self.environment(shell, survey.folder)
        self._environment = environment
        environment.shell = shell
        until = self.clock.monotonic() + BUILD_STEP_S
        while True:
            state = environment.ensure()
            if isinstance(state, EnvReady):
                self.machine = Machine(survey.folder, survey.gpus, state)
                return Did("built") if waited else NOTHING
            if self.payload.rented.gpus:
                refuse_old_driver(self.found, LOCKED_CUDA)
            waited = True
            if self.clock.monotonic() >= until:
                return Did(f"{state.step}, {state.done} of {state.of}", again=True)
            self.clock.sleep(BUILD_LOOK_S)

    def find_checkpoint(self, _: Shell) -> Did:
        """Have the files found that have to be fetched from elsewhere before they are sent."""
        if self.payload.later is None:
            return NOTHING
        until = self.clock.monotonic() + BUILD_STEP_S
        while (found := self.payload.later()) is None:
            if self.clock.monotonic() >= until:
                return Did("fetched from its store", again=True)
            self.clock.sleep(LATER_LOOK_S)
        self._later = found
        return Did("found") if found else NOTHING

    def send_model(self, shell: Shell) -> Did:
        """Upload a base model's larger files."""
        return self._send(shell, lambda upload: upload.path.startswith("model/"))

    def send_data(self, shell: Shell) -> Did:
        """Upload the larger of the other files."""
        return self._send(shell, lambda upload: not upload.path.startswith("model/"))

    def _send(self, shell: Shell, belongs: Callable[[Upload], bool]) -> Did:
        survey, did = self._surveyed(), NOTHING
        for upload in self._files():
            if not belongs(upload) or self._is_small(upload):
                continue
            if survey.hashes.get(upload.path) != _sha256(upload.local):
                place = f"{survey.folder}/{upload.path}"
                shell.put(upload.local, place, progress=self._progress(upload.path))
                did = Did("sent")
        return did

    def send_order(self, shell: Shell) -> Did:
        """Write all that is small in one go, the order last."""
        survey, machine = self._surveyed(), self.machine
        assert machine is not None  # noqa: S101 - the step before sets it
        composed = self.payload.compose(machine)
        parcels = [
            Parcel(AGENT_FILE, agent_source()),
            Parcel(PLUGIN_FILE, plugin_source()),
            Parcel(CONFIG, composed.config),
            *(Parcel(up.path, up.local.read_bytes()) for up in self._files() if self._is_small(up)),
        ]
        missing = [
            parcel
            for parcel in parcels
            if survey.hashes.get(parcel.path) != hashlib.sha256(parcel.data).hexdigest()
        ]
        order, payload_rescue = self._order(composed), self.payload.rescue
        if missing or not _same_order(order, _object(survey.shown.get(ORDER))):
            text = json.dumps(order, indent=1).encode()
            rescue = () if payload_rescue is None else (Parcel(RESCUE, payload_rescue()),)
            shell.write(survey.folder, (*missing, *rescue, Parcel(ORDER, text)))
            return Did("sent")
        return NOTHING

    def _order(self, composed: Composed) -> dict[str, Any]:
        payload = self.payload
        return {
            "schema": 1,
            "job": payload.job,
            "attempt": payload.attempt,
            "label": payload.label,
            "token": payload.token,
            "argv": list(composed.argv),
            "env": dict(composed.env),
            "cwd": ".",
            "out": "out",
            "deadline_at": payload.deadline_at,
            "deadline_in_s": max(0.0, payload.deadline_at - self.clock.now()),
            "stop_grace_s": payload.stop_grace_s,
            "expect_adapter": payload.expect_adapter,
            "may_stop_early": payload.may_stop_early,
            "self_destruct": payload.self_destruct,
            "watch": None if payload.watch is None else dict(payload.watch),
        }

    def _surveyed(self) -> Survey:
        assert self.survey is not None  # noqa: S101 - the first step sets it
        return self.survey

    def _files(self) -> list[Upload]:
        """Return the uploads file by file."""
        found = []
        for upload in (*self.payload.uploads, *self._later):
            if upload.local.is_dir():
                below = sorted(path for path in upload.local.rglob("*") if path.is_file())
                names = [(path, path.relative_to(upload.local).as_posix()) for path in below]
                found += [Upload(path, f"{upload.path}/{name}") for path, name in names]
            else:
                found.append(upload)
        return found

    def _is_small(self, upload: Upload) -> bool:
        return upload.local.stat().st_size <= SMALL_BYTES

    def _progress(self, path: str) -> Progress | None:
        tell = self.payload.progress
        return None if tell is None else lambda done, total: tell(path, done, total)


STEPS: tuple[tuple[str, Callable[[Bootstrap, Shell], Did]], ...] = (
    ("folder", Bootstrap.look),
    ("tools", Bootstrap.check_tools),
    ("machine", Bootstrap.check_machine),
    ("environment", Bootstrap.make_environment),
    ("torch", Bootstrap.check_torch),
    ("checkpoint", Bootstrap.find_checkpoint),
    ("model", Bootstrap.send_model),
    ("data", Bootstrap.send_data),
    ("order", Bootstrap.send_order),
)


def _object(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _same_order(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Return whether only the seconds left differ: they shrank while the order lay there."""
    return {**new, "deadline_in_s": 0} == {**old, "deadline_in_s": 0}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
