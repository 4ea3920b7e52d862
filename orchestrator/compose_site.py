"""From one attempt's machine to its site: SSH, what is uploaded, Axolotl's configuration, the card.

Part of the composition root: the only place where the job's spec meets the instance's bootstrap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bootstrap import Bootstrap, Composed, Machine, Payload, Upload
from orchestrator.machine_check import Rented

if TYPE_CHECKING:
    from jobs.spec import JobSpec
    from orchestrator.clock import Clock
    from orchestrator.home import Home
    from orchestrator.remote import Shell
    from orchestrator.shipping import Fetching
    from orchestrator.site import Site
    from orchestrator.site_order import SiteOrder
    from orchestrator.store import Store

HUB_CACHE = "huggingface"  # folder beside the attempts of a rented machine
ENVIRONMENTS = "environments"  # folder of built environments: beside the attempts, or in the home
REMOTE_WORKDIR = "gpujob"  # below the login's home, where the provider names no folder
log = logging.getLogger("gpujob.ssh")
Tell = Callable[[str, str, int, int], None]  # job id, file, bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class SiteMaker:
    """Makes sites; a `SiteFactory` of the runner. tell: takes the progress of transfers."""

    store: Store
    home: Home
    clock: Clock
    axolotl_env: Path | None
    tell: Tell
    torch_check: bool = True
    watch_speed: float = 1.0
    rescue_after_s: float = 300.0

    def __call__(self, order: SiteOrder) -> Site:
        """Return the site of one attempt; connects only when it is used."""
        from jobs.spec import JobSpec
        from orchestrator.artifacts.collect import Result
        from orchestrator.compose_store import rescue_of, shipping_of
        from orchestrator.host_pin import connect_pinned
        from orchestrator.paramiko_shell import ParamikoShell
        from orchestrator.remote import Target
        from orchestrator.renewal import Renewal
        from orchestrator.result_card import bare_model, best_step, own_files
        from orchestrator.ssh_keys import job_key
        from orchestrator.ssh_site import SshSite

        spec = JobSpec.model_validate(order.spec)
        key = job_key(self.home.root, order.job_id)
        file = key.file if order.key_file is None else Path(order.key_file)
        target = Target(order.host, order.port, order.user, file, order.host_key)
        bootstrap = Bootstrap(
            payload=self._payload(order, spec),
            folder=f"{order.workdir or REMOTE_WORKDIR}/{order.label}",
            environment=lambda shell, folder: self._environment(order, shell, folder),
            clock=self.clock,
        )
        result = Result(
            order.job_id,
            adapter=spec.method != "full",
            base_model=bare_model(spec),
            best_step=lambda: best_step(self.home, order.job_id, order.attempt),
            own=lambda best: own_files(
                order,
                spec,
                bootstrap.machine,
                store=self.store,
                home=self.home,
                now=self.clock.now(),
                best=best,
            ),
        )
        pin = self.home.job_folder(order.job_id) / f"host-key-{order.attempt}-{order.port}"

        def connect() -> ParamikoShell:
            if target.host_key is not None or not order.remote:
                return ParamikoShell.connect(target, clock=self.clock)
            return connect_pinned(target, pin, clock=self.clock, tell=log.warning)

        shipping = shipping_of(order, spec, self.clock)
        renewal = Renewal(order.lease_s) if order.lease_s > 0 else None
        rescue = rescue_of(order, spec, self.home)
        return SshSite(connect, bootstrap, result, shipping, renewal, rescue=rescue)

    def _payload(self, order: SiteOrder, spec: JobSpec) -> Payload:
        from jobs.axolotl import Layout, uploads
        from orchestrator.compose_store import fetching_of, rescue_set
        from orchestrator.watchdog import as_order, limits_of

        fetching = fetching_of(order, spec)
        return Payload(
            job=order.job_id,
            attempt=order.attempt,
            label=order.label,
            token=order.claim_token,
            deadline_at=order.deadline_at,
            compose=lambda machine: compose_run(
                spec,
                machine,
                order.gpu,
                order.vram_gib,
                # Of a rented machine only the volume that holds the attempt is as large as asked,
                # and what is downloaded on one that is somebody's own is wiped with the rest.
                hf_home=f"{Path(machine.folder).parent}/{HUB_CACHE}" if order.remote else None,
            ),
            uploads=(
                *(
                    Upload(upload.local, upload.remote.removeprefix("./"))
                    for upload in uploads(spec, Layout("."))
                ),
                *(() if fetching is not None else _checkpoint(order)),
            ),
            rescue=rescue_set(order, spec, self.clock, self.rescue_after_s),
            secrets=_model_token if spec.gated and spec.model_folder is None else None,
            later=None if fetching is None else lambda: _fetched(fetching, order),
            expect_adapter=spec.method != "full",
            may_stop_early=may_stop_early(spec),
            self_destruct=order.self_destruct,
            rented=Rented(order.gpus, order.vram_gib, self.torch_check),
            watch=as_order(limits_of(order.spec, speed=self.watch_speed)),
            progress=lambda name, done, total: self.tell(order.job_id, name, done, total),
        )

    def _environment(self, order: SiteOrder, shell: Shell, folder: str) -> Any:
        from orchestrator.axolotl_env import AxolotlEnv, network_of

        if order.remote:  # the user's own environment and network mean nothing there
            root = f"{Path(folder).parent}/{ENVIRONMENTS}"
            return AxolotlEnv(shell, folder, root, order.label, given=order.axolotl_env)
        given = self.axolotl_env.expanduser().absolute() if self.axolotl_env else None
        return AxolotlEnv(
            shell,
            folder,
            str(self.home.root / ENVIRONMENTS),
            order.label,
            given=str(given) if given else None,
            network=network_of(os.environ),
        )


def _model_token() -> dict[str, str]:
    """Return the trainer's secrets; raises SiteRefused where there is no token here."""
    from orchestrator.hub_token import trainer_secrets
    from orchestrator.site import SiteRefused
    from orchestrator.states import Reason

    found = trainer_secrets()
    if not found:
        said = "neither GPUJOB_MODEL_TOKEN nor HF_TOKEN is set where the job is driven"
        raise SiteRefused(Reason.PREPARE_FAILED, said)
    return found


