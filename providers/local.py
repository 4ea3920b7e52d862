"""The `local` provider: this machine as an instance, reached over real SSH on loopback.

An instance is a guard and an SSH server, detached, with a folder below `<home>/instances/`
(providers/local_state.py). All is read from that folder and from the process table, so any process
can find, describe and end what another one launched, however the launcher died. Costs nothing; a
notional price may be set for practice.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from providers import local_gpu
from providers import local_launch as launching
from providers import local_state as state
from providers import local_tree as tree
from providers.base import (
    HostKey,
    Instance,
    InstanceId,
    InstanceState,
    LaunchRequest,
    Offer,
    Traits,
)
from providers.clock import Clock
from providers.errors import InvalidRequest, NoCapacity, NotFound, Unavailable

HOST = "127.0.0.1"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Measured on two loaded cores: 1.1 s from launch to the first login. The limit is for worse days.
BOOT_TIMEOUT_S = 60.0
END_WAIT_S = 3.0  # an idle instance ends itself in 0.1 s; then we end it from here
FORCED_PASSES, FORCED_PAUSE_S = 100, 0.02


class LocalProvider:
    """The five verbs. An instance's id is its label, which may be used once.

    home: where state lies; must be on a local file system, for locks.
    price_usd_per_hour: a notional price, marked so in the offers; None: free.
    environment, gpus: what the launcher's environment and the driver say; arguments for tests.
    Raises InvalidRequest on Windows, which has neither the sockets nor the process tree for it.
    """

    name = "local"

    def __init__(
        self,
        home: Path,
        clock: Clock,
        *,
        price_usd_per_hour: Decimal | None = None,
        environment: Mapping[str, str] = os.environ,
        gpus: Callable[[Mapping[str, str]], Sequence[local_gpu.LocalGpu]] = local_gpu.detect,
    ) -> None:
        if sys.platform == "win32":
            raise InvalidRequest(
                "the local provider needs Linux or macOS; on Windows run gpujob inside WSL 2"
            )
        self.traits = Traits(
            list_lag_s=0.0,
            boot_timeout_s=BOOT_TIMEOUT_S,
            billing_step_s=1.0,
            proves_absence=True,
            self_destruct=f': > "${state.FOLDER_VARIABLE}/{state.END}"',
            remote=False,
            knows_labels=True,
        )
        self._home = home
        self._instances = str(home.absolute().resolve() / "instances")
        self._clock = clock
        self._price = price_usd_per_hour
        self._environment = environment
        self._detect = gpus

    # ---------------------------------------------------------------- the five verbs

    def offers(self) -> Sequence[Offer]:
        """Return the free GPUs in every number, or the CPU of a machine without. No network."""
        with _as_unavailable("offers"):
            found = self._detect(self._environment)
            return local_gpu.offers(found, self._taken(), self._home, self._price)

    def launch(self, request: LaunchRequest) -> Instance:
        """Start a detached instance and return it, STARTING, with its host key. Waits for no SSH.

        Raises InvalidRequest (label used before or unfit, unknown offer, key, past deadline, folder
        not writable) and NoCapacity (GPUs in use), both with nothing started; Unavailable where the
        guard did not answer.
        """
        key = launching.checked(request, LABEL, self._clock.now())
        if os.path.lexists(self._folder(request.label)) or os.path.exists(
            state.grave(self._instances, request.label)
        ):
            raise InvalidRequest(f"launch {request.label}: this label was used before")
        with _as_invalid(f"launch {request.label}"):
            os.makedirs(self._instances, mode=0o700, exist_ok=True)
            state.tidy(self._instances, self._clock.now())
            with launching.one_at_a_time(self._instances):
                facts, lock = self._place(request, key)
        try:
            launching.start_guard(
                self._folder(request.label),
                lock,
                launching.environment(
                    self._environment, request.env, self._folder(request.label), facts["gpus"]
                ),
            )
        finally:
            os.close(lock)
        return self._instance(request.label, facts, InstanceState.STARTING, "starting")

    def describe(self, instance_id: InstanceId) -> Instance:
        """Return the instance as its folder and the process table show it; NotFound if neither do.

        GONE, for as long as its note is kept: nothing of it runs and its folder is removed.
        STOPPED: nothing runs, but the folder is there (terminate removes it). UNKNOWN: it is
        ending, or processes of it are left without guard and server.
        """
        with _as_unavailable(f"describe {instance_id}"):
            instance = self._look(str(instance_id), None)
        if instance is None:
            raise NotFound(f"describe {instance_id}: no such instance")
        return instance

    def find(self, label_prefix: str) -> Sequence[Instance]:
        """Return all that have a folder or a living process."""
        with _as_unavailable("find"):
            marks = tree.marked(self._instances)
            labels = sorted({*state.labels(self._instances), *marks})
            seen = [self._look(x, marks) for x in labels if x.startswith(label_prefix)]
        return tuple(i for i in seen if i is not None and i.state is not InstanceState.GONE)

    def terminate(self, instance_id: InstanceId) -> None:
        """Have the instance end itself, or end it from here; then remove its folder.

        Blocks for some 0.1 s, at worst 5 s. Raises Unavailable if the system refuses.
        """
        if not LABEL.fullmatch(instance_id):
            return
        folder = self._folder(instance_id)
        with _as_unavailable(f"terminate {instance_id}"):
            ours = os.path.exists(os.path.join(folder, state.LAUNCH))
            if ours:
                state.ask_to_end(folder)
                guard = tree.same(state.read_json(os.path.join(folder, state.GUARD)))
                if guard is not None:
                    tree.send(guard, signal.SIGTERM)
                self._wait_for_end(folder, guard)
            if self._lives(folder):
                self._force(folder)
            if ours and not self._lives(folder):
                state.bury(folder, "asked to", self._clock.now())
                state.tidy(self._instances, self._clock.now())

    # ---------------------------------------------------------------- launching

    def _place(self, request: LaunchRequest, key: str) -> tuple[dict[str, Any], int]:
        """Make the folder, whole and locked, with GPUs set aside; return its facts and the lock."""
        private, public = launching.new_host_key()
        facts = {
            "schema": 1,
            "label": request.label,
            "owner": request.owner,
            "created_at": self._clock.now(),
            "deadline_at": request.deadline_at,
            "price_usd_per_hour": str(self._price or Decimal(0)),
            "host_key": [public.type, public.base64],
            "user": _user(),
            "gpus": self._allocate(request.offer),
            "start_script": request.start_script,
        }
        files = {state.HOST_KEY: private, state.AUTHORIZED_KEYS: f"{key}\n".encode()}
        return facts, launching.place(self._folder(request.label), facts, files)

    def _allocate(self, wanted: Offer) -> list[str]:
        """Return the ids of free GPUs for the offer."""
        found = self._detect(self._environment)
        every = local_gpu.offers(found, frozenset(), self._home, None)
        offer = next((o for o in every if o.key == wanted.key), None)
        if offer is None or wanted.provider != self.name:
            raise InvalidRequest(f"launch: no offer {wanted.provider}/{wanted.key} here")
        taken = self._taken()
        free = [g.uuid for g in found if g.name == offer.gpu and g.uuid not in taken]
        if len(free) < offer.gpu_count:
            raise NoCapacity(f"launch: {offer.key} needs GPUs that other instances use")
        return free[: offer.gpu_count]

    def _taken(self) -> frozenset[str]:
        """Return the ids of the GPUs that living instances hold."""
        found: set[str] = set()
        for label in state.labels(self._instances):
            folder = self._folder(label)
            held = (state.read_json(os.path.join(folder, state.LAUNCH)) or {}).get("gpus")
            if held and self._lives(folder):
                found.update(held)
        return frozenset(found)

    # ---------------------------------------------------------------- looking

    def _folder(self, label: str) -> str:
        return os.path.join(self._instances, label)

    def _lives(self, folder: str) -> bool:
        """Return whether anything of the instance runs: by its lock, then by its mark."""
        label = os.path.basename(folder)
        return state.is_alive(folder) or label in tree.marked(self._instances)

    def _look(self, label: str, marks: Mapping[str, Sequence[int]] | None) -> Instance | None:
        if not LABEL.fullmatch(label):
            return None
        folder = self._folder(label)
        facts = state.read_json(os.path.join(folder, state.LAUNCH))
        if facts is not None and state.is_alive(folder):
            return self._living(label, facts)
        left = (tree.marked(self._instances) if marks is None else marks).get(label, ())
        if left:
            detail = f"ending: {len(left)} processes are left"
            return self._instance(label, facts or {}, InstanceState.UNKNOWN, detail)
        if facts is not None and os.path.isdir(folder):
            detail = "nothing runs, its folder is left"
            return self._instance(label, facts, InstanceState.STOPPED, detail)
        note = state.read_json(state.grave(self._instances, label))
        if note is None:
            return None
        return self._instance(label, note, InstanceState.GONE, f"ended: {note.get('why')}")

    def _living(self, label: str, facts: dict[str, Any]) -> Instance:
        folder = self._folder(label)
        record = state.read_json(os.path.join(folder, state.INSTANCE))
        guard = state.read_json(os.path.join(folder, state.GUARD))
        if state.must_end(folder):
            return self._instance(label, facts, InstanceState.UNKNOWN, "ending")
        if record is None:
            return self._instance(label, facts, InstanceState.STARTING, "starting")
        if tree.same(record) is None or tree.same(guard) is None:
            return self._instance(label, facts, InstanceState.UNKNOWN, "ending")
        return self._instance(label, facts, InstanceState.READY, "listening", record["port"])

    def _instance(
        self,
        label: str,
        facts: Mapping[str, Any],
        now: InstanceState,
        detail: str,
        port: int | None = None,
    ) -> Instance:
        price, key = facts.get("price_usd_per_hour"), facts.get("host_key")
        return Instance(
            id=InstanceId(label),
            label=label,
            state=now,
            host=None if port is None else HOST,
            port=port,
            user=None if port is None else facts.get("user"),
            host_key=HostKey(*key) if key else None,
            owner=facts.get("owner"),
            price_usd_per_hour=None if price is None else Decimal(price),
            created_at=facts.get("created_at"),
            deadline_at=facts.get("deadline_at"),
            workdir=os.path.join(self._folder(label), state.WORK),
            detail=detail,
        )

    # ---------------------------------------------------------------- ending

    def _wait_for_end(self, folder: str, guard: tree.Proc | None) -> None:
        if guard is not None and tree.wait_for_end(guard, END_WAIT_S) is not None:
            return
        end = self._clock.monotonic() + END_WAIT_S
        while state.is_alive(folder) and self._clock.monotonic() < end:
            self._clock.sleep(FORCED_PAUSE_S)

    def _force(self, folder: str) -> None:
        """Kill from outside: the guard is stopped, or was killed together with its server."""
        names = (state.GUARD, state.INSTANCE)
        records = (state.read_json(os.path.join(folder, n)) for n in names)
        roots = [p.pid for p in map(tree.same, records) if p is not None]
        quiet = 0
        for _ in range(FORCED_PASSES):
            quiet = 0 if tree.kill_once(folder, roots, ()) else quiet + 1
            if quiet == 2:
                return
            self._clock.sleep(FORCED_PAUSE_S)


def _user() -> str:
    """Return the account's name; where it has none any does: the key decides who may log in."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "gpujob"


@contextlib.contextmanager
def _as_unavailable(verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{verb}: {error}") from error


@contextlib.contextmanager
def _as_invalid(verb: str) -> Iterator[None]:
    """Before anything runs, a folder that cannot be made is a definite refusal."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(f"{verb}: {error}") from error
