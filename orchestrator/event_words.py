"""The journal in words: one short sentence an event, for people. Pure; takes what JSON shows.

An event without a row here is told by its name and its fields, so that none is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from orchestrator.report_text import money, size

Data = Mapping[str, Any]


def words_of(event: str, data: Data) -> str:
    """Return "the machine 9k2x7 was seen, $0.74/h" for one entry of the journal."""
    tell = _WORDS.get(event)
    if tell is not None:
        try:
            return tell(data)
        except (KeyError, TypeError, ValueError, ArithmeticError):
            pass  # an older gpujob wrote it with other fields
    return _plainly(event, data)


def _plainly(event: str, data: Data) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event).lower()
    fields = ", ".join(
        f"{key} {value}" for key, value in data.items() if value not in (None, "", [])
    )
    return f"{name}: {fields}" if fields else name


def _with(text: str, more: object) -> str:
    return f"{text}: {more}" if more else text


def _rate(data: Data, lead: str = ", ") -> str:
    price = data.get("usd_per_hour")
    return "" if price is None else f"{lead}{money(Decimal(str(price)))}/h"


def _opened(data: Data) -> str:
    offer = data["offer"]
    gpu = f"{offer['gpu_count']}x {offer['gpu']}" if offer.get("gpu_count", 1) > 1 else offer["gpu"]
    price = money(Decimal(str(offer["price_usd_per_hour"])))
    return f"attempt {data['number']} is intended: {gpu} at {data['provider']}, {price}/h"


def _seen(data: Data) -> str:
    how = {
        "answered": "was made",
        "adopted": "was found under our name, and adopted",
        "double": "bears our name too: it will be ended",
        "late": "appeared late: it will be ended",
    }.get(str(data["how"]), f"was seen ({data['how']})")
    return f"the machine {data['instance_id']} {how}{_rate(data)}"


def _exited(data: Data) -> str:
    step, steps = data.get("last_step"), data.get("max_steps")
    at = f" at step {step} of {steps}" if step is not None and steps is not None else ""
    return _with(f"the training ended{at}: {data['reason']}", data.get("evidence"))


def _pushed(data: Data) -> str:
    files = data.get("files") or []
    if not files:
        return "nothing more is brought home"
    total = size(sum(int(file[1]) for file in files))
    return f"{len(files)} files are at home and checked, {total}"


def _gone(data: Data) -> str:
    return {
        "reads": "the attempt holds nothing any more: two reads prove it",
        "never asked": "the attempt holds nothing: no machine was ever asked for",
        "suspect": "no machine ever appeared; its name stays watched for a day",
        "yours": "the machine is yours to close: nobody else can prove it gone",
    }.get(str(data["proof"]), f"the attempt holds nothing any more ({data['proof']})")


def _terminate_failed(data: Data) -> str:
    lasting = ", and will not pass by itself" if data.get("definite") else ""
    return f"ending {data['instance_id']} failed{lasting}: {data['error']}"


def _endpoint(data: Data) -> str:
    it = data["endpoint"]
    pinned = "host key known" if it.get("host_key") else "host key not known beforehand"
    return f"the machine is reached at {it['user']}@{it['host']}:{it['port']}, {pinned}"


def _bill(data: Data) -> str:
    if data.get("error"):
        return f"what {data['instance_id']} was billed was not answered: {data['error']}"
    if data.get("usd") is None:
        return f"what {data['instance_id']} was billed is not settled yet"
    grows = "" if data.get("whole") else ", and may still grow"
    return f"{data['instance_id']} was billed {money(Decimal(str(data['usd'])))}{grows}"


_WORDS: dict[str, Callable[[Data], str]] = {
    "JobSubmitted": lambda d: f"{d['name']} was submitted",
    "CancelAsked": lambda d: f"somebody asked for its end ({d['reason']})",
    "JobClosed": lambda d: _with(f"the job is closed: {d['reason']}", d.get("evidence")),
    "Opened": _opened,
    "LaunchAsked": lambda _: "asking the provider for the machine",
    "LaunchDelayed": lambda d: _with("the launch is put off", d["error"]),
    "LaunchUnclear": lambda d: _with("the launch gave no clear answer", d["error"]),
    "SettleRead": lambda _: "a read shows no machine of our name",
    "MachineSeen": _seen,
    "Launched": lambda d: f"the attempt has its machine {d['instance_id']}",
    "Refused": lambda d: _with(f"refused: {d['reason']}", d.get("evidence")),
    "PriceSeen": lambda d: f"the price of {d['instance_id']} is now{_rate(d, ' ')}",
    "EndpointSeen": _endpoint,
    "SshReady": lambda _: "logged in over SSH",
    "StepDone": lambda d: f"prepared: {d['step']}",
    "StartAsked": lambda _: "starting the training",
    "TrainerStarted": lambda _: "the training runs",
    "CheckpointKept": lambda d: (
        f"checkpoint of step {d['step']} is safe off the machine, {size(int(d['bytes']))}"
    ),
    "TrainerExited": _exited,
    "ArtifactsPushed": _pushed,
    "Aborted": lambda d: _with(f"the attempt ends early: {d['reason']}", d.get("evidence")),
    "TerminateAsked": lambda d: f"asking for the end of {d['instance_id']}",
    "TerminateAccepted": lambda _: "the provider took it; that proves nothing yet",
    "TerminateFailed": _terminate_failed,
    "AbsenceRead": lambda d: f"a first read shows {d['instance_id']} gone",
    "AbsenceDenied": lambda d: f"a read shows {d['instance_id']} again: not gone",
    "MachineGone": lambda d: f"{d['instance_id']} is proven gone; its meter stops here",
    "InstanceGone": _gone,
    "BillRead": _bill,
    "Resurfaced": lambda d: f"{d['instance_id']} came back under a closed attempt's name",
    "StillBilling": lambda d: f"STILL BILLING  {d['text']}",
    "Noted": lambda d: str(d["text"]),
}
