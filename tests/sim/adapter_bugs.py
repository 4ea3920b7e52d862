"""Wrong RunPod adapters, for the planted bugs: each is the real one with one thing done badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from providers.base import Instance, InstanceId, InstanceState, LaunchRequest
from providers.errors import NotFound, Unavailable
from providers.runpod import RunPodProvider

if TYPE_CHECKING:
    from tests.sim.world import World

Spoil = Callable[[RunPodProvider, "World"], None]


def create_twice(found: RunPodProvider, _: World) -> None:
    launch = found.launch

    def wrong(request: LaunchRequest) -> Instance:
        try:
            return launch(request)
        except Unavailable:
            return launch(request)

    found.launch = wrong  # type: ignore[method-assign]


def exited_is_gone(found: RunPodProvider, _: World) -> None:
    describe, find = found.describe, found.find

    def wrong(instance_id: InstanceId) -> Instance:
        instance = describe(instance_id)
        if instance.state is InstanceState.STOPPED:
            raise NotFound("describe: it is stopped")
        return instance

    def wrong_list(label_prefix: str) -> Sequence[Instance]:
        return [it for it in find(label_prefix) if it.state is not InstanceState.STOPPED]

    found.describe = wrong  # type: ignore[method-assign]
    found.find = wrong_list  # type: ignore[method-assign]


def one_page(found: RunPodProvider, _: World) -> None:
    api = found._api

    def wrong(verb: str, path: str, name: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = api.read(verb, path)[name]
        return pods

    api.pages = wrong  # type: ignore[method-assign]


def any_error_is_gone(found: RunPodProvider, _: World) -> None:
    read = found._api.read

    def wrong(verb: str, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            return read(verb, path, params)
        except Unavailable:
            if verb == "describe":
                raise NotFound("describe: 5xx") from None
            return {"pods": []}

    found._api.read = wrong  # type: ignore[method-assign]


def bill_without_disks(found: RunPodProvider, world: World) -> None:
    billed = found.billed

    def wrong(instance_id: InstanceId, start: float, end: float) -> Decimal | None:
        usd = billed(instance_id, start, end)
        machine = world.cloud.machines[instance_id]
        kept_h = Decimal((machine.deleted_at or end) - machine.created_at) / 3600
        return None if usd is None else usd - machine.storage_usd_per_hour * kept_h

    found.billed = wrong  # type: ignore[method-assign]


ADAPTER_BUGS: dict[str, Spoil] = {
    spoil.__name__: spoil
    for spoil in (
        create_twice, exited_is_gone, one_page, any_error_is_gone,
        bill_without_disks,
    )
}  # fmt: skip
