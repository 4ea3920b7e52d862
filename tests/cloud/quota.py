"""RunPod's request quota of a key: 60 a minute by default there, headers on every answer."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from tests.cloud.answers import Answer, problem
from tests.cloud.world import World

if TYPE_CHECKING:
    from tests.cloud.rest import Request

MINUTE_S = 60.0


class Quota:
    """Counts by key over the last simulated minute. A quota of 0 counts nothing, stamps nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._times: dict[str | None, deque[float]] = {}
        world.at_renewal.append(self._times.clear)

    def limited(self, request: Request) -> Answer | None:
        """Return the 429 if this request is one too many, else count it."""
        quota, now = self._world.settings.quota_per_minute, self._world.clock.now()
        if not quota:
            return None
        with self._lock:
            times = self._times.setdefault(request.key, deque())
            while times and times[0] <= now - MINUTE_S:
                times.popleft()
            if len(times) >= quota:
                wait = str(max(1, math.ceil(times[0] + MINUTE_S - now)))
                return dataclasses.replace(problem(429), headers={"Retry-After": wait})
            times.append(now)
        return None

    def stamped(self, request: Request, answer: Answer) -> Answer:
        """Return the answer with the quota's headers."""
        quota, now = self._world.settings.quota_per_minute, self._world.clock.now()
        if not quota:
            return answer
        with self._lock:
            times = self._times.get(request.key, deque())
            left = quota - len(times)
            reset = math.ceil(times[0] + MINUTE_S - now) if times else 60
        headers = {
            "RateLimit": f'"minute";r={left};t={reset}, "hour";r=2800;t=1812, '
            '"day";r=49500;t=45012',
            "RateLimit-Policy": f'"minute";q={quota};w=60, "hour";q=3000;w=3600, '
            '"day";q=50000;w=86400',
        }
        return dataclasses.replace(answer, headers=answer.headers | headers)
