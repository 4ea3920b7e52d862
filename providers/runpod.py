"""RunPod over its REST API v2: the five verbs, Billing and Account.

Nothing is retried, nothing waits; a create call whose answer is not clear is `Unavailable`, and so
is a 404 for a machine that this process made a moment ago and no read has shown yet. v2 knows no
idempotency key, no deadline and no spot: the label is the machine's name, the deadline is the start
argument's affair (runpod_start.py), and money left is asked of the older face (runpod_money.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from providers import runpod_money
from providers.base import (
    HostKey,
    Instance,
    InstanceId,
    InstanceState,
    LaunchRequest,
    Offer,
    Tier,
    Traits,
    Wish,
)
from providers.clock import Clock
from providers.errors import InvalidRequest, NoCapacity, NotFound, ProviderError, Unavailable
from providers.runpod_api import Api
from providers.runpod_cooling import Cooling
from providers.runpod_images import CUDA_FLOOR
from providers.runpod_offers import CLOUDS, NAME, candidate_of, offers_of
from providers.runpod_pods import ID, create_body, instance_of, started_at
from providers.runpod_settings import DEFAULT_WAITS, Waits
from providers.runpod_start import (
    HOST_KEY_WORD,
    SELF_DESTRUCT,
    host_key_said,
    start_argument,
    start_env,
)

# Docs say per second, and elsewhere per minute: the longer one keeps the estimate above the bill.
BILLING_STEP_S = 60.0
COUNTS = (1, 2, 4, 8)  # asked for where a job leaves it open: a machine's usual shapes
LOG_S = 8.0  # of one look into a container's log
LOG_TAIL = "1000"


class RunPodProvider:
    """One RunPod account. See the module."""

    name = NAME

    def __init__(
        self,
        key: str,
        base_url: str,
        clock: Clock,
        *,
        list_lag_s: float = 10.0,
        boot_timeout_s: float = 1200.0,
        refused: Path | None = None,
        waits: Waits = DEFAULT_WAITS,
        balance: Callable[[str, str], Decimal | None] = runpod_money.balance,
    ) -> None:
        self.traits = Traits(
            list_lag_s=list_lag_s,
            boot_timeout_s=boot_timeout_s,
            billing_step_s=BILLING_STEP_S,
            proves_absence=True,
            self_destruct=SELF_DESTRUCT,
        )
        self._api = Api(key, base_url, clock)
        self._log_api = Api(key, base_url, clock, total_s=LOG_S)
        self._key = key
        self._clock = clock
        self._waits = waits
        self._cooling = Cooling(refused, clock, waits.cool_s)
        self._balance = balance
        self._lock = threading.Lock()  # of the three below
        self._made: dict[InstanceId, float] = {}  # -> monotonic, until a read knew it
        self._reachable: dict[tuple[str, object], float] = {}  # id, address -> first seen
        self._host_keys: dict[tuple[str, object], HostKey] = {}

    def offers(self) -> Sequence[Offer]:
        """Return what is for hire with one GPU, both tiers. 2 calls."""
        return self.offers_for(Wish(tiers=(Tier.SECURE, Tier.COMMUNITY)))

    def offers_for(self, wish: Wish) -> Sequence[Offer]:
        """Return what is for hire in the wished tiers and count, refused ones left out. n calls."""
        tiers = [tier for tier in wish.tiers or tuple(CLOUDS) if tier in CLOUDS]
        counts = COUNTS if wish.count is None else (wish.count,)
        found: list[Offer] = []
        for tier, count in product(tiers, counts):
            params = {
                "include": "AVAILABILITY",
                "product": "POD",
                "count": str(count),
                "cloud": CLOUDS[tier],
                "minCudaVersion": CUDA_FLOOR,
            }
            answer = self._api.read("offers", "/catalog/gpus", params)
            found += offers_of(answer.get("gpus"), tier, count)
        refused = self._cooling.refused()
        return [offer for offer in found if offer.key not in refused]

    def launch(self, request: LaunchRequest) -> Instance:
        """Create a pod. 1 call, never repeated."""
        candidate = candidate_of(request.offer.key)
        left_s = request.deadline_at - self._clock.now()
        if left_s <= 0:
            raise InvalidRequest(f"launch {request.label[:120]}: its deadline has passed")
        env = start_env(
            request, left_s, self.traits.boot_timeout_s, self._api.base_url, self._waits
        )
        body = create_body(request, candidate, args=start_argument(), env=env)
        try:
            pod = self._api.create("launch", "/pods", body)
        except NoCapacity:
            self._cooling.refuse(request.offer.key)
            raise
        instance = instance_of(pod, "launch")
        if ID.fullmatch(instance.id) is None or instance.label != request.label:
            raise Unavailable(f"launch {request.label}: the answer is of another machine")
        with self._lock:
            self._made[instance.id] = self._clock.monotonic()
        return replace(
            instance,
            host=None,  # describe tells it, with the key
            port=None,
            user=None,
            state=_starting(instance.state),
            owner=request.owner,
            deadline_at=request.deadline_at,
        )

    def describe(self, instance_id: InstanceId) -> Instance:
        """Return the pod as it is. 1 call, and one more until its host key is known."""
        if ID.fullmatch(instance_id) is None:
            raise NotFound(f"describe: {instance_id[:64]!r} is no id")
        try:
            pod = self._api.read("describe", f"/pods/{instance_id}")
        except NotFound as error:
            if self._is_fresh(instance_id):
                raise Unavailable(f"{error}; it was made a moment ago") from error
            raise
        self._is_known({instance_id})
        instance = instance_of(pod, "describe")
        if instance.id != instance_id:
            raise Unavailable(f"describe {instance_id}: the answer is of {instance.id[:64]}")
        return self._keyed(instance, pod)

    def find(self, label_prefix: str) -> Sequence[Instance]:
        """Return the account's pods whose name starts so. A call a page."""
        pods = self._api.pages("find", "/pods", "pods")
        found = [(instance_of(pod, "find"), pod) for pod in pods]
        self._is_known({it.id for it, _ in found})
        ours = [(it, pod) for it, pod in found if it.label.startswith(label_prefix)]
        with self._lock:
            keys = dict(self._host_keys)
        return [replace(it, host_key=keys.get(_boot(it, pod))) for it, pod in ours]

    def terminate(self, instance_id: InstanceId) -> None:
        """Delete the pod. 1 call. Absent is success, unless it was made a moment ago."""
        if ID.fullmatch(instance_id) is None:
            raise InvalidRequest(f"terminate: {instance_id[:64]!r} is no id")
        try:
            self._api.delete("terminate", f"/pods/{instance_id}")
        except NotFound as error:
            if self._is_fresh(instance_id):
                raise Unavailable(f"{error}; it was made a moment ago") from error
        else:
            self._is_known({instance_id})

    def billed(self, instance_id: InstanceId, start: float, end: float) -> Decimal | None:
        """Return USD charged in the hours of [start, end); None until they are settled. 1 call."""
        return runpod_money.billed(self._api, instance_id, start, end, self._clock.now())

    def balance(self) -> Decimal | None:
        """Return USD left; None when it cannot be known. 1 call of the vendor's SDK."""
        return self._balance(self._key, self._api.base_url)

    # ---------------------------------------------------------------- helpers

    def _is_known(self, ids: set[InstanceId]) -> None:
        """Note that the service knows these: from now on a 404 means that they are gone."""
        with self._lock:
            for instance_id in ids & self._made.keys():
                del self._made[instance_id]

    def _is_fresh(self, instance_id: InstanceId) -> bool:
        with self._lock:
            made = self._made.get(instance_id)
            return made is not None and self._clock.monotonic() - made < self._waits.fresh_s

    def _keyed(self, instance: Instance, pod: Mapping[str, Any]) -> Instance:
        """Return the machine with its host key, or held back while the key is awaited."""
        if instance.state is not InstanceState.READY:
            return instance
        boot, now = _boot(instance, pod), self._clock.monotonic()
        with self._lock:
            first = self._reachable.setdefault(boot, now)
            known = self._host_keys.get(boot)
        if known is None and now - first <= self._waits.host_key_s:
            known = self._host_key(instance, started_at(pod))
            if known is None:
                return replace(
                    instance, state=InstanceState.STARTING, host=None, port=None, user=None,
                    detail=f"{instance.detail}, its host key is awaited",
                )  # fmt: skip
            with self._lock:
                self._host_keys[boot] = known
        if known is None:
            return replace(instance, detail=f"{instance.detail}, nobody vouches for its host key")
        return replace(instance, host_key=known)

    def _host_key(self, instance: Instance, since: str) -> HostKey | None:
        """Return the key that the start argument wrote to the container's log; the last one."""
        params = {"source": "container", **({"since": since} if since else {"tail": LOG_TAIL})}
        found = None
        try:
            for event in self._log_api.events("logs", f"/pods/{instance.id}/logs", params):
                line = event.get("line")
                if isinstance(line, str) and HOST_KEY_WORD in line:
                    found = host_key_said(line, instance.label) or found
        except ProviderError:
            return None
        return found


def _boot(instance: Instance, pod: Mapping[str, Any]) -> tuple[str, object]:
    """Return what changes whenever a pod's container, and so its host key, may be another."""
    return instance.id, (started_at(pod), instance.host, instance.port)


def _starting(state: InstanceState) -> InstanceState:
    return InstanceState.STARTING if state is not InstanceState.GONE else state
