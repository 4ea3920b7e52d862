"""Checkpoints on their way from an instance to a store: granted, looked at, published.

The bytes go from the instance straight to the store; the key stays here, in a process of its own.
Each call is short: the log is followed in between. What is known here is lost with this process,
and found again: a second grant asks only for what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from orchestrator.artifacts import bucket
from orchestrator.artifacts.manifest import (
    ArtifactsMissing,
    ArtifactsRefused,
    choose_checkpoint,
)
from orchestrator.artifacts.push import PushFault
from orchestrator.clock import Clock
from orchestrator.remote import Shell
from orchestrator.site import Kept, SiteError, SiteRefused
from orchestrator.states import Reason

ASK_S = 600.0  # of a store without checksums, which is read back, for the smallest of models
CARRY_S = 60.0
LOOK_S = 1.0
ROUNDS = 5  # of one checkpoint: grant, send, look; each of them has retries of its own


class Ask(Protocol):
    """Asks the store; raises PushFault."""

    def __call__(self, do: str, **more: Any) -> dict[str, Any]:
        """Return its answer."""
        ...


@dataclass(slots=True)
class Shipping:
    """The checkpoints of one attempt, one after another."""

    ask: Ask
    clock: Clock
    adapter: bool
    keep_newest: int
    deadline_at: float
    bytes_per_s: float | None
    _step: int = -1
    _rounds: int = 0
    _files: tuple[bucket.Sent, ...] = ()

    def keep(
        self, shell: Shell, script: str, folder: str, step: int, listed: Callable[[], Any]
    ) -> Kept | None:
        """Return what lies whole in the store now; None: call again.

        Raises ShellError, SiteError for what may pass, SiteRefused for what will not.
        """
        state = shell.call(script, ["carried", folder])
        if state.get("alive") is True:
            self.clock.sleep(LOOK_S)
            return None
        if self._step != step:
            try:
                document = listed()
                choice = choose_checkpoint(document, adapter=self.adapter)
                self._files = bucket.sent_files(document, choice)
            except ArtifactsRefused as refused:
                raise SiteRefused(Reason.ARTIFACTS_REFUSED, str(refused)) from refused
            except ArtifactsMissing:  # pruned by the trainer meanwhile: a newer one is there
                return Kept(step, 0)
            self._step, self._rounds = step, 0
        try:
            return self._round(shell, script, folder, state)
        except PushFault as fault:
            if fault.retry:
                raise SiteError(str(fault)) from fault
            raise SiteRefused(Reason.ARTIFACTS_FAILED, str(fault)) from fault

    def _round(self, shell: Shell, script: str, folder: str, state: dict[str, Any]) -> Kept | None:
        """Publish what is there; else grant and have sent what is not."""
        name = f"checkpoint-{self._step}"
        files = [asdict(file) for file in self._files]
        if self._rounds:
            if state.get("id") == name and state.get("code") == "absent":
                return Kept(self._step, 0)
            done = self.ask("publish", step=self._step, files=files, keep=self.keep_newest)
            if done["whole"]:
                return Kept(self._step, sum(file.bytes for file in self._files))
        if self._rounds >= ROUNDS:
            said = f"{state.get('said') or 'it does not become whole'} ({ROUNDS} rounds)"
            raise SiteRefused(Reason.ARTIFACTS_FAILED, _shown(said))
        self._rounds += 1
        url_s = self.deadline_at - self.clock.now()
        granted = self.ask("grant", step=self._step, files=files, url_s=url_s)
        if granted["whole"]:
            return Kept(self._step, sum(file.bytes for file in self._files))
        items = [{**item, "path": f"out/{name}/{item['path']}"} for item in granted["items"]]
        if items:
            grants = {"id": name, "bytes_per_s": self.bytes_per_s, "items": items}
            words = ["carry", folder]
            end = shell.python(script, words, timeout_s=CARRY_S, stdin=json.dumps(grants).encode())
            if end.rc != 0:
                raise SiteRefused(Reason.ARTIFACTS_FAILED, f"the agent does not send: {end.rc}")
        return None


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:300])


@dataclass(slots=True)
class Fetching:
    """The newest whole checkpoint on its way from the store to this machine.

    start: begins the fetch. A store that is away for good costs the checkpoint, never the attempt.
    """

    start: Callable[[], Any]
    tell: Callable[[str], None]
    _running: Any = None

    def done(self) -> bool:
        """Return whether it has ended; what came lies in the folder."""
        try:
            if self._running is None:
                self._running = self.start()
            answer = self._running.poll()
        except (PushFault, OSError) as error:
            self.tell(f"the checkpoints could not be asked for: {error}")
            return True
        for why in (answer or {}).get("passed_over", []):
            self.tell(f"passed over: {why}")
        return answer is not None
