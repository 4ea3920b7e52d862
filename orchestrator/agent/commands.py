"""The agent's commands. Each prints one JSON object; exit status 0 if it could answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
from typing import Iterator

from orchestrator.agent.carrier import GRANTS_BYTES, carried, carry
from orchestrator.agent.daemon import launch
from orchestrator.agent.files import (
    CLAIM,
    EXIT,
    HEARTBEAT,
    LOG,
    METRICS,
    ORDER,
    STOP,
    Document,
    publish_exit,
    read_document,
    size_of,
    write_durably,
)
from orchestrator.agent.keeper import orphan_document
from orchestrator.agent.listing import TooMany, manifest
from orchestrator.agent.order import GRACE_S, BadOrder, read_order
from orchestrator.agent.procs import TICK_S, is_alive, send, steady_s
from orchestrator.agent.rescue import be_near

USAGE = """usage: gpujob_agent.py start ORDER [--secrets]
       gpujob_agent.py status FOLDER
       gpujob_agent.py await FOLDER [--timeout S]
       gpujob_agent.py stop FOLDER [--now] [--reason REASON]
       gpujob_agent.py manifest FOLDER [--checkpoint STEP]
       gpujob_agent.py carry FOLDER
       gpujob_agent.py carried FOLDER"""
ANSWERED, FAILED, BAD_INPUT, FOREIGN_CLAIM = 0, 1, 2, 3
ANSWER_TIMEOUT_S = 30.0
STOP_MARGIN_S = 20.0  # beyond the grace: KILL, checks of what was saved
SECRETS_BYTES = 1 << 16


class CannotAnswer(Exception):  # noqa: N818 - as the house names its errors
    """The command can't answer; carries its exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def main(argv: list[str]) -> int:
    """Run one command; return the exit status."""
    try:
        answer = _dispatch(list(argv))
        status = ANSWERED
    except CannotAnswer as error:
        answer, status = {"error": str(error)}, error.status
    except BadOrder as error:
        answer, status = {"error": "order: %s" % error}, BAD_INPUT
    except OSError as error:
        answer, status = {"error": str(error)}, FAILED
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return status


def _dispatch(argv: list[str]) -> Document:
    options: dict[str, str] = {}
    words: list[str] = []
    while argv:
        word = argv.pop(0)
        if word in ("--now", "--secrets"):
            options[word] = "yes"
        elif word in ("--timeout", "--reason", "--checkpoint") and argv:
            options[word] = argv.pop(0)
            if word == "--reason" and not re.match(r"[A-Z_]{1,40}\Z", options[word]):
                raise CannotAnswer(BAD_INPUT, "--reason %r is no reason" % options[word])
            if word == "--checkpoint" and not re.match(r"\d{1,9}\Z", options[word]):
                raise CannotAnswer(BAD_INPUT, "--checkpoint %r is no step" % options[word])
        else:
            words.append(word)
    if len(words) != 2 or words[0].startswith("-"):
        raise CannotAnswer(BAD_INPUT, USAGE)
    command, place = words
    if command == "start":
        return start(place, _secrets() if "--secrets" in options else {})
    if not os.path.isdir(place):
        raise CannotAnswer(BAD_INPUT, "%s is no folder" % place)
    place = os.path.abspath(place)
    if command == "status":
        be_near(place)
        return status(place)
    if command == "await":
        return await_exit(place, _seconds(options.get("--timeout", "30")))
    if command == "stop":
        return stop(place, now="--now" in options, reason=options.get("--reason", "CANCELLED"))
    if command == "manifest":
        try:
            return manifest(place, options.get("--checkpoint"))
        except TooMany as error:
            raise CannotAnswer(FAILED, str(error)) from None
    if command == "carried":
        return carried(place)
    if command == "carry":
        try:
            return carry(place, sys.stdin.buffer.read(GRANTS_BYTES))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CannotAnswer(BAD_INPUT, "grants: %s" % error) from None
    raise CannotAnswer(BAD_INPUT, USAGE)


def _seconds(text: str) -> float:
    try:
        return min(3600.0, max(0.0, float(text)))
    except ValueError:
        raise CannotAnswer(BAD_INPUT, "--timeout %r is no number of seconds" % text) from None


def _secrets() -> dict[str, str]:
    """Return what the trainer alone is given, from standard input; never written anywhere."""
    try:
        given = json.loads(sys.stdin.buffer.read(SECRETS_BYTES).decode())
        return {str(name): str(value) for name, value in given.items()}
    except (ValueError, AttributeError):
        raise CannotAnswer(BAD_INPUT, "--secrets: no JSON object on standard input") from None


