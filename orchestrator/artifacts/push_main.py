"""The process of one push: orders as one JSON line on stdin, answers as JSON lines on stdout.

It ends when its stdin does, so it never outlives the gpujob that started it: a second one may then
begin without meeting a first. Credentials are in its environment, and nowhere else.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from jobs.targets import Bucket, Repo, is_target, target
from orchestrator import codec
from orchestrator.artifacts.push import Order, Outcome, PushFault
from orchestrator.redact import redact, remember_secrets, secrets_in


def main() -> int:
    """Do what the order says and answer; returns 0 where an answer was given."""
    order: Order = codec.load(Order, sys.stdin.buffer.readline().decode())
    remember_secrets(secrets_in(os.environ))
    threading.Thread(target=end_with_parent, daemon=True).start()
    say({"outcome": codec.encode(_outcome(order))})
    return 0


def _outcome(order: Order) -> Outcome:
    try:
        found = _check(order) if order.do == "check" else _push(order)
    except PushFault as fault:
        return Outcome.failed(order.target, redact(str(fault)), fault.remedy, retry=fault.retry)
    except MemoryError:
        return Outcome.failed(order.target, "this machine has no memory left for it", retry=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told
        return Outcome.failed(order.target, redact(f"{type(error).__name__}: {error}"))
    if isinstance(found, str):
        return Outcome(order.target, where=found)
    return Outcome(order.target, notes=tuple(redact(note) for note in found))


def _push(order: Order) -> str:
    from orchestrator.artifacts import push_folder, push_hub, push_s3

    place = target(order.target) if is_target(order.target) else None
    if isinstance(place, Bucket):
        return push_s3.push(push_s3.client(), place, order, _tell)
    if isinstance(place, Repo):
        return push_hub.push(push_hub.api(), place, order, _tell)
    return push_folder.push(order, _tell)


def _check(order: Order) -> tuple[str, ...]:
    from orchestrator.artifacts import push_folder, push_hub, push_s3

    place = target(order.target) if is_target(order.target) else None
    if isinstance(place, Bucket):
        return push_s3.check(push_s3.client(), place, order)
    if isinstance(place, Repo):
        return push_hub.check(push_hub.api(), place)
    return push_folder.check(order.target)


def _tell(done: int, total: int) -> None:
    say({"done": done, "total": total})


def say(answer: dict[str, Any]) -> None:
    """Answer one line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End this process as soon as its standard input does."""
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
