"""The control endpoint, for tests only: arm faults, hurt pods, move the clock, read the truth.

GET /_sim/state; GET /_sim/log?event=...; POST /_sim/faults {"name", "times", "skip", ...};
DELETE /_sim/faults; POST /_sim/pods/<id or *>/<run_ fault> {options}; POST /_sim/pods
{a create request} for a pod of somebody else; POST /_sim/clock {"jump_s", "speed"};
POST /_sim/settings {...}; POST /_sim/renew: no pod, no fault, the first settings;
POST /_sim/quit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.cloud import rest
from tests.cloud.answers import Answer, Refused
from tests.cloud.switches import UnknownFault, from_dict
from tests.cloud.world import World

if TYPE_CHECKING:
    from tests.cloud.rest import Request


def answer(world: World, request: Request, quit_now: Callable[[], None]) -> Answer:
    """Return the answer; 400 with the reason where the request makes no sense."""
    try:
        return Answer(200, act(world, request, quit_now))
    except (KeyError, ValueError, TypeError, UnknownFault) as error:
        return Answer(400, {"error": f"{type(error).__name__}: {error}"})
    except Refused as refused:
        return refused.answer


def act(world: World, request: Request, quit_now: Callable[[], None]) -> Any:
    parts = request.path.strip("/").split("/")[1:]
    given: dict[str, Any] = request.body or {}
    match request.method, parts:
        case "GET", ["state"]:
            return world.state()
        case "GET", ["log"]:
            wanted = request.query.get("event")
            return [line for line in list(world.log.lines) if wanted in (None, line["event"])]
        case "POST", ["faults"]:
            world.switches.arm(from_dict(given))
        case "DELETE", ["faults"]:
            world.switches.clear()
            world.down_until = 0.0
        case "POST", ["pods"]:
            asked = rest.with_defaults(given)
            rest.may_create(world, asked)
            return world.lives.make(asked).truth()
        case "POST", ["pods", pod_id, name]:
            fault = from_dict(given | {"name": name})
            chosen = [p for p in world.living() if pod_id in ("*", p.id)]
            if not chosen:
                raise KeyError(pod_id)
            for pod in chosen:
                world.lives.happen(pod, fault)
        case "POST", ["clock"]:
            world.clock.change(**given)
        case "POST", ["settings"]:
            world.settings.change(given)
        case "POST", ["renew"]:
            world.renew()
        case "POST", ["quit"]:
            quit_now()
        case _:
            raise ValueError(f"no such control: {request.method} {request.path}")
    return {}
