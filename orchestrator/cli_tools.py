"""Commands beside the run path: ssh, sweep, doctor, providers, init, schema, rm."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.exits import Exit, Refused
from orchestrator.opened import err, looked, opened, out, placed

if TYPE_CHECKING:
    from orchestrator.opened import Opened
    from providers.base import Instance


def ssh(word: str, command: list[str]) -> int:
    """Become the system's ssh on the job's living machine, its host key pinned."""
    if shutil.which("ssh") is None:
        raise Refused(
            "there is no ssh command here", remedy="Install the OpenSSH client.", launched=True
        )
    with opened() as state:
        job_id = state.store.find_job(word)
        instance = _living_instance(state, job_id)
        from orchestrator.remote import Target
        from orchestrator.ssh_keys import job_key, openssh_argv

        own = instance.key_file
        file = Path(own) if own is not None else job_key(state.home.root, job_id).file
        target = Target(
            str(instance.host), int(instance.port or 22), str(instance.user), file,
            instance.host_key,
        )  # fmt: skip
        argv = openssh_argv(target, state.home.job_folder(job_id) / "known_hosts")
    if command:
        argv += ["--", *command]
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - the terminal belongs to ssh from here on


def _living_instance(state: Opened, job_id: str) -> Instance:
    from orchestrator.compose import make_providers
    from orchestrator.settings import load_settings
    from providers.base import InstanceId

    job = state.store.job(job_id, now=state.now())
    attempt = job.attempts[-1] if job.attempts else None
    if attempt is None or attempt.instance_id is None or attempt.gone_at is not None:
        raise Refused(
            f"{job.name} #{job.id} has no living machine: it is {job.state}",
            remedy="gpujob logs shows what it did.",
            launched=True,
        )
    providers = make_providers(load_settings(), state.home.root)
    if attempt.provider not in providers:
        raise Refused(f"provider {attempt.provider} is not set up here", launched=True)
    instance = providers[attempt.provider].describe(InstanceId(attempt.instance_id))
    if instance.host is None or instance.user is None:
        raise Refused(
            f"{attempt.instance_id} cannot be reached yet: {instance.state}",
            remedy="Try again once gpujob status says PREPARING or RUNNING.",
            launched=True,
        )
    return instance


def sweep(*, unknown: Literal["report", "end", "adopt"], as_json: bool) -> int:
    """Look for machines that should not be there; 5 while one of them may still bill."""
    from orchestrator import daemon
    from orchestrator.compose import compose
    from orchestrator.report_sweep import bills, sweep_document, sweep_lines
    from orchestrator.sweep import sweep as look

    with opened() as state:
        (state.home.root / daemon.SWEPT_NAME).touch()  # no further one after this command
        parts = compose(state)
        report = look(parts.runner, unknown=unknown)
        if as_json:
            from orchestrator.report_json import dumps

            out([dumps(sweep_document(report, state.now()))])
        else:
            out(sweep_lines(report, list(parts.providers), state.screen))
        daemon.see_that_jobs_are_driven(state)
        return Exit.STILL_BILLING if bills(report) else Exit.OK


def doctor(*, as_json: bool) -> int:
    """Print every check; 2 where one failed."""
    from orchestrator.compose import channels_of, make_providers
    from orchestrator.doctor import doctor_document, doctor_lines, failed, run_checks
    from orchestrator.settings import load_settings

    place = placed()  # a broken database is a row of the answer, not its end
    settings = load_settings()
    providers = make_providers(settings, place.home.root)
    checks = run_checks(place.home, providers, channels_of(settings))
    if as_json:
        from orchestrator.report_json import dumps

        out([dumps(doctor_document(checks, place.now))])
    else:
        out(doctor_lines(checks, place.screen))
    return Exit.USAGE if failed(checks) else Exit.OK


def providers(*, as_json: bool) -> int:
    """Print each provider and what it offers now; exit 0."""
    from orchestrator.compose import make_providers
    from orchestrator.report_sweep import ask, providers_document, providers_lines
    from orchestrator.settings import load_settings

    with looked() as state:
        answers = ask(make_providers(load_settings(), state.home.root))
        if as_json:
            from orchestrator.report_json import dumps

            out([dumps(providers_document(answers, state.now()))])
        else:
            out(providers_lines(answers, state.screen))
    return Exit.OK


def init(path: Path, *, force: bool) -> int:
    """Write a commented job file; never over another one unasked."""
    from jobs.template import job_template

    if path.is_dir():
        path /= "job.yaml"
    text = job_template(file=str(path))
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} is there already", remedy="--force overwrites it.") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    out([f"wrote {path}.  Mend its model and data, then: gpujob submit {path} --dry-run"])
    return Exit.OK


def schema() -> int:
    """Print the job file's JSON schema."""
    import json

    from jobs.spec_schema import job_schema

    out([json.dumps(job_schema(), indent=2)])
    return Exit.OK


def rm(words: list[str]) -> int:
    """Take closed jobs off the list, with their logs and keys; an open one is refused."""
    from orchestrator.ssh_keys import remove_job_key
    from orchestrator.states import Teardown

    with opened() as state:
        ids = [state.store.find_job(word) for word in words]
        for job_id in dict.fromkeys(ids):
            if state.store.job(job_id, now=state.now()).teardown is Teardown.YOURS_TO_CLOSE:
                raise Refused(
                    f"#{job_id}: its machine is yours to close, and costs until you do",
                    remedy=f"End it where you rented it, then: gpujob closed {job_id}",
                    launched=True,
                )
            if not state.store.remove_job(job_id, now=state.now()):
                raise Refused(
                    f"#{job_id} is not over",
                    remedy=f"gpujob cancel {job_id} ends it first.",
                    launched=True,
                )
            shutil.rmtree(state.home.root / "jobs" / job_id, ignore_errors=True)
            remove_job_key(state.home.root, job_id)
            err(f"#{job_id} removed; what it cost stays in gpujob cost")
    return Exit.OK
