"""Machines rented by hand, as a command meets them: looked at before the yes, closed by a word.

Nothing is launched from here, and nothing is ended: only a person can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.exits import Refused
from orchestrator.redact import told
from orchestrator.states import State, Teardown
from providers.base import (
    BY_HAND,
    ByHand,
    Check,
    Ended,
    HostKey,
    InstanceId,
    InstanceState,
    Needs,
)
from providers.errors import NotFound, ProviderError

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.spec import JobSpec
    from orchestrator.runner import Runner
    from orchestrator.submit import Plan
    from orchestrator.views import AttemptView, JobView
    from providers.base import Offer, Provider

HTTPS = 443
GIB = 1 << 30
HUB = "huggingface.co"
WAITING = (Teardown.YOURS_TO_CLOSE, Teardown.LIVING, Teardown.STOPPING, Teardown.STILL_BILLING)
NOTE = (
    "gpujob can't end this machine: it brings the result home, wipes its files, counts on, and "
    "reminds you until you have ended it and said so with gpujob closed"
)

Ask = Callable[[str], bool]


def look(planned: Plan, providers: Mapping[str, Provider], ask: Ask | None) -> tuple[str, ...]:
    """Return what to say of the machine that the plan would use; () where it is not by hand.

    ask: puts a question to the person; None where nobody can be asked. Raises Refused (2) where
    the machine is not as it must be; nothing was launched.
    """
    offer = planned.best.offer
    provider = providers[offer.provider]
    if not isinstance(provider, ByHand):
        return ()
    try:
        _meet(provider, offer, ask)
        checks = provider.check(offer, needs_of(planned.spec, offer))
    except ProviderError as error:
        raise Refused(
            f"{BY_HAND}/{offer.key}: {told(error, kind=False)}",
            remedy="See that the machine runs, and that host, port, user and key are right.",
        ) from error
    failed = [check for check in checks if not check.ok]
    if failed:
        raise Refused(
            "\n".join(f"{BY_HAND}/{offer.key}: {check.name}: {check.detail}" for check in failed),
            remedy="\n".join(dict.fromkeys(check.remedy for check in failed)),
        )
    return (_seen(offer, checks), NOTE)


def _seen(offer: Offer, checks: tuple[Check, ...]) -> str:
    said = ", ".join(check.detail for check in checks if check.name != "claim")
    return f"{BY_HAND}/{offer.key} was looked at: {said}"


def _meet(provider: ByHand, offer: Offer, ask: Ask | None) -> None:
    """See to it that the machine's host key is trusted, by the person's own word."""
    from orchestrator.ssh_connect import fingerprint

    key, trusted = provider.shown_key(offer)
    if trusted:
        return
    shown = f"{BY_HAND}/{offer.key} shows the host key {fingerprint(key)}"
    if ask is not None and ask(f"{shown}\n  Is it your machine's? "):
        provider.trust(offer, key)
        return
    raise Refused(f"{shown}; nobody vouched for it yet", remedy=_vouch(offer, key))


def _vouch(offer: Offer, key: HostKey) -> str:
    return (
        "Compare it with what the machine itself says (at its console: ssh-keygen -lf "
        "/etc/ssh/ssh_host_ed25519_key.pub). If they agree, add to "
        f"{offer.key} in machines.yaml:\n    host_key: {key.type} {key.base64}"
    )


def needs_of(spec: JobSpec, offer: Offer) -> Needs:
    """Return what the job asks of a machine: room for uploads and results, and the hub."""
    from orchestrator.axolotl_env import DISK_BYTES
    from orchestrator.bootstrap import SPARE_BYTES
    from orchestrator.match import CPU

    local = [spec.model_folder, spec.data.train, spec.data.validation]
    size = sum(_size(place) for place in local if place is not None and not _is_number(place))
    variant = "cpu" if offer.gpu == CPU else "cuda"
    remote = spec.model_folder is None or spec.data.train is None
    return Needs(
        disk_gib=(size + SPARE_BYTES) / GIB,
        environment_gib=DISK_BYTES[variant] / GIB,
        egress=((HUB, HTTPS),) if remote else (),
        wished=tuple(dict.fromkeys(_doors(spec.pushes))),
    )


def _doors(places: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield host and port of each store and hub that the result goes to."""
    from orchestrator.artifacts.push_process import PushKeys, door

    keys = PushKeys() if places else None
    for place in places:
        found = door(place, keys) if keys is not None else None
        if found is not None:
            yield found


