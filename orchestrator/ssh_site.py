"""`Site` over SSH: one attempt's machine as the runner knows it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator import logs
from orchestrator.agent.bundle import AGENT_FILE
from orchestrator.agent_answers import ABSENT, read_status
from orchestrator.artifacts import checkpoint
from orchestrator.artifacts.collect import Result, collect
from orchestrator.artifacts.manifest import ArtifactsMissing, ArtifactsRefused
from orchestrator.bootstrap import ORDER, Bootstrap
from orchestrator.remote import Completed, HostKeyMismatch, RemoteFailed, Shell, ShellError
from orchestrator.renewal import Renewal
from orchestrator.rescued import Rescue
from orchestrator.shipping import Shipping
from orchestrator.site import AgentStatus, Collected, Kept, Rescued, SiteError, SiteRefused
from orchestrator.states import Reason

START_S = 60.0
STOP_MARGIN_S = 60.0  # beyond the trainer's grace: the agent's KILL, its checks of the adapter
MANIFEST_S = 3600.0  # it hashes all: a model of 1 TB at 300 MB/s
KEEP_S = 5.0  # of a checkpoint's transfer in one call: the log is followed on in between
PULLED = frozenset({"train.log", "metrics.jsonl"})
FOREIGN_CLAIM = 3  # the agent's exit status

# A failure that the host is sure of -> why the attempt ends. What is not here is tried again.
REFUSALS: dict[str, Reason] = {
    "no_space": Reason.DISK_FULL,
    "no_python": Reason.PREPARE_FAILED,
    "changed": Reason.INSTANCE_LOST,  # a log became shorter: the attempt's files were lost
    "irregular": Reason.ARTIFACTS_REFUSED,
}


class SshSite:
    """One attempt's machine.

    connect: makes the connection, for the first call and after each lost one. bootstrap: what the
    attempt needs. result: what its result is made of. shipping: takes the checkpoints to a store;
    None: they come home. renewal: of the machine's lease.
    """

    def __init__(
        self,
        connect: Callable[[], Shell],
        bootstrap: Bootstrap,
        result: Result,
        shipping: Shipping | None = None,
        renewal: Renewal | None = None,
        *,
        rescue: Rescue | None = None,
    ) -> None:
        self._rescue = rescue
        self._shipping = shipping
        self._renewal = renewal
        self._connect = connect
        self._bootstrap = bootstrap
        self._result = result
        self._lock = threading.Lock()  # of the two below, never held while anything blocks
        self._shell: Shell | None = None
        self._closed = False
        self._connecting = threading.Lock()
        self._listed: tuple[int, Any] | None = None  # the newest checkpoint's manifest, by step

    def probe(self) -> None:
        """Connect and have the instance answer."""
        with self._connected() as shell:
            try:
                shell.ping()
            except RemoteFailed as failure:
                if failure.code != "no_python":  # a first step's to judge; the shell did answer
                    raise

    def prepare_next(self) -> str | None:
        """Perform the next missing bootstrap step. See `Site.prepare_next`."""
        with self._connected() as shell:
            try:
                return self._bootstrap.next(shell)
            except FileNotFoundError as error:
                message = f"{error.filename} is no longer there"
                raise SiteRefused(Reason.PREPARE_FAILED, message) from error
            except RemoteFailed as failure:
                if failure.code == "os":  # not ours to write, no such device, ...
                    raise SiteRefused(Reason.PREPARE_FAILED, str(failure)) from failure
                raise

    def start_trainer(self) -> AgentStatus:
        """Start the agent once. See `Site.start_trainer`."""
        words, given = ["start", f"{self._folder}/{ORDER}"], b""
        if self._bootstrap.payload.secrets is not None:
            words.append("--secrets")
            given = json.dumps(dict(self._bootstrap.payload.secrets())).encode()
        with self._connected() as shell:
            end = shell.python(self._script, words, timeout_s=START_S, stdin=given)
        if end.rc == FOREIGN_CLAIM:
            raise SiteRefused(Reason.INTERNAL, "the instance's folder belongs to another attempt")
        if end.rc != 0:
            raise SiteRefused(Reason.PREPARE_FAILED, f"the agent did not start: {_words(end)}")
        return self.status()

    def status(self) -> AgentStatus:
        """Ask the agent; starts no process on the instance."""
        with self._connected() as shell:
            try:
                answer = shell.call(self._script, ["status", self._folder])
            except RemoteFailed as failure:
                if failure.code == "absent":
                    return ABSENT
                raise
        return read_status(answer, self._bootstrap.payload.token)

    def pull(self, name: str, local: Path, offset: int) -> int:
        """Append what the file has gained. See `Site.pull`."""
        if name not in PULLED:
            raise ValueError(f"not a file to pull: {name}")
        with self._connected() as shell:
            return logs.pull(shell, f"{self._folder}/{name}", local, offset)

    def stop_trainer(self, *, now: bool) -> None:
        """Ask the agent to end the trainer's whole tree; returns when it has."""
        grace_s = 0.0 if now else self._bootstrap.payload.stop_grace_s
        words = ["stop", self._folder, *(["--now"] if now else [])]
        with self._connected() as shell:
            end = self._agent(shell, *words, timeout_s=grace_s + STOP_MARGIN_S)
        if end.rc != 0:
            raise SiteError(f"the agent did not stop: {_words(end)}")

    def collect(self, folder: Path) -> Collected:
        """Bring the result home. See `Site.collect`."""
        with self._connected() as shell:
            if self._rescue is not None:
                with suppress(RemoteFailed):  # it shows that somebody is there, and no more
                    shell.call(self._script, ["status", self._folder])
            end = self._agent(shell, "manifest", self._folder, timeout_s=MANIFEST_S)
            manifest = _document(end)
            if end.rc != 0:
                raise SiteRefused(Reason.ARTIFACTS_FAILED, f"no list of files: {_words(end)}")
            try:
                tell = self._bootstrap.payload.progress
                step = None if tell is None else lambda done, total: tell("result", done, total)
                out = f"{self._folder}/out"
                return collect(
                    shell, out, folder, manifest, self._result, progress=step,
                    listed=lambda step: self._listing_of(shell, step),
                )  # fmt: skip
            except ArtifactsRefused as refused:
                raise SiteRefused(Reason.ARTIFACTS_REFUSED, str(refused)) from refused
            except ArtifactsMissing as missing:
                raise SiteRefused(Reason.ARTIFACTS_FAILED, str(missing)) from missing

    def keep_checkpoint(self, step: int, folder: Path) -> Kept | None:
        """Bring a checkpoint home, KEEP_S of it at a time. See `Site.keep_checkpoint`."""
        enough = checkpoint.pace(self._bootstrap.clock, KEEP_S)
        remote = f"{self._folder}/out/checkpoint-{step}"
        with self._connected() as shell:
            if self._shipping is not None:
                listed = partial(self._checkpoint_manifest, shell, step)
                return self._shipping.keep(shell, self._script, self._folder, step, listed)
            try:
                size = checkpoint.bring(
                    shell, remote, folder, step, self._checkpoint_manifest(shell, step),
                    adapter=self._result.adapter, enough=enough,
                )  # fmt: skip
            except checkpoint.NotYetWhole:
                return None
            except ArtifactsRefused as refused:
                raise SiteRefused(Reason.ARTIFACTS_REFUSED, str(refused)) from refused
            except ArtifactsMissing:  # pruned by the trainer meanwhile: a newer one is there
                return Kept(step, 0)
        return Kept(step, size)

    def _listing_of(self, shell: Shell, step: int) -> Any:
        """Return what the agent lists of a checkpoint; None where it is no longer there."""
        try:
            return self._checkpoint_manifest(shell, step)
        except SiteRefused:
            return None

    def _checkpoint_manifest(self, shell: Shell, step: int) -> Any:
        """Return what the agent lists of a checkpoint; hashed there once a step."""
        if self._listed is None or self._listed[0] != step:
            words = ["manifest", self._folder, "--checkpoint", str(step)]
            end = self._agent(shell, *words, timeout_s=MANIFEST_S)
            if end.rc != 0:
                raise SiteRefused(Reason.ARTIFACTS_FAILED, f"no list of files: {_words(end)}")
            self._listed = (step, _document(end))
        return self._listed[1]

    def rescued(self, folder: Path) -> Rescued | None:
        """Take what the machine delivered by itself. See `Site.rescued`."""
        return None if self._rescue is None else self._rescue.take(folder, self._result)

    def close(self) -> None:
        """Drop the connection; a blocked call returns with SiteError."""
        with self._lock:
            self._closed = True
            shell, self._shell = self._shell, None
            self._renew(None)
        if shell is not None:
            shell.close()

    # ------------------------------------------------------------------ helpers

    @property
    def _folder(self) -> str:
        survey = self._bootstrap.survey
        return survey.folder if survey is not None else self._bootstrap.folder

    @property
    def _script(self) -> str:
        return f"{self._folder}/{AGENT_FILE}"

    def _agent(self, shell: Shell, *words: str, timeout_s: float) -> Completed:
        return shell.python(self._script, words, timeout_s=timeout_s)

    @contextmanager
    def _connected(self) -> Iterator[Shell]:
        """Lend the connection, made if need be; turn its failures into the site's."""
        shell = self._obtain()
        try:
            yield shell
        except RemoteFailed as failure:
            reason = REFUSALS.get(failure.code)
            if reason is not None:
                raise SiteRefused(reason, str(failure)) from failure
            raise SiteError(str(failure)) from failure
        except ShellError as error:
            self._drop(shell)
            raise SiteError(str(error)) from error
        except OSError as error:
            raise SiteError(f"on this machine: {error}") from error

    def _obtain(self) -> Shell:
        with self._connecting:
            with self._lock:
                if self._closed:
                    raise SiteError("the site was closed")
                if self._shell is not None:
                    return self._shell
            try:
                shell = self._connect()
            except HostKeyMismatch as mismatch:
                raise SiteRefused(Reason.HOST_KEY_MISMATCH, str(mismatch)) from mismatch
            except ShellError as error:  # a refused key too: cloud-init may not have put it there
                raise SiteError(str(error)) from error
            with self._lock:
                if not self._closed:
                    self._shell = shell
                    self._renew(shell)
                    return shell
            shell.close()
            raise SiteError("the site was closed")

    def _drop(self, shell: Shell) -> None:
        with self._lock:
            if self._shell is shell:
                self._shell = None
                self._renew(None)
        shell.close()

    def _renew(self, shell: Shell | None) -> None:
        """Have the machine's lease renewed over this connection, or no more."""
        if self._renewal is None:
            return
        if shell is None:
            self._renewal.stop()
        else:
            self._renewal.begin(shell, lambda: self._folder)


def _document(end: Completed) -> Any:
    try:
        return json.loads(end.stdout)
    except (ValueError, RecursionError):
        return None


def _words(end: Completed) -> str:
    """Return what the agent said of its failure, else what its Python did."""
    answer = _document(end)
    said = answer.get("error") if isinstance(answer, dict) else None
    text = str(said) if said else end.stderr.decode("utf-8", "replace").strip()
    return f"{text[-300:] or 'no word'} (exit {end.rc})"