def start(order_path: str, secrets: dict[str, str]) -> Document:
    """Claim the folder and start the trainer, detached; at most once for ever."""
    order = read_order(order_path)
    readable, writable = os.pipe()
    sys.stdout.flush()
    if os.fork() == 0:
        os.close(readable)
        launch(order, writable, secrets)
    os.close(writable)
    answer = _read_answer(readable)
    if not answer.get("refused"):
        return answer
    claim = read_document(os.path.join(order.folder, CLAIM)) or {}
    if claim.get("token") != order.token:
        raise CannotAnswer(FOREIGN_CLAIM, "the folder is claimed by another owner")
    return {"started": False, "already": True, "pid": claim.get("pid")}


def _read_answer(fd: int) -> Document:
    data = b""
    until = steady_s() + ANSWER_TIMEOUT_S
    while select.select([fd], [], [], max(0.0, until - steady_s()))[0]:
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        data += chunk
    os.close(fd)
    try:
        answer = json.loads(data.decode())
    except ValueError:
        raise CannotAnswer(FAILED, "the agent died before it could answer") from None
    return dict(answer)


def status(folder: str) -> Document:
    """Return what is known of the attempt; changes nothing."""
    claim = read_document(os.path.join(folder, CLAIM))
    beat = read_document(os.path.join(folder, HEARTBEAT))
    ended = read_document(os.path.join(folder, EXIT))
    phase, age = "absent", None
    if claim is not None or os.path.exists(os.path.join(folder, CLAIM)):
        phase = "claimed"
    if beat is not None:
        phase = str(beat.get("phase"))
        if isinstance(beat.get("steady_s"), (int, float)):
            age = max(0.0, steady_s() - beat["steady_s"])
    return {
        "phase": "done" if ended is not None else phase,
        "alive": bool(claim) and is_served(claim or {}),
        "heartbeat_age_s": age,
        "log_bytes": size_of(os.path.join(folder, LOG)),
        "metrics_bytes": size_of(os.path.join(folder, METRICS)),
        "sample": beat.get("sample") if beat is not None else None,
        "exit": ended,
        "claim": claim,
    }


def is_served(claim: Document) -> bool:
    """Return whether the agent, or the keeper in its place, still lives."""
    return is_alive(claim.get("pid"), claim.get("pid_started")) or is_alive(
        claim.get("keeper"), claim.get("keeper_started")
    )


def await_exit(folder: str, timeout_s: float) -> Document:
    """Return the status once there is a verdict, or nobody left to give one, or at the timeout."""
    until = steady_s() + timeout_s
    look_at = 0.0
    while steady_s() < until and not os.path.exists(os.path.join(folder, EXIT)):
        if steady_s() >= look_at:
            look_at = steady_s() + 1.0
            if not is_served(read_document(os.path.join(folder, CLAIM)) or {}):
                break
        time.sleep(TICK_S)
    return status(folder)


def stop(folder: str, *, now: bool, reason: str) -> Document:
    """End the trainer's tree; return the status when the verdict is there. Bounded, idempotent.

    Where agent and keeper are both dead it ends what they left and writes the verdict itself.
    """
    claim = read_document(os.path.join(folder, CLAIM))
    if claim is None or os.path.exists(os.path.join(folder, EXIT)):
        return status(folder)
    if not is_served(claim):
        return _bury(folder)
    asked = {"now": now, "reason": reason, "at": time.time()}
    with contextlib.suppress(OSError):  # a full disk: the signal alone must do
        write_durably(os.path.join(folder, STOP), json.dumps(asked).encode())
    if is_alive(claim.get("pid"), claim.get("pid_started")):
        send([claim["pid"]], signal.SIGTERM)
    order = read_document(os.path.join(folder, ORDER)) or {}
    grace = order.get("stop_grace_s", GRACE_S)
    wait_s = STOP_MARGIN_S + (0 if now or not isinstance(grace, (int, float)) else grace)
    answer = await_exit(folder, wait_s)
    return answer if answer["exit"] or answer["alive"] else _bury(folder)


def _bury(folder: str) -> Document:
    """End the processes that still bear the folder's mark, and write the verdict nobody wrote."""
    until = steady_s() + STOP_MARGIN_S
    while steady_s() < until:
        left = [pid for pid, marked in _environments() if marked == folder]
        if not left:
            break
        send(left, signal.SIGKILL)
        time.sleep(TICK_S)
    publish_exit(folder, orphan_document(folder))
    return status(folder)


def _environments() -> Iterator[tuple[int, str]]:
    """Yield (pid, GPUJOB_FOLDER) of the living processes that have it; Linux only."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open("/proc/%d/environ" % int(name), "rb") as file:
                variables = file.read().split(b"\0")
        except (OSError, ValueError):
            continue
        for variable in variables:
            if variable.startswith(b"GPUJOB_FOLDER="):
                yield int(name), os.fsdecode(variable.partition(b"=")[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