def _is_number(place: object) -> bool:
    return isinstance(place, (int, float))


def _size(place: Path | float) -> int:
    from pathlib import Path

    path = Path(str(place))
    if path.is_dir():
        return sum(below.stat().st_size for below in path.rglob("*") if below.is_file())
    return path.stat().st_size if path.is_file() else 0


# ---------------------------------------------------------------- closed


def waiting_for_a_word(job: JobView) -> AttemptView:
    """Return the attempt whose machine its owner may call ended; raises Refused."""
    for attempt in reversed(job.attempts):
        if attempt.provider == BY_HAND and attempt.teardown in WAITING and attempt.instance_id:
            return attempt
    raise Refused(
        f"{job.name} #{job.id} has no machine that is yours to close",
        remedy="gpujob ps lists those that wait for you.",
        launched=True,
    )


def declare(runner: Runner, job: JobView, attempt: AttemptView, at: float) -> bool:
    """Take the owner's word that the machine ended at `at`; False: the job's driver ends it now.

    Raises Refused where the machine plainly lives, or the time can't be.
    """
    provider = runner.providers[attempt.provider]
    instance_id = InstanceId(str(attempt.instance_id))
    if not isinstance(provider, ByHand):  # a provider of that name is
        raise Refused(f"{attempt.provider} ends its machines itself", launched=True)
    if attempt.state is not State.CLOSED and _lives(provider, instance_id):
        raise Refused(
            f"{job.name} #{job.id}: its machine still answers, and works for the job",
            remedy=f"gpujob cancel {job.id} ends the job; then end the machine, and say so again.",
            launched=True,
        )
    try:
        provider.declare_ended(instance_id, at)
    except NotFound as error:
        if attempt.state is not State.CLOSED:
            raise Refused(told(error, kind=False), launched=True) from error
    except ProviderError as error:
        raise Refused(told(error, kind=False), launched=True) from error
    return _write_down(runner, job, attempt, at)


def note_handed_on(runner: Runner) -> None:
    """Write down of which attempts a later one has the machine: it is counted once, there."""
    for provider in runner.providers.values():
        if not isinstance(provider, ByHand):
            continue
        labels = [str(one) for one in provider.handed_on()]
        for label, attempt in (runner.store.by_label(labels) if labels else {}).items():
            ended = provider.ended(InstanceId(label))
            if ended is None or attempt.state is not State.CLOSED or attempt.proof != "yours":
                continue
            job_id, number = attempt.job_id, attempt.number
            told = attempt.ended_at is not None
            if told or _word(runner, job_id, number, InstanceId(label), ended):
                provider.noted(InstanceId(label))


def _lives(provider: Provider | ByHand, instance_id: InstanceId) -> bool:
    describe = getattr(provider, "describe", None)
    if describe is None:
        return False
    try:
        return bool(describe(instance_id).state is InstanceState.READY)
    except ProviderError:
        return False


def _write_down(runner: Runner, job: JobView, attempt: AttemptView, at: float) -> bool:
    """Put the word into the journal of a closed attempt; an open one's driver does it itself."""
    machine = InstanceId(str(attempt.instance_id))
    return _word(runner, job.id, attempt.number, machine, Ended(at, "owner"))


def _word(runner: Runner, job_id: str, number: int, machine: InstanceId, said: Ended) -> bool:
    from orchestrator import events as ev

    driver = runner.take(job_id)
    if driver is None:
        return False
    try:
        for case in driver.cases:
            closed = case.attempt.state is State.CLOSED and case.attempt.proof == "yours"
            if case.attempt.number == number and closed:
                now = runner.clock.now()
                driver.commit(case, ev.EndDeclared(now, machine, said.at, said.by))
                return True
    finally:
        driver.release()
    return False
