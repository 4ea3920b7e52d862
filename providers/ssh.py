"""The `ssh` provider: machines that a person rented by hand, each with a typed price card.

An attempt is a claim file in a folder of ours on the machine, beside a record on this computer. No
call can end such a machine: `terminate` ends our processes there and wipes our files. Its end is
its owner's word (`gpujob closed`), or the owner's own check_command. Unreachable is Unavailable,
never gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from providers import ssh_checks, ssh_wire
from providers import ssh_facts as about
from providers.base import (
    BY_HAND,
    Check,
    Ended,
    HostKey,
    Instance,
    InstanceId,
    LaunchRequest,
    Needs,
    Offer,
    Traits,
)
from providers.clock import Clock
from providers.errors import AuthFailed, InvalidRequest, NoCapacity, NotFound, Unavailable
from providers.ssh_machines import Machine, read_machines
from providers.ssh_records import Records, is_ending

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# It is up already; the limit is for a network that comes and goes.
BOOT_TIMEOUT_S = 300.0


class SshProvider:
    """The five verbs. An instance's id is its label. file: machines.yaml, read at every question.

    The billing step is each machine's own, from its price card, and stands in the offer.
    """

    name = BY_HAND

    def __init__(self, home: Path, file: Path, clock: Clock) -> None:
        self.traits = Traits(
            list_lag_s=0.0,
            boot_timeout_s=BOOT_TIMEOUT_S,
            billing_step_s=1.0,
            proves_absence=False,
            self_destruct=None,
        )
        self._file = file
        self._clock = clock
        self._records = Records(home)
        self._lines = ssh_wire.Lines()

    # ---------------------------------------------------------------- the five verbs

    def offers(self) -> Sequence[Offer]:
        """Return the machines that no attempt of this home holds. No network.

        Raises InvalidRequest for a wrong machines.yaml, NoCapacity where all are held.
        """
        machines = read_machines(self._file)
        busy = {**self._records.open(), **self._records.ending()}
        held = {str(facts.get("machine")): label for label, facts in busy.items()}
        free = [about.offer_of(one) for name, one in machines.items() if name not in held]
        if machines and not free:
            said = ", ".join(f"{name} by {label}" for name, label in held.items())
            raise NoCapacity(f"all machines of {self._file} are in use: {said}")
        return free

    def launch(self, request: LaunchRequest) -> Instance:
        """Claim the machine. 1 connection.

        Raises InvalidRequest (label, offer, host key, login), NoCapacity (claimed by another, or
        not reached), both with nothing changed there; Unavailable where the answer was lost.
        """
        verb = f"launch {request.label[:64]!r}"
        machine = self._asked_for(request, verb)
        target = self._target(machine)
        facts = {**self._facts_of(machine), **about.stamp(request, self._clock.now())}
        try:
            self._records.write(request.label, facts)
        except OSError as error:
            raise InvalidRequest(f"{verb}: {error}") from error
        claim = {key: facts[key] for key in about.CLAIMED}
        question = {"do": "claim", "folder": machine.folder, "claim": claim}
        try:
            answer = self._lines.ask(target, question)
        except AuthFailed as error:
            self._records.remove(request.label)
            raise InvalidRequest(f"{verb}: {error}") from error
        except ssh_wire.Unreached as error:
            self._records.remove(request.label)
            raise NoCapacity(f"{verb}: {error}") from error
        if answer["claim"].get("label") != request.label:
            self._records.remove(request.label)
            raise NoCapacity(f"{verb}: {machine.name} is {ssh_checks.claimed_by(answer['claim'])}")
        facts["folder"] = answer["folder"]
        self._records.write(request.label, facts)
        self._records.hand_on(request.label, facts["created_at"])
        return about.instance(facts)

    def describe(self, instance_id: InstanceId) -> Instance:
        """Return the machine while it bears our claim. 1 connection, more without a record.

        NotFound where it bears none, or its owner said that it is ended. Unavailable where it can't
        be reached, AuthFailed where it shows another host key or refuses the login.
        """
        facts = self._known(instance_id)
        if facts is None or facts.get("ended"):
            raise NotFound(f"describe {str(instance_id)[:80]!r}: no such attempt on any machine")
        if is_ending(facts):
            return about.ending(facts)
        claim = self._claim_on(facts)
        if claim.get("label") != instance_id:
            raise NotFound(f"describe {instance_id}: {facts['machine']} does not bear its claim")
        return about.instance({**facts, **claim})

    def find(self, label_prefix: str) -> Sequence[Instance]:
        """Return all claims of that prefix. 1 connection for each machine held or listed.

        Unavailable where a machine that we hold can't be asked; others that do not answer are
        passed over: they may be long gone.
        """
        found: dict[str, Instance] = {}
        places: set[tuple[str, tuple[str, int, str]]] = set()
        for label, facts in self._records.open().items():
            places.add((str(facts["machine"]), about.place(facts)))
            if not label.startswith(label_prefix):
                continue
            claim = self._claim_on(facts)
            if claim.get("label") == label:
                found[label] = about.instance({**facts, **claim})
        for label, facts in self._records.ending().items():
            places.add((str(facts["machine"]), about.place(facts)))
            if label.startswith(label_prefix):
                found[label] = about.ending(facts)
        for machine in read_machines(self._file).values():
            facts = self._facts_of(machine)
            if (machine.name, about.place(facts)) in places:
                continue
            try:
                claim = self._claim_on(facts)
            except (Unavailable, AuthFailed, InvalidRequest):
                continue
            label = str(claim.get("label", ""))
            if LABEL.fullmatch(label) and label.startswith(label_prefix):
                found.setdefault(label, about.instance({**facts, **claim}))
        return tuple(found[label] for label in sorted(found))

    def terminate(self, instance_id: InstanceId) -> None:
        """End what is ours there, wipe it, run the owner's teardown_command. Proves nothing.

        Until that command has ended with 0, and a check_command says that the machine is gone, it
        fails, and the reads show the machine: so it is asked for again, and heard of.
        """
        facts = self._known(instance_id)
        if facts is None or facts.get("ended"):
            return
        verb, label = f"terminate {instance_id}", str(instance_id)
        if facts.get("check_command") and facts.get("wiped") and self._is_gone(facts, label):
            return
        if not facts.get("wiped"):
            try:
                self._wipe(facts, label, verb)
            except (Unavailable, AuthFailed):
                if facts.get("check_command") and self._is_gone(facts, label):
                    return
                raise
            facts["wiped"] = True
            self._save(label, facts)
        if facts.get("teardown_command") and (facts.get("check_command") or is_ending(facts)):
            done = about.command(facts, label, "teardown_command")
            if done.returncode != 0:
                said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-200:]
                raise Unavailable(f"{verb}: teardown_command: exit {done.returncode}: {said}")
            facts["torn_down"] = True
            self._save(label, facts)
        if facts.get("check_command") and not self._is_gone(facts, label):
            raise Unavailable(f"{verb}: check_command does not say that the machine is gone")

    # ---------------------------------------------------------------- by hand

    def shown_key(self, offer: Offer) -> tuple[HostKey, bool]:
        """Return the host key that the machine shows, and whether it is the trusted one.

        Raises OtherKey (AuthFailed) where another was trusted, Unavailable.
        """
        machine = self._machine(offer)
        trusted = self._trusted(machine)
        shown = ssh_wire.shown_key(about.target(machine, trusted))
        wanted = machine.host_key or ""
        if wanted.startswith("SHA256:") and ssh_wire.fingerprint(shown) != wanted:
            raise ssh_wire.OtherKey(
                f"{machine.host}:{machine.port} shows the host key {ssh_wire.fingerprint(shown)}, "
                f"machines.yaml has {wanted}. {ssh_wire.REMEDY}"
            )
        if wanted.startswith("SHA256:") and trusted is None:
            self.trust(offer, shown)
            return shown, True
        return shown, trusted is not None

    def trust(self, offer: Offer, key: HostKey) -> None:
        """Remember the key for this machine at this address."""
        machine = self._machine(offer)
        try:
            self._records.trust(machine.name, f"{machine.host}:{machine.port}", key)
        except OSError as error:
            raise InvalidRequest(f"trust {machine.name}: {error}") from error

    def check(self, offer: Offer, needs: Needs) -> tuple[Check, ...]:
        """Return what was looked at on the machine. See `ssh_checks.checks`."""
        machine = self._machine(offer)
        doors = [list(place) for place in (*needs.egress, *needs.wished)]
        question = {
            "do": "check",
            "folder": machine.folder,
            "write_bytes": ssh_checks.WRITE_BYTES,
            "egress": doors,
        }
        limit_s = ssh_checks.LIMIT_S + 6.0 * len(doors)
        answer = self._lines.ask(self._target(machine), question, limit_s=limit_s)
        return ssh_checks.checks(machine, answer, needs, self._clock.now())

    def declare_ended(self, instance_id: InstanceId, at: float) -> None:
        """Take the owner's word. NotFound; InvalidRequest for a time that can't be."""
        facts = self._known(instance_id)
        if facts is None:
            raise NotFound(f"{instance_id}: no such attempt on any machine")
        if not float(facts["created_at"]) - 1 <= at <= self._clock.now() + 1:
            raise InvalidRequest("the machine ended between the launch and now: give another time")
        facts["ended"] = {"at": at, "by": "owner"}
        self._save(str(instance_id), facts)

    def ended(self, instance_id: InstanceId) -> Ended | None:
        """Return the word that the machine is gone; None where there is none."""
        return self._records.ended(instance_id) if LABEL.fullmatch(instance_id) else None

    def handed_on(self) -> Sequence[InstanceId]:
        """Return the attempts whose machine a later one has, until `noted`."""
        return [InstanceId(label) for label in self._records.handed_on()]

    def noted(self, instance_id: InstanceId) -> None:
        """Take that the hand-over stands in the journal."""
        facts = self._records.read(instance_id)
        if facts is not None:
            self._save(str(instance_id), {**facts, "noted": True})

    def close(self) -> None:
        """Close the connections; the next question makes new ones."""
        self._lines.close()

    # ---------------------------------------------------------------- helpers

    def _asked_for(self, request: LaunchRequest, verb: str) -> Machine:
        if not LABEL.fullmatch(request.label):
            raise InvalidRequest(f"{verb}: a label is 1-128 letters, digits, '.', '_' and '-'")
        if not request.deadline_at > self._clock.now():
            raise InvalidRequest(f"{verb}: its deadline is not in the future")
        if self._records.read(request.label) is not None:
            raise InvalidRequest(f"{verb}: this label was used before")
        return self._machine(request.offer)

    def _machine(self, offer: Offer) -> Machine:
        machine = read_machines(self._file).get(offer.key)
        if machine is None or offer.provider != self.name:
            raise InvalidRequest(f"no machine {offer.provider}/{offer.key} in {self._file}")
        return machine

    def _trusted(self, machine: Machine) -> HostKey | None:
        """Return the host key that is trusted: machines.yaml's line, else the one asked about."""
        wanted = machine.host_key
        if wanted is not None and not wanted.startswith("SHA256:"):
            return HostKey(*wanted.split())
        kept = self._records.trusted(machine.name, f"{machine.host}:{machine.port}")
        if wanted is not None and kept is not None and ssh_wire.fingerprint(kept) != wanted:
            return None
        return kept

    def _target(self, machine: Machine) -> ssh_wire.Target:
        trusted = self._trusted(machine)
        if trusted is None:
            raise InvalidRequest(f"{machine.name}: its host key is not trusted yet")
        return about.target(machine, trusted)

    def _known(self, instance_id: InstanceId) -> dict[str, Any] | None:
        """Return the record of an attempt; without one, the machine that bears its claim."""
        if not LABEL.fullmatch(instance_id):
            return None
        facts = self._records.read(instance_id)
        if facts is not None:
            return facts
        silent: Unavailable | AuthFailed | None = None
        for machine in read_machines(self._file).values():
            facts = self._facts_of(machine)
            try:
                claim = self._claim_on(facts)
            except (Unavailable, AuthFailed) as error:
                silent = error
                continue
            except InvalidRequest:
                continue  # its key was never trusted: we launched nothing there
            if claim.get("label") == instance_id:
                return {**facts, **claim}
        if silent is not None:
            raise silent
        return None

    def _facts_of(self, machine: Machine) -> dict[str, Any]:
        return about.facts_of(machine, self._trusted(machine))

    def _claim_on(self, facts: dict[str, Any]) -> dict[str, Any]:
        answer = self._lines.ask(about.target_of(facts), {"do": "look", "folder": facts["folder"]})
        claim = answer.get("claim") or {}
        kept = {key: claim[key] for key in about.CLAIMED if key in claim}
        return {**kept, "folder": answer["folder"]} if claim else {}

    def _wipe(self, facts: dict[str, Any], label: str, verb: str) -> None:
        question = {
            "do": "end",
            "folder": facts["folder"],
            "label": label,
            "keep_environment": facts["keep_environment"],
        }
        left = self._lines.ask(about.target_of(facts), question)
        if left["processes"] or left["files"]:
            raise Unavailable(
                f"{verb}: {left['processes']} processes"
                f"{' and files' if left['files'] else ''} could not be removed there"
            )

    def _is_gone(self, facts: dict[str, Any], label: str) -> bool:
        """Run the owner's check_command; its word is kept."""
        if about.command(facts, label, "check_command").returncode != 0:
            return False
        facts["ended"] = {"at": self._clock.now(), "by": "check_command"}
        self._save(label, facts)
        return True

    def _save(self, label: str, facts: dict[str, Any]) -> None:
        try:
            self._records.write(label, facts)
        except OSError as error:
            raise Unavailable(f"{label}: {error}") from error
