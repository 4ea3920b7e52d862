"""GET /v2/pods/{id}/logs: Server-Sent Events, from the tail on, resumable, open until left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.cloud.answers import Answer, Refused
from tests.cloud.clock import from_iso, iso
from tests.cloud.pod import Line, Pod
from tests.cloud.world import World

if TYPE_CHECKING:
    from tests.cloud.rest import Request

TAIL, TAIL_MAX = 100, 5000
BEAT_S = 1.0
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def answer(_world: World, pod: Pod, request: Request) -> Answer:
    query = request.query
    source = query.get("source")
    if source not in (None, "container", "system"):
        raise Refused(400, "source is container or system")
    tail = query.get("tail", str(TAIL))
    if not tail.isdigit() or int(tail) > TAIL_MAX:
        raise Refused(400, f"tail is 0 to {TAIL_MAX}")
    after = 0
    resumed = request.headers.get("last-event-id", "")
    if "/" in resumed:
        after = int(resumed.rsplit("/", 1)[1])
    try:
        since = from_iso(query["since"]) if "since" in query else 0.0
    except ValueError:
        raise Refused(400, "since is no time") from None
    pieces = follow(pod, source, int(tail), after, since)
    return Answer(200, None, "text/event-stream", dict(HEADERS), stream=pieces)


def follow(pod: Pod, source: str | None, tail: int, after: int, since: float) -> Iterator[bytes]:
    """Yield events, and an empty piece now and then, until the pod has ended."""

    def meant(line: Line) -> bool:
        return line.number > after and line.at >= since and source in (None, line.source)

    with pod.told:
        known, last = [line for line in pod.lines if meant(line)], pod.count
    known = known if after else known[len(known) - min(tail, len(known)) :]
    for line in known:
        yield event(line)
    after = last
    while pod.living:
        with pod.told:
            if pod.count <= after:
                pod.told.wait(BEAT_S)
            fresh = [line for line in pod.lines if meant(line)]
            after = pod.count
        yield b"".join(event(line) for line in fresh)


def event(line: Line) -> bytes:
    data = {"ts": iso(line.at), "source": line.source, "line": line.text}
    return f"id: {line.id}\ndata: {json.dumps(data)}\n\n".encode()
