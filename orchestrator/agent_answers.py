"""The agent's answers, checked. They come from the instance and are not trusted. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.log_text import clean
from orchestrator.site import AgentStatus, ExitReport, SiteRefused
from orchestrator.states import Reason

ABSENT = AgentStatus("absent", False, None, 0, 0, None)  # noqa: FBT003 - where none was started
# Tuples: a list or an object, which an answer may hold, can be looked up in them.
PHASES = ("absent", "claimed", "training", "checking", "done")
VERDICTS = ("succeeded", "failed", "stopped")
EVIDENCE_CHARS = 500


def read_status(answer: Mapping[str, Any], token: str) -> AgentStatus:
    """Return a status; what is malformed in it counts as unknown.

    Raises SiteRefused if the claim or the verdict bears another token than ours.
    """
    claim, ended = answer.get("claim"), answer.get("exit")
    for document in (claim, ended):
        if isinstance(document, dict) and document.get("token") != token:
            raise SiteRefused(Reason.INTERNAL, "the instance's folder belongs to another attempt")
    phase = answer.get("phase")
    return AgentStatus(
        phase=str(phase) if phase in PHASES else "claimed",
        alive=answer.get("alive") is True,
        heartbeat_age_s=_seconds(answer.get("heartbeat_age_s")),
        log_bytes=_count(answer.get("log_bytes")) or 0,
        metrics_bytes=_count(answer.get("metrics_bytes")) or 0,
        exit=read_exit(ended) if isinstance(ended, dict) else None,
        sample=answer.get("sample"),
    )


def read_exit(document: Mapping[str, Any]) -> ExitReport:
    """Return the verdict. One that is no proper success is a failure."""
    verdict, reason = document.get("verdict"), _reason(document.get("reason"))
    rc = _whole(document.get("rc"))
    succeeded = verdict == "succeeded" and reason is Reason.SUCCEEDED and rc == 0
    if not succeeded and (verdict not in VERDICTS or verdict == "succeeded"):
        verdict = "failed"
    if not succeeded and reason is Reason.SUCCEEDED:
        reason = Reason.INCOMPLETE
    if reason is Reason.INTERRUPTED:  # a signal that none of ours sends: the machine's own end
        reason = Reason.INSTANCE_LOST
    return ExitReport(
        verdict=str(verdict),
        reason=reason,
        evidence=_line(document.get("evidence")),
        rc=rc,
        signal=_whole(document.get("signal")),
        started_at=_seconds(document.get("started_at")) or 0.0,
        ended_at=_seconds(document.get("ended_at")) or 0.0,
        last_step=_count(document.get("last_step")),
        max_steps=_count(document.get("max_steps")),
        trainer_starts=_count(document.get("trainer_starts")) or 0,
    )


def _reason(value: Any) -> Reason:
    try:
        return Reason(value)
    except ValueError:
        return Reason.TRAINER_FAILED


def _line(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return " ".join(clean(text[:EVIDENCE_CHARS].encode("utf-8", "replace")).split())


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -(1 << 31) <= value < 1 << 31 else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e12 and math.isfinite(value) else None