def _fetched(fetching: Fetching, order: SiteOrder) -> tuple[Upload, ...] | None:
    return _checkpoint(order) if fetching.done() else None


def _checkpoint(order: SiteOrder) -> tuple[Upload, ...]:
    """Return the files of the checkpoint to go on from, at their places on the instance.

    Axolotl itself finds the newest one below its output folder (auto_resume_from_checkpoints).
    """
    from orchestrator.artifacts import checkpoint

    found = checkpoint.newest(order.checkpoints) if order.checkpoints is not None else None
    if found is None:
        return ()
    place = f"out/{found.name}"
    return tuple(
        Upload(path, f"{place}/{path.relative_to(found).as_posix()}")
        for path in checkpoint.files_of(found)
    )


def compose_run(
    spec: JobSpec,
    machine: Machine,
    gpu: str = "CPU",
    vram_gib: float = 0.0,
    *,
    hf_home: str | None = None,
) -> Composed:
    """Return what is run on one machine: configuration, command line, environment. No secret."""
    from jobs.axolotl import Layout, Stack, axolotl_config, to_yaml, trainer_argv
    from orchestrator.axolotl_env import trainer_env

    layout = Layout(machine.folder)
    stack: Stack = "cuda" if machine.gpus else "cpu"
    config = axolotl_config(spec, layout=layout, stack=stack)
    if machine.gpus > 1:
        config = _on_all(spec, config, machine.gpus, gpu, vram_gib)
    argv = trainer_argv(machine.axolotl.axolotl, layout.config, machine.gpus)
    env = trainer_env(
        gpu=machine.gpus > 0, offline=is_offline(spec), scratch=machine.folder, hf_home=hf_home
    )
    return Composed(to_yaml(config).encode(), tuple(argv), env)


def _on_all(
    spec: JobSpec, config: dict[str, Any], gpus: int, gpu: str, vram_gib: float
) -> dict[str, Any]:
    """Return the configuration shared out over the machine's GPUs, as the plan had it."""
    from jobs.sizing import shared_out
    from orchestrator.planning import need_of
    from orchestrator.sized import Fit

    sized = need_of(spec, with_tokens=False).requirement.sized
    fit = sized.fit(gpu, gpus, vram_gib) if sized is not None else None
    if isinstance(fit, Fit):
        return shared_out(config, fit.work)
    steps = config.get("gradient_accumulation_steps", 1)
    if spec.gpu.count is None and steps % gpus == 0:  # of a model that is not known
        return {**config, "gradient_accumulation_steps": steps // gpus}
    return config


def is_offline(spec: JobSpec) -> bool:
    """Return whether model and data both lie on the instance: the hub need not be asked."""
    return spec.model_folder is not None and spec.data.train is not None


def may_stop_early(spec: JobSpec) -> bool:
    """Return whether the person asked for a training that may end before its last step."""
    keys = {**spec.axolotl.base, **spec.axolotl.keys}
    return bool(keys.get("early_stopping_patience"))
